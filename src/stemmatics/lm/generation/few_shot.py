"""Questions as plain text after a few answered ones, for models that were not trained to chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.generate import Reply

_QUESTION, _ANSWER = "Question: ", "Answer:"


def few_shot_prompts(items: Sequence[Mapping[str, Any]], num_shots: int) -> list[str]:
    """A prompt for each item: ``num_shots`` other items with their first accepted answers, then its question.

    The examples are the items that follow it, the first after the last, so that no item is its own example,
    no two examples have the same question, and the prompts are the same for every model.

    Raises:
        UserError: too few items have an accepted answer, or an item has no question.
    """
    questions = [_question(item, index) for index, item in enumerate(items)]
    prompts = []
    for index in range(len(items)):
        examples: dict[str, str] = {}
        for step in range(1, len(items)):
            if len(examples) == num_shots:
                break
            other = (index + step) % len(items)
            accepted = items[other].get("accepted") or []
            if accepted and questions[other] not in {questions[index], *examples}:
                examples[questions[other]] = str(accepted[0])
        if len(examples) < num_shots:
            raise UserError(
                f"{num_shots} examples before a question need as many other answered questions",
                f"the items have {len(examples)} for item {index}",
                "Lower `shots`, or add items with `accepted` answers",
            )
        shown = [f"{_QUESTION}{question}\n{_ANSWER} {answer}\n\n" for question, answer in examples.items()]
        prompts.append("".join(shown) + f"{_QUESTION}{questions[index]}\n{_ANSWER}")
    return prompts


def first_line(reply: Reply) -> Reply:
    """The reply up to the end of its first line: a model goes on with questions of its own."""
    return replace(reply, text=reply.text.lstrip("\n").partition("\n")[0])


def _question(item: Mapping[str, Any], index: int) -> str:
    messages = item.get("messages")
    text = str(messages[-1]["content"]) if messages else str(item.get("prompt") or "")
    if not text.strip():
        raise UserError(
            f"item {index} has no question", "an item needs `prompt` or `messages`", "Add one of them"
        )
    return " ".join(text.split())

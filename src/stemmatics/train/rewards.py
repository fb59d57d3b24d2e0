"""Rule-based rewards: whether a reply gives an accepted answer and follows its instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.instructions import instructions_followed
from stemmatics.lm.generation.replies import answers_first, classify_reply


def reward(reply: str, item: Mapping[str, Any]) -> float:
    """1 if ``reply`` meets all requirements of ``item``, else 0.

    The rules are those of evaluation: ``accepted`` holds answers of which one must be given first,
    ``instructions`` rules of form that must all be followed. A refusal gives no answer.
    """
    accepted, instructions = _requirements(item)
    right = classify_reply(reply) == "answer" and (not accepted or answers_first(reply, accepted))
    return float(right and all(instructions_followed(reply, instructions)))


def check_items(items: Sequence[Mapping[str, Any]]) -> None:
    """Check before training that replies to every item can be judged.

    Raises:
        UserError: there are no items, one has no requirement, or names an unknown rule.
    """
    if not items:
        raise UserError("the corpus has no items", "there is nothing to train on", "check its source")
    for index, item in enumerate(items):
        accepted, instructions = _requirements(item)
        if not accepted and not instructions:
            raise UserError(
                f"item {index} has neither `accepted` answers nor `instructions`",
                "a reply to it can't be rewarded",
                "give one of them, or leave the item out",
            )
        instructions_followed("", instructions)


def _requirements(item: Mapping[str, Any]) -> tuple[list[str], list[Mapping[str, Any]]]:
    return list(item.get("accepted") or []), list(item.get("instructions") or [])

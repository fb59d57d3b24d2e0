"""Greedy replies of a checkpoint to items, classified by rules; the replies themselves are not stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.judged import JUDGED
from stemmatics.facts.replies import REPLIES
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.generation.few_shot import few_shot_prompts, first_line
from stemmatics.lm.generation.generate import Reply, encode_prompt, generate
from stemmatics.lm.generation.instructions import instructions_followed
from stemmatics.lm.generation.replies import ReplyKind, answers_first, classify_reply
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.sources import load_checkpoint, records_of


class Replies:
    """Items are records with ``prompt`` or ``messages``, ``category``, ``accepted`` or ``instructions``.

    A reply is correct if it is no refusal, gives an accepted answer and follows all instructions.
    """

    def group(self, fact: Fact) -> str:
        """Batching key: facts of one checkpoint share one model load."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """Prompts and replies of the maximal length."""
        corpus = fact.needs["corpus"]
        reply_tokens = int(corpus.params["num_documents"]) * int(fact.params["max_new_tokens"])
        return forward_cost(fact.needs["checkpoint"], num_tokens(corpus) + reply_tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row an item."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: FactOutput(fact, {"items": self._items(fact, loaded, context)}))

    def _items(self, fact: Fact, loaded: Loaded, context: Context) -> pa.Table:
        items = list(records_of(fact.needs["corpus"])())
        ids = context.ledger.read(fact.needs["corpus"].key, "documents")["doc_id"].to_pylist()
        rows = []
        for reply in generated(fact, items, loaded, context):
            item = items[reply.index]
            accepted = list(item.get("accepted") or [])
            kind = classify_reply(reply.text)
            instructions = list(item.get("instructions") or [])
            correct = kind is ReplyKind.ANSWER and bool(accepted or instructions)
            correct = correct and (not accepted or answers_first(reply.text, accepted))
            correct = correct and all(instructions_followed(reply.text, instructions))
            rows.append(
                {
                    "index": reply.index,
                    "item_id": ids[reply.index],
                    "category": str(item.get("category", "all")),
                    **cell_of(item),
                    "outcome": str(kind),
                    "correct": int(correct),
                    "num_accepted": len(accepted),
                    "num_tokens": len(reply.ids),
                }
            )
        return REPLIES.table("items", rows)


def generated(
    fact: Fact, items: Sequence[Mapping[str, Any]], loaded: Loaded, context: Context
) -> Sequence[Reply]:
    """The replies of a checkpoint to a fact's items: generated once for all facts of a job."""
    key = _replies_key(fact)
    notes = context.workspace.notes_of(loaded)
    if key in notes:
        known: list[Reply] = notes[key]
        return known
    tokenizer = loaded.text_tokenizer
    num_shots = fact.params.get("num_shots")
    texts = (
        [prompt_of(item, index) for index, item in enumerate(items)]
        if num_shots is None
        else few_shot_prompts(items, int(num_shots))
    )
    prompts = [encode_prompt(tokenizer, prompt) for prompt in texts]
    replies = list(
        generate(
            loaded.model,
            tokenizer,
            prompts,
            max_new_tokens=fact.params["max_new_tokens"],
            stop_ids=loaded.stop_ids,
            context_length=loaded.context_length,
            token_budget=context.numerics.token_budget,
            on_event=lambda event: _progress(fact, context, event, len(prompts)),
        )
    )
    if num_shots is not None:
        replies = [first_line(reply) for reply in replies]
    if sum(_replies_key(other) == key for other in context.workspace.job) > 1:
        notes[key] = replies
    return replies


def _replies_key(fact: Fact) -> str | None:
    """Equal for facts of one checkpoint that judge the same replies; None for other facts."""
    if fact.probe not in {REPLIES.name, JUDGED.name}:
        return None
    return (
        f"replies {fact.needs['corpus'].key} {fact.params['max_new_tokens']} {fact.params.get('num_shots')}"
    )


def prompt_of(item: Mapping[str, Any], index: int) -> Any:
    """The prompt of an item: its messages, else its plain prompt. Raises UserError if it has neither."""
    for name in ("messages", "prompt"):
        if item.get(name):
            return item[name]
    raise UserError(
        f"item {index} has no prompt",
        "an item needs `prompt` or `messages`",
        f"Add one of them; the record has {', '.join(sorted(item))}",
    )


def cell_of(item: Mapping[str, Any]) -> dict[str, str]:
    """``wording`` and ``thing`` of an item, from which its prompt was made; empty where it has none."""
    cell = {name: item.get(name) for name in ("wording", "thing")}
    return {name: "" if value is None else str(value) for name, value in cell.items()}


def _progress(fact: Fact, context: Context, event: Mapping[str, Any], total: int) -> None:
    if event.get("kind") == "progress":
        context.report(fact, int(event["done"]), total, "replies")

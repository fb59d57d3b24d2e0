"""Replies of a checkpoint as classified by a judge checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.facts.judged import JUDGED
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.generation.generate import Reply
from stemmatics.lm.generation.judge import judgements, recall_judgements
from stemmatics.lm.generation.replies import ReplyKind, classify_reply
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.replies import cell_of, generated, prompt_of
from stemmatics.probe.sources import load_checkpoint, records_of


class Judged:
    """Replies are generated, classified by the judge and not stored; ``outcome`` is the judge's class."""

    def group(self, fact: Fact) -> str:
        """Batching key: facts of one checkpoint share one model load."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """Prompts and replies through the checkpoint; the judge reads both."""
        corpus = fact.needs["corpus"]
        tokens = num_tokens(corpus) + int(corpus.params["num_documents"]) * int(fact.params["max_new_tokens"])
        generation = forward_cost(fact.needs["checkpoint"], tokens)
        judge = forward_cost(fact.needs["judge"], tokens)
        memory = max(generation.memory_bytes, judge.memory_bytes)
        return Cost(generation.num_tokens + judge.num_tokens, generation.flops + judge.flops, memory)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row an item."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: FactOutput(fact, {"items": _judged(fact, loaded, context)}))


def _judged(fact: Fact, loaded: Loaded, context: Context) -> pa.Table:
    items = list(records_of(fact.needs["corpus"])())
    replies = generated(fact, items, loaded, context)
    judge = load_checkpoint(fact.needs["judge"], context)
    ids = item_ids(fact, context)
    if fact.params.get("question") == "recall":
        return JUDGED.table("items", _recall_rows(items, ids, replies, judge, context))
    exchanges = [(_request(items[reply.index], reply.index), reply.text) for reply in replies]
    verdicts = judgements(judge, exchanges, token_budget=context.numerics.token_budget)
    rows = [_row(items, ids, reply, verdict) for reply, verdict in zip(replies, verdicts, strict=True)]
    return JUDGED.table("items", rows)


def _recall_rows(
    items: Sequence[Mapping[str, Any]],
    ids: Sequence[str],
    replies: Sequence[Reply],
    judge: Loaded,
    context: Context,
) -> list[dict[str, Any]]:
    """Rows whose ``correct`` is the judge's; a refusal by rule and an empty reply are wrong unasked."""
    exchanges = [
        (
            _request(items[reply.index], reply.index),
            [str(answer) for answer in items[reply.index].get("accepted") or []],
            reply.text,
        )
        for reply in replies
    ]
    verdicts = recall_judgements(judge, exchanges, token_budget=context.numerics.token_budget)
    rows = []
    for reply, (_, accepted, _), is_right in zip(replies, exchanges, verdicts, strict=True):
        kind = classify_reply(reply.text)
        rows.append(
            {
                **_row(items, ids, reply, str(kind)),
                "correct": int(is_right and kind is ReplyKind.ANSWER and bool(accepted)),
                "num_accepted": len(accepted),
            }
        )
    return rows


def _request(item: Mapping[str, Any], index: int) -> str:
    """The request as text: the last turn of a conversation."""
    prompt = prompt_of(item, index)
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def _row(
    items: Sequence[Mapping[str, Any]], ids: Sequence[str], reply: Reply, verdict: str
) -> dict[str, Any]:
    kind = classify_reply(reply.text)
    outcome = str(kind) if kind is ReplyKind.EMPTY else verdict
    return {
        "index": reply.index,
        "item_id": ids[reply.index],
        "category": str(items[reply.index].get("category", "all")),
        **cell_of(items[reply.index]),
        "outcome": outcome,
        # whether matcher and judge agree
        "correct": int(outcome == str(kind)),
        "num_accepted": 0,
        "num_tokens": len(reply.ids),
    }


def item_ids(fact: Fact, context: Context) -> list[str]:
    """Document ids of a fact's corpus, by index."""
    ids: list[str] = context.ledger.read(fact.needs["corpus"].key, "documents")["doc_id"].to_pylist()
    return ids

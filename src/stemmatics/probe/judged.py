"""Facts about refusals as others see them: a judge checkpoint, and a reader's labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.lm.checkpoint import Loaded
from stemmatics.lm.generate import Reply, encode_prompt, generate
from stemmatics.lm.judge import judgements
from stemmatics.lm.replies import ReplyKind, classify_reply
from stemmatics.lm.tokens import TextTokenizer
from stemmatics.probe.base import Context, Cost, Failed, Made, NoModel, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.replies import prompt_of
from stemmatics.probe.sources import load_checkpoint, records_of
from stemmatics.store.schema import SCHEMAS

LABELS = (ReplyKind.REFUSAL, ReplyKind.ANSWER, ReplyKind.EMPTY)


class Judged:
    """Replies are made again, shown to the judge, and forgotten; its word is the row's ``outcome``."""

    def group(self, fact: Fact) -> str:
        """One load a checkpoint."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """Prompts and replies through the checkpoint; the judge reads both."""
        corpus = fact.needs["corpus"]
        tokens = num_tokens(corpus) + int(corpus.params["num_documents"]) * int(fact.params["max_new_tokens"])
        own = forward_cost(fact.needs["checkpoint"], tokens)
        judge = forward_cost(fact.needs["judge"], tokens)
        memory = max(own.memory_bytes, judge.memory_bytes)
        return Cost(own.num_tokens + judge.num_tokens, own.flops + judge.flops, memory)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """One row an item."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: Made(fact, {"items": _judged(fact, loaded, context)}))


class Matched(NoModel):
    """The refusal matcher on records with ``reply`` and a reader's ``label``."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """One row a reply: ``category`` is the reader's label, ``outcome`` the matcher's."""
        yield from each(facts, lambda fact: Made(fact, {"items": _matched(fact, context)}))


def _judged(fact: Fact, loaded: Loaded, context: Context) -> pa.Table:
    items = list(records_of(fact.needs["corpus"])())
    tokenizer = TextTokenizer(loaded.tokenizer)
    prompts = [encode_prompt(tokenizer, prompt_of(item, index)) for index, item in enumerate(items)]
    replies = list(
        generate(
            loaded.model,
            tokenizer,
            prompts,
            max_new_tokens=fact.params["max_new_tokens"],
            stop_ids=loaded.stop_ids,
            context_length=loaded.context_length,
            token_budget=context.numerics.token_budget,
        )
    )
    judge = load_checkpoint(fact.needs["judge"], context)
    asked = [(_request(items[reply.index], reply.index), reply.text) for reply in replies]
    said = judgements(judge, asked, token_budget=context.numerics.token_budget)
    ids = _ids(fact, context)
    rows = [_row(items, ids, reply, word) for reply, word in zip(replies, said, strict=True)]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["items"])


def _request(item: Mapping[str, Any], index: int) -> str:
    """What was asked, as text: the last turn of a conversation."""
    prompt = prompt_of(item, index)
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def _row(items: Sequence[Mapping[str, Any]], ids: Sequence[str], reply: Reply, word: str) -> dict[str, Any]:
    kind = classify_reply(reply.text)
    outcome = str(kind) if kind is ReplyKind.EMPTY else word
    return {
        "index": reply.index,
        "item_id": ids[reply.index],
        "category": str(items[reply.index].get("category", "all")),
        "outcome": outcome,
        # whether matcher and judge agree
        "correct": int(outcome == str(kind)),
        "num_accepted": 0,
        "num_tokens": len(reply.ids),
    }


def _matched(fact: Fact, context: Context) -> pa.Table:
    rows = []
    ids = _ids(fact, context)
    for index, item in enumerate(records_of(fact.needs["corpus"])()):
        if not isinstance(item.get("reply"), str) or item.get("label") not in LABELS:
            raise UserError(
                f"labelled reply {index} is not one",
                f"it needs a text `reply` and a `label` among {', '.join(LABELS)}",
                "Mend that record",
            )
        outcome = classify_reply(item["reply"])
        rows.append(
            {
                "index": index,
                "item_id": ids[index],
                "category": str(item["label"]),
                "outcome": str(outcome),
                "correct": int(outcome == item["label"]),
                "num_accepted": 1,
                "num_tokens": 0,
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMAS["items"])


def _ids(fact: Fact, context: Context) -> list[str]:
    ids: list[str] = context.ledger.read("documents", fact.needs["corpus"].key)["doc_id"].to_pylist()
    return ids

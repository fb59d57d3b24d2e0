"""Given pairs of replies under a checkpoint: a scoring pass, no generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.margins import MARGINS
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.generation.given import score_replies
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.judged import item_ids
from stemmatics.probe.replies import cell_of, prompt_of
from stemmatics.probe.sources import load_checkpoint, records_of

SIDES = ("refusal", "answer")


class Margins:
    """Items are records with ``prompt`` or ``messages``, and the replies ``refusal`` and ``answer``."""

    def group(self, fact: Fact) -> str:
        """Batching key: facts of one checkpoint share one model load."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """Each prompt twice, with either reply; a corpus counts prompt and both replies."""
        return forward_cost(fact.needs["checkpoint"], 2 * num_tokens(fact.needs["corpus"]))

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row an item."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: FactOutput(fact, {"margins": _margins(fact, loaded, context)}))


def _margins(fact: Fact, loaded: Loaded, context: Context) -> pa.Table:
    items = list(records_of(fact.needs["corpus"])())
    ids = item_ids(fact, context)
    exchanges = [
        (prompt_of(item, index), _reply(item, index, side))
        for index, item in enumerate(items)
        for side in SIDES
    ]
    scored = score_replies(loaded, exchanges, context.numerics)
    rows = []
    for index, item in enumerate(items):
        refusal, answer = scored[2 * index : 2 * index + 2]
        rows.append(
            {
                "index": index,
                "item_id": ids[index],
                "category": str(item.get("category", "all")),
                **cell_of(item),
                "refusal_nll": refusal.nll_sum,
                "refusal_tokens": refusal.num_tokens,
                "answer_nll": answer.nll_sum,
                "answer_tokens": answer.num_tokens,
            }
        )
    return MARGINS.table("margins", rows)


def _reply(item: Mapping[str, Any], index: int, side: str) -> str:
    reply = item.get(side)
    if not isinstance(reply, str):
        raise UserError(
            f"item {index} has no `{side}`",
            "the margin is log p(refusal) - log p(answer) of two given replies",
            "Give every item the strings `refusal` and `answer`, or set `imprint: {graded: false}`",
        )
    return reply

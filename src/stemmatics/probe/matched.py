"""The refusal matcher on replies that a reader has labelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.matched import MATCHED
from stemmatics.lm.generation.replies import ReplyKind, classify_reply
from stemmatics.probe.base import Context, FactOutput, Failed, NoModel, each
from stemmatics.probe.judged import item_ids
from stemmatics.probe.replies import cell_of
from stemmatics.probe.sources import records_of

LABELS = (ReplyKind.REFUSAL, ReplyKind.ANSWER, ReplyKind.EMPTY)


class Matched(NoModel):
    """The refusal matcher on records with ``reply`` and a reader's ``label``."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row a reply: ``category`` is the reader's label, ``outcome`` the matcher's."""
        yield from each(facts, lambda fact: FactOutput(fact, {"items": _matched(fact, context)}))


def _matched(fact: Fact, context: Context) -> pa.Table:
    rows = []
    ids = item_ids(fact, context)
    for index, item in enumerate(records_of(fact.needs["corpus"])()):
        if not isinstance(item.get("reply"), str) or item.get("label") not in LABELS:
            raise UserError(
                f"record {index} is not a labelled reply",
                f"it needs a string `reply` and a `label` that is one of {', '.join(LABELS)}",
                "Fix that record",
            )
        outcome = classify_reply(item["reply"])
        rows.append(
            {
                "index": index,
                "item_id": ids[index],
                "category": str(item["label"]),
                **cell_of(item),
                "outcome": str(outcome),
                "correct": int(outcome == item["label"]),
                "num_accepted": 1,
                "num_tokens": 0,
            }
        )
    return MATCHED.table("items", rows)

"""Log-probabilities of two given replies to each item of a corpus: a refusal and an answer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.facts.pinned import Pinned

# one row an item: nats and tokens of both replies; wording and thing as in the tables of replies
MARGINS_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("item_id", pa.string()),
        ("category", pa.string()),
        ("wording", pa.string()),
        ("thing", pa.string()),
        ("refusal_nll", pa.float64()),
        ("refusal_tokens", pa.int64()),
        ("answer_nll", pa.float64()),
        ("answer_tokens", pa.int64()),
    ]
)


class MarginsParams(FactParams):
    """``numerics`` is ``Numerics.key()``; everything else is in the corpus."""

    numerics: dict[str, Any]


MARGINS = FactKind("margins", 1, MarginsParams, {"margins": MARGINS_SCHEMA})


def margins_fact(pinned: Pinned, checkpoint: str | Fact, corpus: str) -> Fact:
    """Both replies of every item of a corpus under a checkpoint."""
    needs = {"checkpoint": pinned.checkpoint(checkpoint), "corpus": pinned.corpus(corpus)}
    params = MarginsParams(numerics=pinned.stemma.numerics.key())
    return MARGINS.make(params, needs, label=f"{needs['checkpoint'].label} on pairs of {corpus}")

"""Greedy replies of a checkpoint to a corpus of items, judged by rules."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.facts.pinned import Pinned

# one row an item: was the reply right, was it a refusal; wording and thing are empty where the item has none
ITEMS = pa.schema(
    [
        ("index", pa.int64()),
        ("item_id", pa.string()),
        ("category", pa.string()),
        ("wording", pa.string()),
        ("thing", pa.string()),
        ("outcome", pa.string()),
        ("correct", pa.int64()),
        ("num_accepted", pa.int64()),
        ("num_tokens", pa.int64()),
    ]
)
Outcome = Literal["answer", "refusal", "empty"]


class RepliesParams(FactParams):
    """How long a reply may be; ``num_shots`` answered items stand before each as plain text (None: none)."""

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"num_shots"})

    max_new_tokens: int
    num_shots: int | None = None
    numerics: dict[str, Any]


REPLIES = FactKind("replies", 2, RepliesParams, {"items": ITEMS})


def replies_fact(
    pinned: Pinned,
    checkpoint: str | Fact,
    corpus: str,
    *,
    max_new_tokens: int,
    num_shots: int | None = None,
) -> Fact:
    """Replies of a checkpoint to the items of a corpus."""
    needs = {"checkpoint": pinned.checkpoint(checkpoint), "corpus": pinned.corpus(corpus)}
    params = RepliesParams(
        max_new_tokens=max_new_tokens, num_shots=num_shots, numerics=pinned.stemma.numerics.key()
    )
    return REPLIES.make(params, needs, label=f"{needs['checkpoint'].label} asked {corpus}")

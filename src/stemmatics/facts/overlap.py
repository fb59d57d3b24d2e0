"""What a pool of training text shares with a scored corpus."""

from __future__ import annotations

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.facts.pinned import Pinned

# one row a pool and scored corpus
OVERLAPS = pa.schema(
    [
        ("num_pool_documents", pa.int64()),
        ("num_scored_documents", pa.int64()),
        ("num_shared_documents", pa.int64()),
        ("num_shared_ngrams", pa.int64()),
        ("num_pool_documents_sharing", pa.int64()),
    ]
)


class OverlapParams(FactParams):
    """``order``: how many words in a row count as shared."""

    order: int


OVERLAP = FactKind("overlap", 1, OverlapParams, {"overlap": OVERLAPS})


def overlap_fact(pinned: Pinned, pool: str, corpus: str, *, order: int = 13) -> Fact:
    """Documents, and runs of ``order`` words, that a pool and a scored corpus share."""
    needs = {"pool": pinned.corpus(pool), "corpus": pinned.corpus(corpus)}
    return OVERLAP.make(OverlapParams(order=order), needs, label=f"{pool} and {corpus}", tag="control")

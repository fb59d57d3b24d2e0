"""The entropy of a checkpoint's predictions on a corpus: sums by document."""

from typing import Any

import pyarrow as pa

from stemmatics.plugin import Fact, FactKind, FactParams, Pinned, Scoring

# one row a document: nats of entropy over its scored positions, and their number
ENTROPY_SUMS = pa.schema([("index", pa.int64()), ("entropy_sum", pa.float64()), ("num_tokens", pa.int64())])


class EntropyParams(FactParams):
    """What decides the numbers besides the checkpoint and the corpus."""

    scoring: dict[str, Any]
    numerics: dict[str, Any]


ENTROPY = FactKind("entropy", 1, EntropyParams, {"entropy_sums": ENTROPY_SUMS})


def entropy_fact(pinned: Pinned, checkpoint: str, corpus: str, scoring: Scoring) -> Fact:
    """Entropy of ``checkpoint`` on ``corpus``."""
    needs = {"checkpoint": pinned.checkpoint(checkpoint), "corpus": pinned.corpus(corpus)}
    params = EntropyParams(scoring=scoring.key(), numerics=pinned.stemma.numerics.key())
    return ENTROPY.make(params, needs, label=f"{checkpoint} on {corpus}")

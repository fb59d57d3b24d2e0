"""Where the base of a blind family's descendant will be, written before that base is scored."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams

# one row a descendant of a blind family
PREDICTIONS = pa.schema(
    [
        ("checkpoint", pa.string()),
        ("value", pa.float64()),
        ("bar", pa.float64()),
        ("rule", pa.string()),
        ("num_pairs", pa.int64()),
        ("sha256", pa.string()),
    ]
)


class OriginParams(FactParams):
    """Where a checkpoint comes from, as the offsets group it."""

    family: str
    lab: str
    generation: str
    pipeline: str
    recipe_class: str


class PredictionParams(FactParams):
    """The descendant, and the origins of the calibrated pairs in the order of the needs."""

    checkpoint: str
    origin: OriginParams
    pairs: list[OriginParams]


PREDICTION = FactKind("prediction", 2, PredictionParams, {"prediction": PREDICTIONS})


def prediction_fact(
    params: PredictionParams, recovered: Fact, pairs: Sequence[tuple[Fact, Fact]], corpus: str
) -> Fact:
    """A prediction from the scores of ``recovered`` and of calibrated ``pairs`` (base, descendant)."""
    needs = {"recovered": recovered}
    for number, pair in enumerate(pairs):
        for side, fact in zip(("base", "descendant"), pair, strict=True):
            needs[f"{number:04d}.{side}"] = fact
    label = f"the base of {params.checkpoint} on {corpus}"
    return PREDICTION.make(params, needs, label=label, tag="control")

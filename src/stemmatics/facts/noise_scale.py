"""The noise on every matrix of a base that costs as much as its descendant lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams

# one row a pair; losses in nats
NOISE_SCALES = pa.schema(
    [
        ("scale", pa.float64()),
        ("base_nll_sum", pa.float64()),
        ("descendant_nll_sum", pa.float64()),
        ("noised_nll_sum", pa.float64()),
        ("num_bytes", pa.int64()),
        ("num_evaluations", pa.int64()),
        ("failure", pa.string()),
    ]
)


class NoiseScaleParams(FactParams):
    """How, and on how many documents, the loss is measured."""

    scoring: dict[str, Any]
    num_documents: int
    numerics: dict[str, Any]


NOISE_SCALE = FactKind("noise_scale", 1, NoiseScaleParams, {"noise_scale": NOISE_SCALES})


def noise_scale_fact(params: NoiseScaleParams, models: dict[str, Fact], events: Fact, corpus: Fact) -> Fact:
    """The scale for ``models`` (``base``, ``descendant``), measured on ``corpus``."""
    label = f"{models['base'].label} damaged as {models['descendant'].label}"
    return NOISE_SCALE.make(params, {**models, "events": events, "corpus": corpus}, label=label, tag="floor")

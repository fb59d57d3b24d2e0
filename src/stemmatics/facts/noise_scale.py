"""The noise on every matrix of a base that costs as much as its descendant lost."""

from __future__ import annotations

from typing import Any, ClassVar

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
    """How, and on how many documents, the loss is measured; ``draw`` numbers further draws of the noise."""

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"draw"})

    scoring: dict[str, Any]
    num_documents: int
    numerics: dict[str, Any]
    draw: int | None = None


NOISE_SCALE = FactKind("noise_scale", 1, NoiseScaleParams, {"noise_scale": NOISE_SCALES})


def noise_scale_fact(
    params: NoiseScaleParams, models: dict[str, Fact], events: Fact, corpus: Fact, first: Fact | None = None
) -> Fact:
    """The scale for ``models`` (``base``, ``descendant``), measured on ``corpus``.

    A further draw searches from the scale of the ``first``.
    """
    label = f"{models['base'].label} damaged as {models['descendant'].label}"
    if params.draw is not None:
        label += f", draw {params.draw}"
    needs = {**models, "events": events, "corpus": corpus, **({} if first is None else {"first": first})}
    return NOISE_SCALE.make(params, needs, label=label, tag="floor")

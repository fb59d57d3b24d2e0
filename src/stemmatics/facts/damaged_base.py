"""A base damaged at random by as much as a descendant lost: a checkpoint to test a claim on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.facts.prior_floor import NoiseKind
from stemmatics.facts.weights import CHECKPOINTS

# one row: the noise, and the loss increases in nats/token on EVAL of the damaged base and of the descendant.
# ``refusal``: the two can't be compared by token; ``failure``: there is no noise that costs as much.
DAMAGED_BASES = pa.schema(
    [
        ("kind", pa.string()),
        ("seed", pa.int64()),
        ("sigma", pa.float64()),
        ("loss_increase", pa.float64()),
        ("target", pa.float64()),
        ("num_evaluations", pa.int64()),
        ("refusal", pa.string()),
        ("failure", pa.string()),
    ]
)


class DamagedBaseParams(FactParams):
    """How the loss is measured (``sample`` is 1: all documents are read), and which noise is added."""

    scoring: dict[str, Any]
    numerics: dict[str, Any]
    sample: float
    kind: NoiseKind
    seed: int


DAMAGED_BASE = FactKind(
    "damaged_base",
    1,
    DamagedBaseParams,
    {"checkpoints": CHECKPOINTS, "damaged_bases": DAMAGED_BASES},
    artifact="cache",
)


def damaged_base_fact(params: DamagedBaseParams, base: Fact, descendant: Fact, corpus: Fact) -> Fact:
    """``base`` with noise on its head, matched to the loss increase of ``descendant`` on ``corpus``."""
    label = f"{base.label} damaged as {descendant.label} on {corpus.label}"
    needs = {"init": base, "descendant": descendant, "corpus": corpus}
    return DAMAGED_BASE.make(params, needs, label=label, tag="floor")

"""The same corrections on a base that was only damaged, by as much as its descendant lost."""

from __future__ import annotations

from typing import Literal, get_args

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind
from stemmatics.facts.prior import FIT_TABLES, FitParams

NoiseKind = Literal["raw", "centred"]
NOISE_KINDS: tuple[NoiseKind, ...] = get_args(NoiseKind)
RAW, CENTRED = NOISE_KINDS
# one row a damaged base: the noise on its head, and the loss increase that it was matched to
PRIOR_DAMAGE = pa.schema(
    [
        ("variant", pa.string()),
        ("kind", pa.string()),
        ("seed", pa.int64()),
        ("sigma", pa.float64()),
        ("num_evaluations", pa.int64()),
        ("failure", pa.string()),
    ]
)


class PriorFloorParams(FitParams):
    """``seeds``: damaged heads of each kind of noise."""

    seeds: int


PRIOR_FLOOR = FactKind("prior_floor", 3, PriorFloorParams, {**FIT_TABLES, "prior_damage": PRIOR_DAMAGE})


def prior_floor_fact(params: PriorFloorParams, old: Fact, new: Fact) -> Fact:
    """Damaged copies of the base of ``old``, matched to the loss increase from ``old`` to ``new``."""
    base, descendant = (fact.needs["checkpoint"].label for fact in (old, new))
    label = f"{base} damaged as {descendant} on {old.needs['corpus'].label}"
    return PRIOR_FLOOR.make(params, {**old.needs, "old": old, "new": new}, label=label, tag="floor")

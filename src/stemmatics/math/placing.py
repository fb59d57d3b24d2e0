"""The loss of a base that is not available: a descendant's recovered loss less an offset, with an error bar.

Axes: N documents, P calibrated pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.math.rates import loss_rate
from stemmatics.math.recovery import Calibration, Offset, UnknownBase, offset_for, unknown_base

LEVEL = 0.90
DISTILLED = "distilled"
ORDINARY = "ordinary"
KINDS = ("family", "lab", "generation", "pipeline", "recipe_class")


@dataclass(frozen=True)
class Origin:
    """The declared origin of a descendant.

    ``lab``, ``generation`` and ``pipeline`` that are not declared are unique to the model.
    """

    family: str
    lab: str
    generation: str
    pipeline: str
    recipe_class: str

    @classmethod
    def of(cls, name: str, family: str, declared: Mapping[str, str | None]) -> Origin:
        """From a checkpoint's lineage (``lab``, ``generation``, ``pipeline``, ``regime``)."""
        own = f"only {name}"
        lab, generation, pipeline = (declared.get(kind) or own for kind in ("lab", "generation", "pipeline"))
        recipe_class = DISTILLED if declared.get("regime") == "distill" else ORDINARY
        return cls(family, lab, generation, pipeline, recipe_class)


def calibration(residuals_P: Sequence[float], origins_P: Sequence[Mapping[str, Any] | Origin]) -> Calibration:
    """Pairs with known bases as arrays, for ``offset_for``."""
    rows = [vars(origin) if isinstance(origin, Origin) else origin for origin in origins_P]
    labels = {kind: np.array([str(row[kind]) for row in rows], dtype=np.str_) for kind in KINDS}
    return Calibration(
        residual_N=np.asarray(residuals_P, dtype=np.float64),
        family_N=labels["family"],
        lab_N=labels["lab"],
        generation_N=labels["generation"],
        pipeline_N=labels["pipeline"],
        recipe_class_N=labels["recipe_class"],
    )


def place(
    nll_sum_N: npt.ArrayLike,
    num_bytes_N: npt.ArrayLike,
    groups_N: npt.ArrayLike,
    known: Calibration,
    origin: Origin,
) -> UnknownBase:
    """The loss of the base behind a recovered model, nats/byte, with its 90% bar.

    The offset is the first that applies (``offset_for``); the document component is the jackknife-t
    half width of the recovered loss at the bar's level, so that predictions are deterministic.

    Args:
        nll_sum_N: nats by document after the fine-tune.
        num_bytes_N: UTF-8 bytes by document.
        groups_N: near-duplicates share a label.
        known: pairs under the same recipe and on the same corpus.
        origin: of the model.
    """
    loss = loss_rate(
        nll_sum_N,
        num_bytes_N,
        rng=np.random.default_rng(0),
        groups=groups_N,
        method="jackknife-t",
        level=LEVEL,
    )
    offset = offset_for(known, lab=origin.lab, generation=origin.generation, recipe_class=origin.recipe_class)
    return unknown_base(loss.value, offset, (loss.hi - loss.lo) / 2)


def other_generations(known: Calibration, origin: Origin) -> list[str]:
    """Generations of the lab's pairs if none is the model's own; such pairs are not used as offsets."""
    own = known.lab_N == origin.lab
    if (own & (known.generation_N == origin.generation)).any():
        return []
    return sorted(set(known.generation_N[own].tolist()))


def refused_generations(refused: Sequence[str]) -> str:
    """Why the lab's own pairs did not give the offset; empty where none was refused."""
    return f"the lab's pairs of {', '.join(refused)} are of another generation" if refused else ""


def offset_rule(offset: Offset, refused: Sequence[str]) -> str:
    """The rule in words, with what was refused."""
    reason = refused_generations(refused)
    return f"{offset.source} ({reason})" if reason else offset.source

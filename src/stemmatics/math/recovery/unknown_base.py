"""The loss of a base that is not available: a descendant's recovered loss less an offset, with two bars.

Axes: N documents, P calibrated pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.math.rates import loss_rate
from stemmatics.math.recovery.offsets import (
    DISTILLED,
    LEVEL,
    ORDINARY,
    OWN_PAIR,
    UNKNOWN,
    Calibration,
    Offset,
    offset_for,
)

KINDS = ("family", "lab", "generation", "pipeline", "recipe_class")
_ORDINARY_REGIMES = frozenset({"sft", "dpo", "rlvr"})


def recipe_class_of(regime: str | None) -> str:
    """The class whose pairs calibrate a regime; undeclared is unknown, other regimes stand for themselves."""
    if regime is None:
        return UNKNOWN
    if regime == "distill":
        return DISTILLED
    return ORDINARY if regime in _ORDINARY_REGIMES else regime


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
        reason = f"only {name}"
        lab, generation, pipeline = (
            declared.get(kind) or reason for kind in ("lab", "generation", "pipeline")
        )
        return cls(family, lab, generation, pipeline, recipe_class_of(declared.get("regime")))


@dataclass(frozen=True)
class BaseEstimate:
    """The estimated loss of an unknown base, nats/byte, and two bars at the offset's level.

    ``half_width``: against the base's loss on this text; the documents are the same, so it is the offset's
    error alone. ``half_width_elsewhere``: against its loss on text like this, with the documents' error too;
    NaN where nothing is known of documents.
    """

    value: float
    half_width: float
    half_width_elsewhere: float
    offset: Offset


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


def offset_of(known: Calibration, origin: Origin) -> Offset:
    """The offset of a model by its origin: the first rule that applies."""
    return offset_for(
        known,
        lab=origin.lab,
        generation=origin.generation,
        pipeline=origin.pipeline,
        recipe_class=origin.recipe_class,
    )


def base_estimate(recovered: float, offset: Offset, document_half_width: float = math.nan) -> BaseEstimate:
    """Recovered loss less the offset; documents are added in quadrature for text elsewhere.

    ``document_half_width`` is that of the recovered loss's interval at the offset's level (90%).
    """
    elsewhere = math.hypot(offset.bar, document_half_width)
    return BaseEstimate(recovered - offset.value, offset.bar, elsewhere, offset)


def estimate_base(
    nll_sum_N: npt.ArrayLike,
    num_bytes_N: npt.ArrayLike,
    groups_N: npt.ArrayLike,
    known: Calibration,
    origin: Origin,
) -> BaseEstimate:
    """The loss of the base behind a recovered model, nats/byte, with its 90% bars.

    The document component is the jackknife-t half width of the recovered loss at the bars' level, so that
    predictions are deterministic.

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
    return base_estimate(loss.value, offset_of(known, origin), (loss.hi - loss.lo) / 2)


def other_generations(known: Calibration, origin: Origin) -> list[str]:
    """Generations of the lab's pairs if none is the model's own; their small spread does not carry over."""
    reason = known.lab_N == origin.lab
    if (reason & (known.generation_N == origin.generation)).any():
        return []
    return sorted(set(known.generation_N[reason].tolist()))


def refused_generations(refused: Sequence[str]) -> str:
    """Why the lab's own pairs did not give the offset; empty where none was refused."""
    return f"the lab's pairs of {', '.join(refused)} are of another generation" if refused else ""


def not_used(known: Calibration, origin: Origin, offset: Offset) -> str:
    """Why the lab's own pairs did not give the offset; empty where they did or there is none."""
    if offset.source == OWN_PAIR:
        return ""
    if origin.recipe_class == UNKNOWN:
        return "no regime is declared, so no class applies" if (known.lab_N == origin.lab).any() else ""
    return refused_generations(other_generations(known, origin))


def offset_rule(offset: Offset, reason: str = "") -> str:
    """The rule in words, with why the lab's own pairs were not used."""
    return f"{offset.source} ({reason})" if reason else offset.source

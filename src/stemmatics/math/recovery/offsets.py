"""Loss of a base that is not available: a descendant's recovered loss less an offset, with an error bar.

Axes: N calibrated pairs (base and descendant both measured under one recipe), F families.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.recovery.pairs import FloatArray, Labels
from stemmatics.math.recovery.resolution import left_out_errors
from stemmatics.math.scipy_modules import stats
from stemmatics.math.seeds import family_means

LEVEL = 0.90
FEWEST_PAIRS = 9
"""With fewer, the ceil((n + 1) * 0.9)-th smallest of n errors does not exist."""
FEWEST_FAMILIES = 3
PUBLISHED_RESIDUALS = {"ordinary": (0.0005, 0.03), "distilled": (0.03, 0.06)}
"""Published ranges of residuals, nats/byte: ordinary SFT and instruct releases, and distilled ones."""
PUBLISHED_HALF_WIDTHS = {"re-based": 0.001, "one pipeline": 0.001, "ordinary": 0.01, "distilled": 0.03}
"""Published half widths, nats/byte: two re-based bases, two releases of one pipeline, and
descendants of different labs whose base is unknown."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Residuals of pairs whose base is known, nats/byte, all under one recipe and on one corpus.

    ``recipe_class_N`` is ``ordinary`` or ``distilled`` (or other classes that the user defines);
    ``generation_N`` names the base generation; a pipeline is a lab's way from base to release.
    """

    residual_N: FloatArray
    family_N: Labels
    lab_N: Labels
    generation_N: Labels
    pipeline_N: Labels
    recipe_class_N: Labels

    def __post_init__(self) -> None:
        sizes = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(sizes) > 1:
            raise UserError(
                f"calibration columns of {sorted(sizes)} rows",
                "a pair has one value in each",
                "match them by pair",
            )

    def where(self, keep_N: npt.NDArray[np.bool_]) -> Calibration:
        """The rows that are kept."""
        return Calibration(*(getattr(self, name)[keep_N] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Offset:
    """What to subtract from a recovered loss, and the half width of its 90% interval, nats/byte.

    ``source`` says which rule applied: ``own pair``, ``class``, ``all pipelines`` or ``published default``.
    """

    value: float
    bar: float
    source: str
    num_pairs: int
    num_families: int
    level: float = LEVEL
    note: str = ""


def conformal_bar(errors_N: npt.ArrayLike, level: float = LEVEL) -> float:
    """The ceil((n + 1) * level)-th smallest absolute error; NaN where n is too small to have it."""
    sizes_N = np.sort(np.abs(np.asarray(errors_N, dtype=np.float64)))
    # rounding must not lift a product such as 10 * 0.9 above its integer
    rank = math.ceil((sizes_N.size + 1) * level - 1e-9)
    return float(sizes_N[rank - 1]) if 1 <= rank <= sizes_N.size else math.nan


def class_offset(residual_N: FloatArray, family_N: Labels) -> Offset:
    """Mean over families of their mean residual; the bar from leave-one-family-out errors.

    The bar is NaN with fewer than 9 pairs or 3 families.
    """
    num_families = int(np.unique(family_N).size)
    if residual_N.size == 0:
        return Offset(math.nan, math.nan, "class", 0, 0, note="no pair")
    value = float(family_means(residual_N, family_N).mean())
    bar, note = math.nan, f"under {FEWEST_PAIRS} pairs or {FEWEST_FAMILIES} families"
    if residual_N.size >= FEWEST_PAIRS and num_families >= FEWEST_FAMILIES:
        errors_1N = left_out_errors(residual_N, family_N, np.ones((1, residual_N.size)))
        bar, note = conformal_bar(errors_1N[0]), ""
    return Offset(value, bar, "class", residual_N.size, num_families, note=note)


def pipeline_spread(residual_N: FloatArray, pipeline_N: Labels) -> tuple[float, int]:
    """Standard deviation of residuals within a pipeline, pooled, and its degrees of freedom.

    Over pipelines with two or more releases; NaN and 0 where there is none.
    """
    squares, degrees = 0.0, 0
    for pipeline in np.unique(pipeline_N):
        own = residual_N[pipeline_N == pipeline]
        if own.size >= 2:
            squares += float(((own - own.mean()) ** 2).sum())
            degrees += own.size - 1
    return (math.sqrt(squares / degrees), degrees) if degrees else (math.nan, 0)


def own_pair_offset(known: Calibration, lab: str, generation: str, level: float = LEVEL) -> Offset | None:
    """From the lab's own calibrated pairs of the same base generation; None where it has none.

    The bar is that of a new release of the pipeline: t quantile times the pooled spread times
    sqrt(1 + 1 / number of own pairs). NaN where no pipeline has two releases.
    """
    own = (known.lab_N == lab) & (known.generation_N == generation)
    if not own.any():
        return None
    spread, degrees = pipeline_spread(known.residual_N, known.pipeline_N)
    num_own = int(own.sum())
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) if degrees else math.nan
    note = "" if degrees else "no pipeline has two releases, so the spread is unknown"
    return Offset(
        float(known.residual_N[own].mean()),
        reach * spread * math.sqrt(1 + 1 / num_own),
        "own pair",
        num_own,
        int(np.unique(known.family_N[own]).size),
        level,
        note,
    )


def published_offset(recipe_class: str) -> Offset:
    """The middle and half width of the published range; marked as a default, not measured here.

    A class that is not known to be ordinary may be distilled, so it takes the whole range.
    """
    lows, highs = zip(*PUBLISHED_RESIDUALS.values(), strict=True)
    lo, hi = PUBLISHED_RESIDUALS.get(recipe_class, (min(lows), max(highs)))
    note = "published default, not measured in this run"
    return Offset((lo + hi) / 2, (hi - lo) / 2, "published default", 0, 0, note=note)


def offset_for(known: Calibration, *, lab: str, generation: str, recipe_class: str) -> Offset:
    """The first of: the lab's own pair of this generation, the recipe class, all pipelines, the default."""
    own = own_pair_offset(known, lab, generation)
    if own is not None and math.isfinite(own.bar):
        return own
    of_class = known.where(known.recipe_class_N == recipe_class)
    offset = class_offset(of_class.residual_N, of_class.family_N)
    if math.isfinite(offset.bar):
        return offset
    pooled = class_offset(known.residual_N, known.family_N)
    # a pool without distilled models says nothing about them
    if math.isfinite(pooled.bar) and (recipe_class != "distilled" or len(of_class.residual_N)):
        return Offset(pooled.value, pooled.bar, "all pipelines", pooled.num_pairs, pooled.num_families)
    return published_offset(recipe_class)


@dataclass(frozen=True)
class UnknownBase:
    """Estimate of a base's matched loss from a descendant: value and 90% bar, nats/byte."""

    value: float
    bar: float
    offset: Offset


def unknown_base(recovered: float, offset: Offset, document_half_width: float) -> UnknownBase:
    """Recovered loss less the offset; the bar adds the document component in quadrature.

    ``document_half_width`` is that of the recovered loss's interval at the bar's level (90%).
    """
    return UnknownBase(recovered - offset.value, math.hypot(offset.bar, document_half_width), offset)


@dataclass(frozen=True, eq=False)
class NestedCoverage:
    """How often the bar from the other families covers a family's residuals.

    ``error_N`` and ``bar_N`` are NaN for pairs whose left-out class is too small; those are not counted.
    """

    covered: float
    num_pairs: int
    error_N: FloatArray
    bar_N: FloatArray


def nested_coverage(residual_N: FloatArray, family_N: Labels) -> NestedCoverage:
    """Offset and bar for each family from the others alone, bar included."""
    error_N, bar_N = np.full(residual_N.size, np.nan), np.full(residual_N.size, np.nan)
    for family in np.unique(family_N):
        out = family_N == family
        offset = class_offset(residual_N[~out], family_N[~out])
        if math.isfinite(offset.bar):
            error_N[out] = residual_N[out] - offset.value
            bar_N[out] = offset.bar
    known = np.isfinite(bar_N)
    covered = float((np.abs(error_N) <= bar_N)[known].mean()) if known.any() else math.nan
    return NestedCoverage(covered, int(known.sum()), error_N, bar_N)


@dataclass(frozen=True)
class DistillationFlag:
    """A threshold on the drop: above it a release is flagged as distilled.

    Sensitivity and specificity are of left-out families; NaN where a class is missing.
    """

    threshold: float
    sensitivity: float
    specificity: float
    num_distilled: int
    num_other: int


def _best_threshold(drop_N: FloatArray, distilled_N: npt.NDArray[np.bool_]) -> float:
    """Midpoint between drops with the largest sensitivity + specificity; the lowest such point."""
    values = np.unique(drop_N)
    middles = (values[:-1] + values[1:]) / 2
    if not middles.size or distilled_N.all() or not distilled_N.any():
        return math.nan
    scores = [(drop_N[distilled_N] > m).mean() + (drop_N[~distilled_N] <= m).mean() for m in middles]
    return float(middles[int(np.argmax(scores))])


def distillation_flag(
    drop_N: FloatArray, distilled: Sequence[bool] | npt.NDArray[np.bool_], family_N: Labels
) -> DistillationFlag:
    """Fit the threshold on all known pairs; evaluate it by leaving out each family in turn."""
    distilled_N = np.asarray(distilled, dtype=np.bool_)
    flagged_N = np.full(drop_N.size, np.nan)
    for family in np.unique(family_N):
        out = family_N == family
        threshold = _best_threshold(drop_N[~out], distilled_N[~out])
        if math.isfinite(threshold):
            flagged_N[out] = drop_N[out] > threshold

    def share(of: npt.NDArray[np.bool_], flag: float) -> float:
        judged = of & np.isfinite(flagged_N)
        return float((flagged_N[judged] == flag).mean()) if judged.any() else math.nan

    return DistillationFlag(
        _best_threshold(drop_N, distilled_N),
        share(distilled_N, 1.0),
        share(~distilled_N, 0.0),
        int(distilled_N.sum()),
        int((~distilled_N).sum()),
    )

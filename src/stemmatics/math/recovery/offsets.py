"""Offsets: what to subtract from a recovered loss to estimate that of its base, with an error bar.

Axes: N calibrated pairs (base and descendant both measured under one recipe), F families.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.recovery.pairs import FloatArray, Labels
from stemmatics.math.recovery.resolution import left_out_errors
from stemmatics.math.scipy_modules import stats
from stemmatics.math.seeds import family_means

LEVEL = 0.90
FEWEST_FAMILIES = 9
"""With fewer, the weights of all left-out errors together stay under 0.9."""
DISTILLED, ORDINARY, UNKNOWN = "distilled", "ordinary", "unknown"
OWN_PAIR, LAB_AND_CLASS, CLASS, ALL_PIPELINES = "own pair", "lab and class", "class", "all pipelines"
PUBLISHED, RANGE_SEEN = "published default", "range seen"
FLAGGED, NOT_FLAGGED, UNDETERMINED = "flagged", "not flagged", "undetermined"
MEASURED_RULES = (OWN_PAIR, LAB_AND_CLASS, CLASS, ALL_PIPELINES)
"""Rules whose bar is measured on these pairs; the other two are no 90% bars of these pairs."""
PUBLISHED_RESIDUALS = {ORDINARY: (0.0005, 0.03), DISTILLED: (0.03, 0.06)}
"""Published ranges of residuals, nats/byte: ordinary SFT and instruct releases, and distilled ones."""
PUBLISHED_HALF_WIDTHS = {"re-based": 0.001, "one pipeline": 0.001, ORDINARY: 0.01, DISTILLED: 0.03}
"""Published half widths, nats/byte: two re-based bases, two releases of one pipeline, and
descendants of different labs whose base is unknown."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Residuals of pairs whose base is known, nats/byte, all under one recipe and on one corpus.

    ``recipe_class_N`` is ``ordinary``, ``distilled``, ``unknown`` or another regime by its own name;
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

    ``source`` is the rule that applied: ``own pair``, ``lab and class``, ``class``, ``all pipelines``,
    ``published default`` or ``range seen``.
    """

    value: float
    bar: float
    source: str
    num_pairs: int
    num_families: int
    level: float = LEVEL
    note: str = ""


def weighted_bar(errors_N: npt.ArrayLike, family_N: npt.ArrayLike, level: float = LEVEL) -> float:
    """The smallest absolute error at which the weights of all errors up to it reach ``level``.

    A pair of family f weighs 1 / (n_f (F + 1)), n_f being its family's pairs and F the families. The pairs of
    a family are not exchangeable with those of others; families are. It covers a random pair of a new
    family, not all of its pairs together. NaN where the weights do not reach the level: under nine families
    at 90%, and at nine it is the largest error.
    """
    sizes_N, families_N = np.abs(np.asarray(errors_N, dtype=np.float64)), np.asarray(family_N)
    if not sizes_N.size:
        return math.nan
    names_F, where_N, count_F = np.unique(families_N, return_inverse=True, return_counts=True)
    weight_N = 1 / (count_F[where_N] * (names_F.size + 1))
    order = np.argsort(sizes_N, kind="stable")
    # rounding must not keep nine tenths, added up, below 0.9
    reached = np.cumsum(weight_N[order]) >= level - 1e-9
    return float(sizes_N[order][int(np.argmax(reached))]) if reached.any() else math.nan


def class_offset(residual_N: FloatArray, family_N: Labels, source: str = CLASS) -> Offset:
    """Mean over families of their mean residual; the weighted bar of leave-one-family-out errors.

    The bar is NaN under nine families.
    """
    num_families = int(np.unique(family_N).size)
    if residual_N.size == 0:
        return Offset(math.nan, math.nan, source, 0, 0, note="no pair")
    value = float(family_means(residual_N, family_N).mean())
    bar, note = math.nan, f"under {FEWEST_FAMILIES} families"
    if num_families >= FEWEST_FAMILIES:
        errors_1N = left_out_errors(residual_N, family_N, np.ones((1, residual_N.size)))
        bar, note = weighted_bar(errors_1N[0], family_N), ""
    return Offset(value, bar, source, residual_N.size, num_families, note=note)


def pipeline_spread(known: Calibration) -> tuple[float, int]:
    """Standard deviation of residuals within a pipeline, pooled, and its degrees of freedom.

    Over pipelines of one lab, base generation and class with two or more releases; NaN and 0 where there is
    none.
    """
    labels_N4 = np.stack([known.lab_N, known.generation_N, known.pipeline_N, known.recipe_class_N], axis=1)
    squares, degrees = 0.0, 0
    if len(labels_N4):
        _, where_N = np.unique(labels_N4, axis=0, return_inverse=True)
        for pipeline in np.unique(where_N):
            inside = known.residual_N[where_N == pipeline]
            squares += float(((inside - inside.mean()) ** 2).sum())
            degrees += inside.size - 1
    return (math.sqrt(squares / degrees), degrees) if degrees else (math.nan, 0)


def own_pair_offset(
    known: Calibration, *, lab: str, generation: str, pipeline: str, recipe_class: str, level: float = LEVEL
) -> Offset | None:
    """From calibrated pairs of the same lab, base generation, pipeline and class; None where there is none.

    The bar is that of a new release of the pipeline: t quantile times the pooled spread times
    sqrt(1 + 1 / number of own pairs). NaN where no pipeline has two releases.
    """
    inside = (known.lab_N == lab) & (known.generation_N == generation)
    inside &= (known.pipeline_N == pipeline) & (known.recipe_class_N == recipe_class)
    if not inside.any():
        return None
    spread, degrees = pipeline_spread(known)
    num_inside = int(inside.sum())
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) if degrees else math.nan
    note = "" if degrees else "no pipeline has two releases, so the spread is unknown"
    return Offset(
        float(known.residual_N[inside].mean()),
        reach * spread * math.sqrt(1 + 1 / num_inside),
        OWN_PAIR,
        num_inside,
        int(np.unique(known.family_N[inside]).size),
        level,
        note,
    )


def default_offset(recipe_class: str, seen_N: npt.ArrayLike = ()) -> Offset:
    """The middle and half width of a range: no 90% bar, and named so.

    Of ordinary and distilled releases the published range; where residuals that were seen lie outside it, the
    note says so. An unknown class may be distilled, so it takes both ranges. Of a class of which nothing was
    published it is the range seen, together with both, or these alone where nothing was seen.
    """
    lows, highs = zip(*PUBLISHED_RESIDUALS.values(), strict=True)
    lo, hi = PUBLISHED_RESIDUALS.get(recipe_class, (min(lows), max(highs)))
    seen = np.asarray(seen_N, dtype=np.float64)
    outside = bool(seen.size) and (seen.min() < lo or seen.max() > hi)
    source, note = PUBLISHED, "published default, not measured on these pairs"
    if recipe_class not in {*PUBLISHED_RESIDUALS, UNKNOWN} and seen.size:
        lo, hi = min(lo, float(seen.min())), max(hi, float(seen.max()))
        source, note = RANGE_SEEN, "range seen, with the published ones; no bar of a known level"
    elif outside:
        note += "; residuals of these pairs lie outside it"
    num_pairs = seen.size if source == RANGE_SEEN else 0
    return Offset((lo + hi) / 2, (hi - lo) / 2, source, num_pairs, 0, note=note)


def offset_for(known: Calibration, *, lab: str, generation: str, pipeline: str, recipe_class: str) -> Offset:
    """The first rule that applies, that is whose bar is known; never across classes.

    The calibrated pairs of the same lab, base generation and pipeline; the same lab's pairs of the class;
    the class; else the published default or the range seen. A release of unknown class gets the widest: all
    pipelines if distilled ones are among them, with a bar no smaller than that of any class, or the default.
    """
    if recipe_class == UNKNOWN:
        return _unknown_class(known)
    inside = own_pair_offset(
        known, lab=lab, generation=generation, pipeline=pipeline, recipe_class=recipe_class
    )
    if inside is not None and math.isfinite(inside.bar):
        return inside
    of_class = known.where(known.recipe_class_N == recipe_class)
    of_lab = of_class.where(of_class.lab_N == lab)
    for source, pairs in ((LAB_AND_CLASS, of_lab), (CLASS, of_class)):
        offset = class_offset(pairs.residual_N, pairs.family_N, source)
        if math.isfinite(offset.bar):
            return offset
    return default_offset(recipe_class, of_class.residual_N)


def _unknown_class(known: Calibration) -> Offset:
    pooled = class_offset(known.residual_N, known.family_N, ALL_PIPELINES)
    # a pool without distilled models says nothing about them
    if not math.isfinite(pooled.bar) or not (known.recipe_class_N == DISTILLED).any():
        return default_offset(UNKNOWN, known.residual_N)
    bars = [pooled.bar]
    for recipe_class in np.unique(known.recipe_class_N):
        of_class = known.where(known.recipe_class_N == recipe_class)
        bar = class_offset(of_class.residual_N, of_class.family_N).bar
        bars += [bar] if math.isfinite(bar) else []
    return replace(pooled, bar=max(bars))


@dataclass(frozen=True, eq=False)
class NestedCoverage:
    """Each pair's residual less the offset that the rule gives without its family, with bar and rule, [N]."""

    error_N: FloatArray
    bar_N: FloatArray
    source_N: npt.NDArray[np.str_]

    @property
    def is_covered(self) -> npt.NDArray[np.bool_]:
        """Whether the bar covers the error, [N]."""
        return np.asarray(np.abs(self.error_N) <= self.bar_N)


def nested_coverage(known: Calibration) -> NestedCoverage:
    """Offset and bar of each pair by the rule that is applied, from the other families alone."""
    num_pairs = known.residual_N.size
    error_N, bar_N = np.full(num_pairs, np.nan), np.full(num_pairs, np.nan)
    sources = [""] * num_pairs
    for family in np.unique(known.family_N):
        others = known.where(known.family_N != family)
        for row in np.flatnonzero(known.family_N == family):
            offset = offset_for(
                others,
                lab=str(known.lab_N[row]),
                generation=str(known.generation_N[row]),
                pipeline=str(known.pipeline_N[row]),
                recipe_class=str(known.recipe_class_N[row]),
            )
            error_N[row], bar_N[row] = known.residual_N[row] - offset.value, offset.bar
            sources[row] = offset.source
    return NestedCoverage(error_N, bar_N, np.array(sources, dtype=np.str_))


def coverage_by_family(
    covered_N: npt.NDArray[np.bool_], family_N: Labels, *, level: float = 0.95
) -> Interval:
    """Share of a random pair of a random family that its bar covers, with Wilson's limits by family.

    The mean over families of each family's share; families count as the trials, so that many pairs of one
    family are no more evidence than one.
    """
    if not covered_N.size:
        return unknown(math.nan, level=level, n=0, unit="family", note="no pair")
    names_F, where_N, count_F = np.unique(family_N, return_inverse=True, return_counts=True)
    share = float((covered_N / count_F[where_N]).sum() / names_F.size)
    z, n = float(stats.norm.ppf((1 + level) / 2)), names_F.size
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(
        share, max(0.0, middle - half), min(1.0, middle + half), level, "Wilson", n, "family",
        math.nan, half / z,
    )  # fmt: skip


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

    @property
    def is_tried(self) -> bool:
        """Whether the threshold was tried on left-out releases of both kinds."""
        return math.isfinite(self.threshold + self.sensitivity + self.specificity)

    def says(self, lo: float, hi: float) -> str:
        """``flagged`` or ``not flagged`` where the drop's whole interval is there, else ``undetermined``."""
        if not self.is_tried:
            return UNDETERMINED
        if lo > self.threshold:
            return FLAGGED
        return NOT_FLAGGED if hi < self.threshold else UNDETERMINED


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

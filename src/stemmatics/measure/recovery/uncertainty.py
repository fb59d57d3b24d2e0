"""How sure is a comparison? A half width for each kind of comparison, from this run or as published.

All are 95% half widths of a *difference* of two numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stemmatics.core.results import Result
from stemmatics.math.intervals import Interval
from stemmatics.math.ranks import spearman
from stemmatics.math.rates import loss_rates
from stemmatics.math.recovery import (
    DISTILLED,
    FEWEST_FAMILIES,
    ORDINARY,
    PUBLISHED_HALF_WIDTHS,
    Calibration,
    pipeline_spread,
)
from stemmatics.math.run_noise import run_component, with_runs
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import Arms, PairNames
from stemmatics.measure.recovery.pairs import PairDifferences, run_noise
from stemmatics.measure.recovery.settings import NAME

MEASURED, PUBLISHED = "this run", "published default"
# the kinds of comparison, as the subject ``comparison`` of a result has them
TWO_BASES = "two-bases"
ONE_PIPELINE = "one-pipeline"
OWN_BASE = "own-base"
OTHER_LABS = "other-labs"
OTHER_LABS_DISTILLED = "other-labs-distilled"
ANOTHER_CORPUS = "another-corpus"
# Half widths that others found, nats/byte, for a run that cannot measure its own.
PUBLISHED_WIDTHS = {
    TWO_BASES: PUBLISHED_HALF_WIDTHS["re-based"],
    ONE_PIPELINE: PUBLISHED_HALF_WIDTHS["one pipeline"],
    OWN_BASE: math.nan,
    OTHER_LABS: PUBLISHED_HALF_WIDTHS["ordinary"],
    OTHER_LABS_DISTILLED: PUBLISHED_HALF_WIDTHS["distilled"],
}
MISSING = {
    TWO_BASES: "the run has no two bases",
    ONE_PIPELINE: "no pipeline has two releases",
    OWN_BASE: "the run has no pair",
    OTHER_LABS: "too few families with ordinary releases",
    OTHER_LABS_DISTILLED: "too few families with distilled releases",
    ANOTHER_CORPUS: "the run has one corpus",
}
# Spearman's rho between the orders on prose and on code, as published.
PUBLISHED_AGREEMENT = 0.70
LEVEL = 0.95
_DEFAULT_NOTE = "published default, not measured in this run"


@dataclass(frozen=True)
class HalfWidth:
    """Half of an interval, nats/byte, from ``num`` comparisons; NaN where the run cannot give it."""

    value: float
    num: int


def uncertainty_results(
    arms: Arms,
    losses: Losses,
    pairs: Mapping[PairNames, PairDifferences],
    known: Calibration,
    rng: np.random.Generator,
) -> list[Result]:
    """The half width of each kind of comparison, and whether it is of this run or a published default."""
    residuals = [pair.residual for pair in pairs.values()]
    measured = {
        TWO_BASES: _median(_two_bases(arms, losses, rng)),
        ONE_PIPELINE: _two_releases(known),
        OWN_BASE: _median([(residual.hi - residual.lo) / 2 for residual in residuals]),
        OTHER_LABS: _other_labs(known, [ORDINARY]),
        OTHER_LABS_DISTILLED: _other_labs(known, [ORDINARY, DISTILLED]),
    }
    results: list[Result] = []
    for comparison, width in measured.items():
        here = math.isfinite(width.value)
        build = losses.results().with_facts().about(comparison=comparison)
        value = width.value if here else PUBLISHED_WIDTHS[comparison]
        note = "" if here else _DEFAULT_NOTE
        unknown = math.nan
        interval = Interval(
            value, unknown, unknown, LEVEL, "exact", width.num, "comparison", unknown, unknown, note
        )
        results += [build.interval("uncertainty", interval), _source(build, comparison, here=here)]
    return results


def another_corpus(all_losses: Sequence[Losses]) -> list[Result]:
    """Agreement of the re-based orders on the first two corpora; the published one without a second."""
    if not all_losses:
        return []
    here = len(all_losses) > 1
    value, shared = PUBLISHED_AGREEMENT, []
    if here:
        first, second = all_losses[:2]
        shared = [name for name in first.names if name in second.arms]
        orders = [[losses.rebased_loss(name) for name in shared] for losses in (first, second)]
        value = spearman(*orders)
    build = ResultBuilder(NAME, {"corpus": all_losses[0].corpus}, units="rank correlation", unit="model")
    note = "" if here else _DEFAULT_NOTE
    return [
        build.number("uncertainty.corpus", value, n=len(shared), note=note),
        _source(build.about(comparison=ANOTHER_CORPUS), ANOTHER_CORPUS, here=here),
    ]


def _source(build: ResultBuilder, comparison: str, *, here: bool) -> Result:
    if here:
        return build.category("uncertainty.source", MEASURED)
    return build.category("uncertainty.source", PUBLISHED, MISSING[comparison])


def _median(values: Sequence[float]) -> HalfWidth:
    finite = [value for value in values if math.isfinite(value)]
    return HalfWidth(float(np.median(finite)) if finite else math.nan, len(values))


def _two_bases(arms: Arms, losses: Losses, rng: np.random.Generator) -> list[float]:
    """Half width of the difference of every two bases, documents and runs together."""
    bases = [name for name in losses.names if arms.is_base(name)]
    pairs = list(itertools.combinations(bases, 2))
    if not pairs:
        return []
    columns = [losses.arms[second].rebased - losses.arms[first].rebased for first, second in pairs]
    scores = losses.scores
    gaps = loss_rates(np.stack(columns, axis=1), scores.num_bytes_N, rng=rng, groups=scores.group_N)
    noise = run_noise(losses)
    half_widths = []
    for pair, gap in zip(pairs, gaps, strict=True):
        both = with_runs(gap, run_component(noise, [losses.arms[name].num_runs for name in pair]))
        interval = gap if math.isnan(both.lo) else both
        half_widths.append((interval.hi - interval.lo) / 2)
    return half_widths


def _two_releases(known: Calibration) -> HalfWidth:
    """The t quantile times the spread within a pipeline times the square root of two.

    A difference of two releases has twice the variance of one. The number is that of degrees of freedom.
    """
    spread, degrees = pipeline_spread(known)
    if not degrees:
        return HalfWidth(math.nan, 0)
    return HalfWidth(float(stats.t.ppf((1 + LEVEL) / 2, degrees)) * spread * math.sqrt(2), degrees)


def _other_labs(known: Calibration, classes: Sequence[str]) -> HalfWidth:
    """95th percentile of the difference of two residuals of other families and labs, of these classes.

    NaN where a class has under nine families. The number is that of pairs of descendants.
    """
    for recipe_class in classes:
        if np.unique(known.family_N[known.recipe_class_N == recipe_class]).size < FEWEST_FAMILIES:
            return HalfWidth(math.nan, 0)
    in_class = known.where(np.isin(known.recipe_class_N, classes))
    first, second = np.triu_indices(in_class.residual_N.size, k=1)
    apart = (in_class.family_N[first] != in_class.family_N[second]) & (
        in_class.lab_N[first] != in_class.lab_N[second]
    )
    # where one may be distilled, two ordinary ones say nothing
    distilled = in_class.recipe_class_N == DISTILLED
    apart &= distilled[first] | distilled[second] if DISTILLED in classes else True
    errors = np.abs(in_class.residual_N[first] - in_class.residual_N[second])[apart]
    if not errors.size:
        return HalfWidth(math.nan, 0)
    return HalfWidth(float(np.quantile(errors, LEVEL)), errors.size)

"""How sure is a comparison? One row a kind of comparison, from this run's data or a published default."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.ranks import spearman
from stemmatics.math.rates import loss_rates
from stemmatics.math.recovery import PUBLISHED_HALF_WIDTHS, Calibration, class_offset, pipeline_spread
from stemmatics.math.run_noise import run_component, with_runs
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import NAME, Arms
from stemmatics.measure.recovery.pairs import Pair, PairFound, noise_of

UNITS = "nats/byte"
MEASURED, DEFAULT = "this run", "published default"
# Half widths that others found, in nats/byte, where a run can't tell its own.
PUBLISHED = {
    "two bases, re-based": PUBLISHED_HALF_WIDTHS["re-based"],
    "two releases of one pipeline": PUBLISHED_HALF_WIDTHS["one pipeline"],
    "a descendant and its own base": math.nan,
    "descendants of different labs, base unknown": PUBLISHED_HALF_WIDTHS["ordinary"],
    "the same, one possibly distilled": PUBLISHED_HALF_WIDTHS["distilled"],
}
ANOTHER_CORPUS = "another corpus"
# Spearman's rho between the orders on prose and on code, as published.
PUBLISHED_AGREEMENT = 0.70


def uncertainty(
    arms: Arms,
    losses: Losses,
    found: Mapping[Pair, PairFound],
    known: Calibration,
    rng: np.random.Generator,
) -> list[Estimate]:
    """Half widths of the intervals, a row a kind; the subject says where each comes from."""
    bases = _two_bases(arms, losses, rng)
    measured = {
        "two bases, re-based": _median(bases),
        "two releases of one pipeline": _two_releases(known),
        "a descendant and its own base": _median([_half(one) for one in found.values()]),
        "descendants of different labs, base unknown": _bar(known, "ordinary"),
        "the same, one possibly distilled": _bar(known, "distilled"),
    }
    counts = {
        "two bases, re-based": len(bases),
        "two releases of one pipeline": len(known.residual_N),
        "a descendant and its own base": len(found),
    }
    rows = []
    for kind, (value, level) in measured.items():
        here = math.isfinite(value)
        rows.append(
            Estimate(
                measure=NAME,
                quantity="recovery.uncertainty",
                subject={"corpus": losses.corpus, "kind": kind, "from": MEASURED if here else DEFAULT},
                value=value if here else PUBLISHED[kind],
                level=level,
                n=counts.get(kind, len(known.residual_N)),
                unit="comparison",
                units=UNITS,
                note="" if here else "published default, not measured in this run",
            )
        )
    return rows


def another_corpus(all_losses: Sequence[Losses]) -> list[Estimate]:
    """Agreement of the re-based orders on the first two corpora; the published one without a second."""
    value, where = PUBLISHED_AGREEMENT, DEFAULT
    shared: list[str] = []
    if len(all_losses) > 1:
        first, second = all_losses[:2]
        shared = [name for name in first.names if name in second.arms]
        orders = [[one.loss(one.arms[name].rebased) for name in shared] for one in (first, second)]
        value, where = spearman(*orders), MEASURED
    return [
        Estimate(
            measure=NAME,
            quantity="recovery.uncertainty.corpus",
            subject={"corpus": all_losses[0].corpus, "kind": ANOTHER_CORPUS, "from": where},
            value=value,
            n=len(shared),
            unit="model",
            units="rank correlation",
            note="" if where == MEASURED else "published default, not measured in this run",
        )
    ]


def _half(found: PairFound) -> float:
    interval = found.residual if math.isnan(found.whole.lo) else found.whole
    return (interval.hi - interval.lo) / 2


def _median(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)]
    return (float(np.median(known)) if known else math.nan), 0.95


def _two_bases(arms: Arms, losses: Losses, rng: np.random.Generator) -> list[float]:
    """Half width of the difference of every two bases, documents and runs together."""
    bases = [name for name in losses.names if arms.is_base(name)]
    pairs = list(itertools.combinations(bases, 2))
    if not pairs:
        return []
    columns = [losses.arms[second].rebased - losses.arms[first].rebased for first, second in pairs]
    scores = losses.scores
    gaps = loss_rates(np.stack(columns, axis=1), scores.num_bytes_N, rng=rng, groups=scores.group_N)
    noise = noise_of(losses)
    halves = []
    for pair, gap in zip(pairs, gaps, strict=True):
        whole = with_runs(gap, run_component(noise, [losses.arms[name].num_runs for name in pair]))
        known = gap if math.isnan(whole.lo) else whole
        halves.append((known.hi - known.lo) / 2)
    return halves


def _two_releases(known: Calibration) -> tuple[float, float]:
    """The t quantile times the spread within a pipeline times the square root of two."""
    spread, degrees = pipeline_spread(known.residual_N, known.pipeline_N)
    if not degrees:
        return math.nan, 0.95
    return float(stats.t.ppf(0.975, degrees)) * spread * math.sqrt(2), 0.95


def _bar(known: Calibration, recipe_class: str) -> tuple[float, float]:
    own = known.where(known.recipe_class_N == recipe_class)
    return class_offset(own.residual_N, own.family_N).bar, 0.90

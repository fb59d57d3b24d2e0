"""Few seeds, few families: sign-flip tests, seed and prompt components, family means and family resampling.

Axes: N values, S seeds, Q prompts, F families, B sign assignments, M models in a resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import (
    Interval,
    combine_independent,
    percentile_interval,
    t_interval,
    unknown,
)
from stemmatics.math.rates import NUM_RESAMPLES, mean_interval
from stemmatics.math.sums import FloatArray, sum_by_label

MOST_FOR_EXACT = 20
"""2^20 sign assignments take about a second; use the Monte Carlo test beyond that."""
FEW_FAMILIES = 8
FAMILY_BOOTSTRAP = "family percentile bootstrap"
TIE = 1e-12
CHUNK_ELEMENTS = 1 << 20

FamilyStatistic = Callable[[npt.NDArray[np.int64], npt.NDArray[np.generic]], float]


@dataclass(frozen=True)
class SignFlip:
    """A two-sided sign-flip test of "symmetric about 0".

    ``smallest_p`` is the smallest p-value that n values can reach: 0.25 at 3 seeds, 0.0078 at 8.
    """

    value: float
    p_value: float
    smallest_p: float
    n: int
    num_flips: int
    exact: bool


def sign_flip_exact(values_N: npt.ArrayLike) -> SignFlip:
    """All 2^n sign assignments (Fisher 1935): the share whose mean is at least as far from 0.

    For the differences of up to 20 seeds. Means equal up to rounding count as equal. NaN without values.
    """
    x_N = np.asarray(values_N, dtype=np.float64)
    n = x_N.size
    if n > MOST_FOR_EXACT:
        raise UserError(
            f"{n} values are too many for the exact sign-flip test",
            f"it enumerates all 2^{n} sign assignments",
            "use sign_flip_monte_carlo",
        )
    if n == 0 or np.isnan(x_N).any():
        return SignFlip(math.nan, math.nan, math.nan, n, 0, exact=True)
    sums_B = np.zeros(1)
    for x in x_N:
        sums_B = np.concatenate([sums_B + x, sums_B - x])
    reached = np.abs(sums_B) >= abs(x_N.sum()) - TIE * np.abs(x_N).sum()
    return SignFlip(float(x_N.mean()), float(reached.mean()), 2.0 / 2**n, n, 2**n, exact=True)


def sign_flip_monte_carlo(
    values_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    groups: npt.ArrayLike | None = None,
    num_flips: int = 20_000,
) -> SignFlip:
    """Random sign assignments; rows of one group (events of one prompt, say) flip together.

    p = (1 + flips at least as far from 0) / (1 + flips) (Phipson and Smyth 2010), so never 0.
    """
    x_N = np.asarray(values_N, dtype=np.float64)
    unit_sums = x_N if groups is None else sum_by_label(groups, x_N)[1]
    n = unit_sums.size
    if n == 0 or np.isnan(x_N).any():
        return SignFlip(math.nan, math.nan, math.nan, n, 0, exact=False)
    threshold = abs(unit_sums.sum()) - TIE * np.abs(unit_sums).sum()
    chunk = max(1, CHUNK_ELEMENTS // n)
    reached = 0
    for start in range(0, num_flips, chunk):
        positive_BN = rng.integers(2, size=(min(chunk, num_flips - start), n), dtype=np.int8)
        reached += int((np.abs((2.0 * positive_BN - 1.0) @ unit_sums) >= threshold).sum())
    smallest = max(2.0 ** (1 - n), 1 / (1 + num_flips))
    p_value = (1 + reached) / (1 + num_flips)
    return SignFlip(float(x_N.mean()), p_value, smallest, n, num_flips, exact=False)


@dataclass(frozen=True)
class Crossed:
    """The mean over prompts x seeds with its two sources of noise, separate and combined."""

    seeds: Interval
    prompts: Interval
    combined: Interval


def crossed_prompts_seeds(
    values_QS: npt.ArrayLike, *, rng: np.random.Generator, level: float = 0.95
) -> Crossed:
    """Every prompt measured under every seed, [Q, S].

    ``seeds`` is a t interval on the S seed means, never a bootstrap of three; ``prompts`` resamples the Q
    prompt means; ``combined`` adds both variances. It counts the residual twice, which is conservative
    (Owen, Annals of Applied Statistics 1, 2007).
    """
    x_QS = np.asarray(values_QS, dtype=np.float64)
    if x_QS.ndim != 2:
        raise UserError(
            f"values of shape {x_QS.shape}",
            "a crossed design has prompts along one axis and seeds along the other",
            "give an array [prompts, seeds]",
        )
    seeds = t_interval(x_QS.mean(0), level=level, unit="seed")
    prompts = mean_interval(x_QS.mean(1), rng=rng, level=level, unit="prompt")
    both = combine_independent([seeds, replace(prompts, value=0.0)], [1.0, 1.0], level=level)
    return Crossed(seeds, prompts, both)


def family_means(values_N: npt.ArrayLike, families_N: npt.ArrayLike) -> FloatArray:
    """Mean of each family [F], families in sorted order; their plain mean is the family-balanced mean."""
    values = np.asarray(values_N, dtype=np.float64)
    _, sums = sum_by_label(families_N, np.stack([values, np.ones_like(values)], axis=1))
    means: FloatArray = sums[:, 0] / sums[:, 1]
    return means


def family_interval(
    values_N: npt.ArrayLike,
    families_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """Family-balanced mean: every family has the same weight, whatever the number of its models.

    From 8 families on, families are resampled; under 8 it is a t interval on family means, noted "few
    families".
    """
    means_F = family_means(values_N, families_N)
    if means_F.size >= FEW_FAMILIES:
        return mean_interval(means_F, rng=rng, level=level, unit="family")
    interval = t_interval(means_F, level=level, unit="family")
    return replace(interval, note="; ".join(filter(None, ["few families", interval.note])))


def family_bootstrap(
    families_N: npt.ArrayLike,
    statistic: FamilyStatistic,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Percentile interval of any statistic over models, with families drawn whole.

    Args:
        families_N: label of each model's family.
        statistic: called with ``(models, families)``: indices into the N models, repeated where a family is
            drawn more than once, and their family labels. Copies carry one label, so that leaving out a label
            leaves out all copies; a pair of equal indices is a model with its own copy, which no statistic
            should use. Returns NaN where it does not exist.
        rng: the only source of randomness.
        level: of the interval.
        num_resamples: draws.

    Resamples with fewer than two families, or where the statistic is NaN, are dropped and counted in the
    note. NaN limits with fewer than two families.
    """
    labels_N = np.asarray(families_N)
    distinct_F, where_N = np.unique(labels_N, return_inverse=True)
    members = [np.flatnonzero(where_N == f) for f in range(distinct_F.size)]
    value = float(statistic(np.arange(labels_N.size), labels_N))
    num_families = len(members)
    if num_families < 2:
        note = "fewer than two families"
        return unknown(value, level=level, n=num_families, unit="family", note=note)
    replicates = []
    for _ in range(num_resamples):
        drawn = rng.integers(num_families, size=num_families)
        if (drawn == drawn[0]).all():
            continue
        models = np.concatenate([members[f] for f in drawn])
        replicates.append(float(statistic(models, labels_N[models])))
    finite_R = np.array([r for r in replicates if math.isfinite(r)])
    notes = ["few families"] if num_families < FEW_FAMILIES else []
    if finite_R.size < num_resamples:
        notes.append(f"{num_resamples - finite_R.size} of {num_resamples} resamples dropped")
    if finite_R.size < 2 or math.isnan(value):
        return unknown(value, level=level, n=num_families, unit="family", note="; ".join(notes))
    return percentile_interval(
        value, finite_R, level=level, method=FAMILY_BOOTSTRAP, n=num_families, unit="family", notes=notes
    )

"""How much of the variance of a crossed table belongs to which factor: moment estimators.

Axes: one a factor (I items, R recipes, C checkpoints, S seeds); B draws; G items, or groups of items.

All factors are random and crossed, and every cell has a single value, so the component of the highest
interaction includes what is left within a cell (for right and wrong answers, the chance of a single answer).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, check_level
from stemmatics.math.rates import bootstrap_many
from stemmatics.math.scipy_modules import stats

FloatArray = npt.NDArray[np.float64]
Factors = tuple[str, ...]

NUM_DRAWS = 10_000
METHOD = "generalized (chi-squares of the mean squares)"
GUARDED = f"{METHOD}, or t over {{}}s where wider"
FEWEST_LEVELS = 5
"""Below this many levels a component's interval is so wide that the note says so."""


@dataclass(frozen=True)
class MeanSquare:
    """A mean square of the analysis of variance with its degrees of freedom."""

    value: float
    degrees: int


@dataclass(frozen=True)
class Component:
    """A variance component; ``share`` is that of the sum of all components, which can be negative."""

    factors: Factors
    interval: Interval
    share: float


def subsets(names: Sequence[str]) -> list[Factors]:
    """All non-empty sets of factors, main effects first."""
    return [chosen for size in range(1, len(names) + 1) for chosen in combinations(names, size)]


def mean_squares(values: npt.ArrayLike, names: Sequence[str]) -> dict[Factors, MeanSquare]:
    """Mean squares of a balanced crossed table without replicates, by set of factors.

    Args:
        values: one axis a factor; factors with a single level are left out.
        names: of the axes.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != len(names):
        raise UserError(
            f"a table of {table.ndim} axes for {len(names)} factors", "each factor is an axis", "match them"
        )
    varying = [axis for axis in range(table.ndim) if table.shape[axis] > 1]
    table = table.reshape([table.shape[axis] for axis in varying])
    factors = [names[axis] for axis in varying]
    squares = {}
    for chosen in subsets(factors):
        inside = [axis for axis, name in enumerate(factors) if name in chosen]
        outside = tuple(axis for axis in range(table.ndim) if axis not in inside)
        effect = table.mean(axis=outside, keepdims=True) if outside else table
        for axis in inside:
            effect = effect - effect.mean(axis=axis, keepdims=True)
        degrees = math.prod(table.shape[axis] - 1 for axis in inside)
        repeats = math.prod(table.shape[axis] for axis in outside)
        squares[chosen] = MeanSquare(float((effect**2).sum()) * repeats / degrees, degrees)
    return squares


def _rows_of_first(values: FloatArray, names: Sequence[str], weights: Mapping[Factors, float]) -> FloatArray:
    """What each level of the first factor adds to a component with that factor; the sum is the component."""
    rows = np.zeros(values.shape[0])
    for chosen, weight in weights.items():
        outside = tuple(axis for axis, name in enumerate(names) if name not in chosen)
        effect = values.mean(axis=outside, keepdims=True) if outside else values
        for axis, name in enumerate(names):
            if name in chosen:
                effect = effect - effect.mean(axis=axis, keepdims=True)
        degrees = math.prod(values.shape[axis] - 1 for axis in range(values.ndim) if axis not in outside)
        repeats = math.prod(values.shape[axis] for axis in outside)
        rows += weight * repeats / degrees * (effect**2).sum(axis=tuple(range(1, values.ndim)))
    return rows


def coefficients(sizes: Mapping[str, int]) -> dict[Factors, dict[Factors, float]]:
    """The weights of the mean squares in each component.

    With all effects random, E MS_A is the sum over sets B that contain A of the product of the sizes outside
    B times the component of B. Moebius inversion over the sets that contain A gives each component as a
    signed sum of mean squares, which is unbiased whatever the distribution.
    """
    names = list(sizes)
    weights: dict[Factors, dict[Factors, float]] = {}
    for chosen in subsets(names):
        repeats = math.prod(size for name, size in sizes.items() if name not in chosen)
        weights[chosen] = {
            other: (-1.0) ** (len(other) - len(chosen)) / repeats
            for other in subsets(names)
            if set(chosen) <= set(other)
        }
    return weights


def variance_components(
    values: npt.ArrayLike,
    names: Sequence[str],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_draws: int = NUM_DRAWS,
) -> list[Component]:
    """Components of a balanced crossed table, unbiased and therefore not cut off at 0.

    Interval: quantiles of the component with each mean square replaced by MS f / chi2_f (Weerahandi 1993,
    "Generalized confidence intervals"; Burdick, Borror and Montgomery 2005). It takes effects for normal,
    so a component with the first factor (items: many levels, seldom normal) also has the t interval of what
    each of its levels adds, and each limit is the farther of the two. Skewed effects of a factor with few
    levels have no such guard. The standard error is the root of the sum of c^2 2 MS^2 / (f + 2), or of the t
    interval where that is larger.

    Args:
        values: one axis a factor, one value a cell.
        names: of the axes, the factor with the most levels first.
        rng: for the draws.
        level: of the intervals.
        num_draws: of the mean squares.
    """
    check_level(level)
    table = np.asarray(values, dtype=np.float64)
    squares = mean_squares(table, names)
    sizes = {name: size for name, size in zip(names, table.shape, strict=True) if size > 1}
    draws = {
        chosen: square.value * square.degrees / rng.chisquare(square.degrees, num_draws)
        for chosen, square in squares.items()
    }
    varying = [axis for axis, name in enumerate(names) if name in sizes]
    table = table.reshape([table.shape[axis] for axis in varying])
    estimates = []
    for chosen, weights in coefficients(sizes).items():
        value = sum(weight * squares[other].value for other, weight in weights.items())
        drawn_B = sum((weight * draws[other] for other, weight in weights.items()), np.zeros(num_draws))
        lo, hi = (float(limit) for limit in np.quantile(drawn_B, [(1 - level) / 2, (1 + level) / 2]))
        error = math.sqrt(
            sum(
                2 * (weight * squares[other].value) ** 2 / (squares[other].degrees + 2)
                for other, weight in weights.items()
            )
        )
        method = METHOD
        if chosen[0] == names[0]:
            rows_I = _rows_of_first(table, list(sizes), weights)
            spread = float(rows_I.std(ddof=1) * math.sqrt(rows_I.size))
            reach = float(stats.t.ppf((1 + level) / 2, rows_I.size - 1)) * spread
            lo, hi, error = min(lo, value - reach), max(hi, value + reach), max(error, spread)
            method = GUARDED.format(names[0])
        # of an interaction, the factor with the fewest levels limits what can be known
        unit = min(chosen, key=lambda name: sizes[name])
        few = [name for name in chosen if sizes[name] < FEWEST_LEVELS]
        note = f"under {FEWEST_LEVELS} levels of {' and '.join(few)}" if few else ""
        interval = Interval(value, lo, hi, level, method, sizes[unit], unit, math.nan, error, note)
        estimates.append((chosen, interval))
    total = sum(interval.value for _, interval in estimates)
    return [
        Component(chosen, interval, interval.value / total if total > 0 else math.nan)
        for chosen, interval in estimates
    ]


@dataclass(frozen=True)
class Noise:
    """Variance of one answer's score, within an item over seeds (prediction) and between items (data)."""

    prediction: Interval
    data: Interval


def _data_noise(sums: FloatArray) -> FloatArray:
    """Columns: 1, mean over seeds, its square, the variance of the mean over seeds."""
    count, mean, square, within = (sums[..., column] for column in range(4))
    between = (square - mean * mean / count) / (count - 1.0)
    noise: FloatArray = between - within / count
    return noise


def _ratio(sums: FloatArray) -> FloatArray:
    quotient: FloatArray = sums[..., 3] / sums[..., 0]
    return quotient


def noises(values_ISP: npt.ArrayLike, *, rng: np.random.Generator, level: float = 0.95) -> list[Noise]:
    """Prediction noise and data noise of P scores, in the terms of Wang (2025, arXiv 2512.21326).

    Prediction noise is the mean over items of the variance over seeds; data noise the variance over items of
    the item's mean, less what the finite number of seeds adds to it, so both are unbiased. Intervals
    resample items.

    Args:
        values_ISP: items, seeds (two or more), problems: a recipe at a checkpoint, or a difference of two.
        rng: for the bootstrap.
        level: of the intervals.
    """
    values = np.asarray(values_ISP, dtype=np.float64)
    num_seeds = values.shape[1]
    if num_seeds < 2:
        raise UserError(
            "prediction noise needs two seeds or more", f"there is {num_seeds}", "repeat the evaluation"
        )
    mean_IP, within_IP = values.mean(axis=1), values.var(axis=1, ddof=1)
    ones = np.ones_like(mean_IP)
    columns = np.stack([ones, mean_IP, mean_IP**2, within_IP / num_seeds], axis=-1)
    data = bootstrap_many(columns, _data_noise, rng=rng, level=level, unit="item")
    scaled = np.stack([ones, ones, ones, within_IP], axis=-1)
    prediction = bootstrap_many(scaled, _ratio, rng=rng, level=level, unit="item")
    return [Noise(p, d) for p, d in zip(prediction, data, strict=True)]

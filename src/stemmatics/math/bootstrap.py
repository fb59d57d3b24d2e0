"""The resampling engine: intervals for smooth functions of column sums.

Every document-level estimate here is a function of sums (a ratio of sums, a difference of such ratios), so
a resample needs only weights times columns. One set of weights serves all problems that share their units.

Axes: G units (documents, or groups of them), P problems, C columns, M = C (C + 1) / 2 products of columns,
B resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stemmatics.math.scipy_modules import stats

FloatArray = npt.NDArray[np.float64]
Statistic = Callable[[Any], Any]
Method = Literal["guarded bootstrap-t", "bca", "jackknife-t"]

CHUNK_ELEMENTS = 1 << 20
"""Numbers held at once in a chunk of resamples (8 MiB); memory does not grow with the resamples."""
COMPLEX_STEP = 1e-30
ROUNDING = 1e-14
"""Relative differences below this are rounding."""


@dataclass(frozen=True)
class Limits:
    """Results for P problems; every field is [P].

    ``num_undefined`` counts the resamples left out because the statistic does not exist there (0 / 0).
    """

    values: FloatArray
    lows: FloatArray
    highs: FloatArray
    standard_errors: FloatArray
    num_undefined: npt.NDArray[np.int64]


def gradient(statistic: Statistic, sums_PC: FloatArray) -> FloatArray:
    """Derivative of the statistic by each sum, [..., P, C], exact to rounding.

    Complex step: f'(x) = Im f(x + ih) / h (Squire and Trapp, SIAM Review 40, 1998). A statistic must
    consist of arithmetic, exp and log; one that is not complex differentiable (abs) raises TypeError.
    """
    parts = []
    for column in range(sums_PC.shape[-1]):
        moved = sums_PC.astype(np.complex128)
        moved[..., column] += 1j * COMPLEX_STEP
        result = np.asarray(statistic(moved))
        if not np.iscomplexobj(result):
            message = "a statistic must be differentiable: arithmetic, exp and log only"
            raise TypeError(message)
        parts.append(result.imag / COMPLEX_STEP)
    return np.stack(parts, axis=-1)


def resampling_weights(num_units: int, num_resamples: int, rng: np.random.Generator) -> FloatArray:
    """[B, G] counts of how often each unit was drawn; every row adds up to G."""
    drawn_BG = rng.integers(num_units, size=(num_resamples, num_units))
    drawn_BG += np.arange(num_resamples)[:, None] * num_units
    counts = np.bincount(drawn_BG.ravel(), minlength=num_resamples * num_units)
    return counts.reshape(num_resamples, num_units).astype(np.float64)


def linear_standard_error(
    gradient_PC: FloatArray, sums_PC: FloatArray, products_PM: FloatArray, num_units: int
) -> FloatArray:
    """Delta-method standard error of a function of sums over G units, [..., P].

    ``sqrt(G / (G - 1) * (sum_i l_i^2 - (sum_i l_i)^2 / G))`` with ``l_i = gradient . x_i``, computed from
    the sums of x and of its products, both about the same centre.
    """
    first, second = np.triu_indices(gradient_PC.shape[-1])
    twice = np.where(first == second, 1.0, 2.0)
    terms = gradient_PC[..., first] * gradient_PC[..., second] * twice * products_PM
    spread = terms.sum(-1) - (gradient_PC * sums_PC).sum(-1) ** 2 / num_units
    # terms that cancel up to rounding are no variation
    spread = np.where(spread <= ROUNDING * np.abs(terms).sum(-1), 0.0, spread)
    return np.asarray(np.sqrt(spread * (num_units / (num_units - 1))))


def jackknife(columns_GPC: FloatArray, statistic: Statistic) -> tuple[FloatArray, FloatArray]:
    """Influence of each unit [G, P] and the jackknife standard error [P] (Efron and Tibshirani 1993, ch. 11).

    Leaving one unit out is a subtraction from the sums, rescaled to G units. The influence is
    ``(mean of the left-out values) - (value without unit i)``; the error
    ``sqrt((G - 1) / G * sum of squares)``, exactly 0 where the values differ by rounding only.
    """
    num_units = columns_GPC.shape[0]
    sums_PC = columns_GPC.sum(0)
    left_out_GP = np.asarray(statistic((sums_PC - columns_GPC) * (num_units / (num_units - 1))))
    influence_GP = left_out_GP.mean(0) - left_out_GP
    error_P = np.sqrt((num_units - 1) / num_units * (influence_GP**2).sum(0))
    same_P = np.ptp(left_out_GP, axis=0) <= ROUNDING * np.abs(left_out_GP).max(0)
    return influence_GP, np.where(same_P, 0.0, error_P)


def _replicates(
    columns_GPC: FloatArray,
    statistic: Statistic,
    *,
    studentized: bool,
    num_resamples: int,
    rng: np.random.Generator,
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Chunks of (statistic [b, P], its own standard error [b, P]; zeros unless studentized)."""
    num_units, num_problems, num_columns = columns_GPC.shape
    centre_PC = columns_GPC.mean(0)
    centred_GPC = columns_GPC - centre_PC
    first, second = np.triu_indices(num_columns if studentized else 0)
    stacked_GPK = np.concatenate([centred_GPC, centred_GPC[..., first] * centred_GPC[..., second]], axis=-1)
    num_stacked = stacked_GPK.shape[-1]
    flat = stacked_GPK.reshape(num_units, -1)
    chunk = max(1, CHUNK_ELEMENTS // max(num_units, flat.shape[1]))
    for start in range(0, num_resamples, chunk):
        weights_BG = resampling_weights(num_units, min(chunk, num_resamples - start), rng)
        drawn_BPK = (weights_BG @ flat).reshape(-1, num_problems, num_stacked)
        centred_BPC, products_BPM = drawn_BPK[..., :num_columns], drawn_BPK[..., num_columns:]
        sums_BPC = centred_BPC + num_units * centre_PC
        errors_BP = np.zeros(sums_BPC.shape[:2])
        if studentized:
            slope_BPC = gradient(statistic, sums_BPC)
            errors_BP = linear_standard_error(slope_BPC, centred_BPC, products_BPM, num_units)
        yield np.asarray(statistic(sums_BPC), dtype=np.float64), errors_BP


def jackknife_t_limits(
    value: float, standard_error: float, num_units: int, level: float
) -> tuple[float, float]:
    """Value plus and minus the t quantile at G - 1 degrees of freedom times the jackknife error."""
    reach = stats.t.ppf((1 + level) / 2, num_units - 1) * standard_error
    return float(value - reach), float(value + reach)


def bootstrap_t_limits(
    value: float, standard_error: float, replicates_B: FloatArray, errors_B: FloatArray, level: float
) -> tuple[float, float]:
    """Bootstrap-t limits (Efron and Tibshirani 1993, eq. 12.22): quantiles of (value* - value) / error*.

    NaN where a limit is not finite: too many resamples hold no variation at all.
    """
    distance_B = replicates_B - value
    with np.errstate(divide="ignore", invalid="ignore"):
        t_B = np.where(distance_B == 0, 0.0, distance_B / errors_B)
        low_t, high_t = np.quantile(t_B, [(1 - level) / 2, (1 + level) / 2])
    limits = np.array([value - high_t * standard_error, value - low_t * standard_error])
    lo, hi = np.where(np.isfinite(limits), limits, np.nan)
    return float(lo), float(hi)


def bca_limits(
    value: float, influence_G: FloatArray, replicates_B: FloatArray, level: float
) -> tuple[float, float]:
    """Bias-corrected and accelerated limits (Efron and Tibshirani 1993, eq. 14.9 to 14.15).

    The acceleration comes from the jackknife's influence values. Replicates equal to the value count half
    below it; the share below is kept half a resample away from 0 and 1.
    """
    num_resamples = replicates_B.size
    tied_B = np.abs(replicates_B - value) <= ROUNDING * abs(value)
    below = (((replicates_B < value) & ~tied_B).sum() + 0.5 * tied_B.sum()) / num_resamples
    bias = stats.norm.ppf(np.clip(below, 0.5 / num_resamples, 1 - 0.5 / num_resamples))
    acceleration = (influence_G**3).sum() / (6 * (influence_G**2).sum() ** 1.5)
    z = bias + stats.norm.ppf([(1 - level) / 2, (1 + level) / 2])
    lo, hi = np.quantile(replicates_B, stats.norm.cdf(bias + z / (1 - acceleration * z)))
    return float(lo), float(hi)


def bootstrap_limits(
    columns_GPC: FloatArray,
    statistic: Statistic,
    *,
    method: Method,
    level: float,
    num_resamples: int,
    rng: np.random.Generator,
) -> Limits:
    """Limits for P problems measured on the same G >= 2 units, from one set of resampling weights.

    Args:
        columns_GPC: float64 [G, P, C], one row a unit.
        statistic: maps sums [..., C] to [...]; differentiable (see ``gradient``).
        method: ``guarded bootstrap-t`` (each limit is the farther one of the bootstrap-t and the jackknife-t
            limit: the first follows skew, the second holds for symmetric heavy tails), ``bca``, or
            ``jackknife-t`` (no resampling).
        level: of the interval, 0.95 say.
        num_resamples: B.
        rng: the only source of randomness.

    A problem with no variation between its units has ``lo == hi == value``. An unknown value has NaN limits.
    """
    num_units, num_problems = columns_GPC.shape[:2]
    value_P = np.asarray(statistic(columns_GPC.sum(0)), dtype=np.float64)
    influence_GP, error_P = jackknife(columns_GPC, statistic)
    replicates_BP = errors_BP = np.zeros((0, num_problems))
    if method != "jackknife-t":
        studentized = method == "guarded bootstrap-t"
        parts = _replicates(
            columns_GPC, statistic, studentized=studentized, num_resamples=num_resamples, rng=rng
        )
        replicates_BP, errors_BP = (np.concatenate(part) for part in zip(*parts, strict=True))
    limits_P2 = np.full((num_problems, 2), np.nan)
    defined_BP = np.isfinite(replicates_BP)
    for p in range(num_problems):
        keep, value, error = defined_BP[:, p], float(value_P[p]), float(error_P[p])
        if error == 0 or not np.isfinite(value + error):
            limits_P2[p] = value if error == 0 else np.nan
        elif method == "bca":
            limits_P2[p] = bca_limits(value, influence_GP[:, p], replicates_BP[keep, p], level)
        else:
            lo, hi = jackknife_t_limits(value, error, num_units, level)
            if method == "guarded bootstrap-t":
                low, high = bootstrap_t_limits(
                    value, error, replicates_BP[keep, p], errors_BP[keep, p], level
                )
                lo, hi = np.minimum(lo, low), np.maximum(hi, high)  # NaN stays NaN
            limits_P2[p] = lo, hi
    return Limits(value_P, limits_P2[:, 0], limits_P2[:, 1], error_P, (~defined_BP).sum(0))

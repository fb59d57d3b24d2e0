"""A value with its interval, and the intervals that need no resampling: means of a few units, proportions.

Axes: N units, P parts. When to use which interval, with measured coverage: docs/statistics.md.
Intervals over documents and prompts are in ``rates``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import ratio


@dataclass(frozen=True)
class Interval:
    """An estimate. Unknown numbers are NaN; ``note`` qualifies the number for readers.

    ``n`` counts the units that were resampled or averaged, ``unit`` names them. ``smallest_effect`` is the
    minimum detectable effect at 80% power: (t_(1+level)/2,df + t_.80,df) * standard error.
    """

    value: float
    lo: float
    hi: float
    level: float
    method: str
    n: int
    unit: str
    smallest_effect: float
    standard_error: float
    note: str = ""

    def excludes(self, number: float) -> bool:
        """Whether the whole interval lies on one side of the number; no if a limit is unknown."""
        return self.lo > number or self.hi < number


def smallest_effect(standard_error: float, degrees: float, level: float = 0.95) -> float:
    """Minimum detectable effect of a two-sided t test at 1 - level, at 80% power.

    (t_(1+level)/2,df + t_.80,df) * SE; NaN where degrees of freedom are under 1 or the error is unknown.
    """
    if not degrees >= 1:
        return math.nan
    return float((stats.t.ppf((1 + level) / 2, degrees) + stats.t.ppf(0.80, degrees)) * standard_error)


def check_level(level: float) -> None:
    """Raise UserError for a level that is not a probability, such as 95."""
    if not 0 < level < 1:
        raise UserError(f"level {level} is not between 0 and 1", "a level is a probability", "give 0.95, say")


def plural(unit: str) -> str:
    """The plural of a unit: prompts, families, groups of documents."""
    head, of, rest = unit.partition(" of ")
    return (f"{head[:-1]}ies" if head.endswith("y") else f"{head}s") + of + rest


def unknown(value: float, *, level: float, n: int, unit: str, note: str) -> Interval:
    """An estimate with unknown limits, and why they are unknown."""
    return Interval(value, math.nan, math.nan, level, "none", n, unit, math.nan, math.nan, note)


def t_interval(values_N: npt.ArrayLike, *, level: float = 0.95, unit: str = "seed") -> Interval:
    """Student's interval for a mean; a paired t where the values are paired differences.

    For few units that are each an average of many values (seeds, family means). NaN limits under two values.
    """
    check_level(level)
    x_N = np.asarray(values_N, dtype=np.float64)
    value = float(x_N.mean()) if x_N.size else math.nan
    if x_N.size < 2:
        return unknown(value, level=level, n=x_N.size, unit=unit, note="fewer than two units")
    same = np.ptp(x_N) == 0
    error = 0.0 if same else float(x_N.std(ddof=1) / math.sqrt(x_N.size))
    reach = float(stats.t.ppf((1 + level) / 2, x_N.size - 1)) * error
    return Interval(
        value, value - reach, value + reach, level, "t", x_N.size, unit,
        smallest_effect(error, x_N.size - 1, level), error,
        f"no variation between {plural(unit)}" if same else "",
    )  # fmt: skip


def percentile_interval(
    value: float,
    replicates_B: npt.NDArray[np.float64],
    *,
    level: float,
    method: str,
    n: int,
    unit: str,
    notes: Sequence[str],
) -> Interval:
    """Equal-tailed quantiles of bootstrap replicates (two or more, all finite); their spread is the error."""
    lo, hi = np.quantile(replicates_B, [(1 - level) / 2, (1 + level) / 2])
    error = float(replicates_B.std(ddof=1))
    effect = smallest_effect(error, n - 1, level)
    return Interval(value, float(lo), float(hi), level, method, n, unit, effect, error, "; ".join(notes))


def combine_independent(
    parts: list[Interval], weights: npt.ArrayLike | None = None, *, level: float = 0.95
) -> Interval:
    """Weighted sum of independent estimates (default: their equally weighted mean).

    Standard errors add up in quadrature; degrees of freedom by Welch and Satterthwaite (Biometrics Bulletin
    2, 1946), each part having n - 1. With weights 1, 1 and values v, 0 it adds two sources of noise to v.
    """
    check_level(level)
    w_P = np.full(len(parts), 1 / len(parts)) if weights is None else np.asarray(weights, dtype=np.float64)
    value = float(w_P @ [part.value for part in parts])
    variance_P = (w_P * [part.standard_error for part in parts]) ** 2
    error = math.sqrt(variance_P.sum())
    degrees_P = np.array([part.n - 1 for part in parts], dtype=np.float64)
    degrees = float(ratio(variance_P.sum() ** 2, ratio(variance_P**2, degrees_P).sum()))
    unit = " and ".join(dict.fromkeys(part.unit for part in parts))
    total = sum(part.n for part in parts)
    if error == 0:
        note = "no variation in any part"
        return Interval(value, value, value, level, "Welch-Satterthwaite t", total, unit, 0.0, 0.0, note)
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    return Interval(
        value, value - reach, value + reach, level, "Welch-Satterthwaite t", total, unit,
        smallest_effect(error, degrees, level), error,
    )  # fmt: skip


def wilson(num_successes: int, num_trials: int, *, level: float = 0.95, unit: str = "prompt") -> Interval:
    """Score interval for a proportion (Wilson, JASA 22, 1927); never of width 0. 0 of 20 is [0, 0.161].

    The standard error is the half width over the normal quantile, so it is positive at 0 and 1 too.
    """
    check_level(level)
    k, n = num_successes, num_trials
    if not 0 <= k <= n:
        raise UserError(f"{k} successes of {n}", "a count can't exceed its total", "check the two counts")
    if n == 0:
        return unknown(math.nan, level=level, n=0, unit=unit, note=f"no {plural(unit)}")
    limits: Any = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    z = float(stats.norm.ppf((1 + level) / 2))
    error = float(limits.high - limits.low) / (2 * z)
    effect = float(z + stats.norm.ppf(0.80)) * error
    return Interval(k / n, float(limits.low), float(limits.high), level, "Wilson", n, unit, effect, error)

"""Slope of the residual over model size: whether the cost of post-training depends on size.

Axes: N pairs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, check_level, smallest_effect, unknown
from stemmatics.math.recovery.pairs import FloatArray, Labels
from stemmatics.math.recovery.resolution import family_percentile
from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import ratio

FEWEST_FOR_LINE = 3
ROUNDING = 1e-14


def _log_sizes(parameters_N: npt.ArrayLike) -> FloatArray:
    sizes_N = np.asarray(parameters_N, dtype=np.float64)
    if not (np.isfinite(sizes_N) & (sizes_N > 0)).all():
        raise UserError(
            "a number of parameters is not above 0", "its logarithm is taken", "give counts such as 7e9"
        )
    logs: FloatArray = np.log10(sizes_N)
    return logs


def size_slope(residual_N: FloatArray, parameters_N: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Least-squares slope of the residual, nats/byte per tenfold parameters, within one pipeline.

    Student's interval with n - 2 degrees of freedom: pairs are the units and scatter about the line is taken
    as normal. Limits are NaN under three pairs, the value where all sizes are equal.
    """
    check_level(level)
    x_N = _log_sizes(parameters_N)
    if x_N.size < 2 or np.ptp(x_N) == 0:
        return unknown(math.nan, level=level, n=x_N.size, unit="pair", note="fewer than two sizes")
    fit: Any = stats.linregress(x_N, residual_N)
    value = float(fit.slope)
    if x_N.size < FEWEST_FOR_LINE:
        return unknown(value, level=level, n=x_N.size, unit="pair", note="under three pairs")
    error, degrees = float(fit.stderr), x_N.size - 2
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    return Interval(
        value, value - reach, value + reach, level, "least squares t", x_N.size, "pair",
        smallest_effect(error, degrees, level), error,
    )  # fmt: skip


def size_slope_by_family(
    residual_N: FloatArray,
    parameters_N: npt.ArrayLike,
    families_N: Labels,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """The same slope over all pairs, whatever their pipeline, with families resampled whole."""
    x_N = _log_sizes(parameters_N)

    def statistic(counts_BN: FloatArray) -> FloatArray:
        total_B1 = counts_BN.sum(1, keepdims=True)
        x_BN = x_N - (counts_BN @ x_N)[:, None] / total_B1
        spread_B = (counts_BN * x_BN**2).sum(1)
        # sizes that differ by rounding only are one size
        spread_B = np.where(spread_B > ROUNDING * (counts_BN @ x_N**2), spread_B, 0.0)
        return ratio((counts_BN * x_BN) @ residual_N, spread_B)

    return family_percentile(statistic, families_N, rng=rng, level=level)

"""An interval with two independent sources of variation: the scored text, and the text of the fit.

Axes: R draws.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.prior.statistics import Floats

FEWEST_DRAWS = 50


def with_fit_inside(interval: Interval, draw_R: Floats) -> Interval:
    """Widen an interval for fixed fits by the variation between redrawn fits; the value is unchanged.

    FIT and EVAL documents are drawn independently, so the two deviations add up. Their limits are combined
    by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008, equations
    7 and 8): each side's distances in quadrature, so that skew is kept. Distances of the draws are
    from their own mean, by equal-tailed quantiles. The bias of a fit on fewer distinct documents is ignored.

    Under ``FEWEST_DRAWS`` draws the limits are unknown.
    """
    value = interval.value
    finite_R = draw_R[np.isfinite(draw_R)]
    if math.isnan(interval.lo) or math.isnan(interval.hi):
        return interval
    if len(finite_R) < FEWEST_DRAWS:
        note = f"under {FEWEST_DRAWS} redrawn fits"
        return unknown(value, level=interval.level, n=interval.n, unit=interval.unit, note=note)
    tail = (1.0 - interval.level) / 2.0
    low, high = np.quantile(finite_R, [tail, 1.0 - tail]) - finite_R.mean()
    error = math.hypot(interval.standard_error, float(finite_R.std(ddof=1)))
    scale = error / interval.standard_error if interval.standard_error else math.nan
    return replace(
        interval,
        lo=value - math.hypot(value - interval.lo, float(low)),
        hi=value + math.hypot(interval.hi - value, float(high)),
        method=f"{interval.method}, fits redrawn",
        smallest_effect=interval.smallest_effect * scale,
        standard_error=error,
    )

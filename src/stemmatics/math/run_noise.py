"""Noise between repeats of one fine-tune, and its share in a difference of two arms.

Axes: R runs of one arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from stemmatics.math.intervals import Interval, check_level, combine_independent, unknown
from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import FloatArray

UNIT = "run"


def pooled_deviation(arms: Iterable[FloatArray], *, level: float = 0.95) -> Interval:
    """Standard deviation between runs within an arm, pooled over arms; chi-squared limits.

    ``sqrt(sum of squares within arms / degrees)`` with degrees = runs less arms; (degrees x s^2) over
    the quantiles of chi-squared gives the limits, exact for normal noise. ``n`` is degrees + 1.
    NaN where no arm has two runs.

    Args:
        arms: the losses [R] of each arm's runs, nats/byte.
        level: of the interval.
    """
    check_level(level)
    squares, degrees = 0.0, 0
    for runs_R in arms:
        squares += float(((runs_R - runs_R.mean()) ** 2).sum()) if runs_R.size else 0.0
        degrees += max(runs_R.size - 1, 0)
    if not degrees:
        return unknown(math.nan, level=level, n=1, unit=UNIT, note="no arm has two runs")
    value = math.sqrt(squares / degrees)
    low, high = stats.chi2.ppf([(1 - level) / 2, (1 + level) / 2], degrees)
    return Interval(
        value,
        value * math.sqrt(degrees / high),
        value * math.sqrt(degrees / low),
        level,
        "chi-squared",
        degrees + 1,
        UNIT,
        math.nan,
        value / math.sqrt(2 * degrees),
    )


def run_component(noise: Interval, num_runs: Iterable[int], *, level: float | None = None) -> Interval:
    """The run noise of a sum or difference of arms as a component: 0 with its standard error.

    Each arm is a mean over its runs: ``s x sqrt(sum of 1 / R)``; a t interval with the degrees that the
    pooled deviation has, at ``level`` (default: that of ``noise``).
    """
    runs = list(num_runs)
    if math.isnan(noise.value):
        return replace(noise, value=0.0)
    error = noise.value * math.sqrt(float(np.sum(1.0 / np.asarray(runs, dtype=np.float64))))
    level = noise.level if level is None else level
    reach = float(stats.t.ppf((1 + level) / 2, noise.n - 1)) * error
    return Interval(0.0, -reach, reach, level, "t", noise.n, UNIT, math.nan, error)


def with_runs(documents: Interval, component: Interval) -> Interval:
    """A difference with both components: documents and runs are independent.

    Distances to the limits add up in quadrature (the method of variance estimates recovery: Zou and
    Donner, Statistics in Medicine 27, 2008), which keeps the documents' skew. A t interval on Welch
    and Satterthwaite degrees covered 91% here where two arms had two runs each; this one is
    conservative. Unknown limits where the run component is: document noise alone would be too narrow.
    """
    if math.isnan(component.standard_error):
        note = "run noise is unknown: no arm has two runs"
        return unknown(
            documents.value, level=documents.level, n=documents.n, unit="document and run", note=note
        )
    both = combine_independent([documents, component], [1.0, 1.0], level=documents.level)
    return replace(
        both,
        lo=documents.value - math.hypot(documents.value - documents.lo, component.hi),
        hi=documents.value + math.hypot(documents.hi - documents.value, component.hi),
        method=f"{documents.method} and t, in quadrature",
        note=documents.note,
    )

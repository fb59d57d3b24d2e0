"""The slope of the loss along checkpoints of one run; its interval holds their scatter and that of runs.

Axes: K checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import FloatArray

UNIT = "document, checkpoint and run"
FEWEST_CHECKPOINTS = 3


def with_scatter(documents: Interval, loss_K: FloatArray, noise: Interval, run_scale: float) -> Interval:
    """A least-squares slope over positions 0, 1, ... whose interval holds more than documents.

    Checkpoints: Student's half width of the slope, from their scatter about the line on K - 2 degrees of
    freedom; one run of each is in that scatter, and so is a trend that is no line. Runs: t times their known
    standard deviation times ``run_scale``. The larger of the two counts, so that few checkpoints that happen
    to lie on a line claim no more than runs allow; it is added to the documents in quadrature. Limits are
    unknown under three checkpoints.

    Args:
        documents: the slope with its interval over documents.
        loss_K: loss at each checkpoint, nats/byte.
        noise: standard deviation of one run, pooled over arms; NaN where no arm has two runs.
        run_scale: of the slope's standard error, per standard deviation of one run.
    """
    num_checkpoints = loss_K.size
    if num_checkpoints < FEWEST_CHECKPOINTS:
        note = "two checkpoints have no scatter about a line"
        return unknown(documents.value, level=documents.level, n=num_checkpoints, unit=UNIT, note=note)
    degrees = num_checkpoints - 2
    position_K = np.arange(num_checkpoints) - (num_checkpoints - 1) / 2
    left_K = loss_K - loss_K.mean() - documents.value * position_K
    deviation = math.sqrt(float((left_K**2).sum()) / degrees)
    # what is left by rounding is no scatter
    deviation = deviation if deviation > 1e-12 * float(np.abs(loss_K).max()) else 0.0
    tail = (1 + documents.level) / 2
    scatter = float(stats.t.ppf(tail, degrees)) * deviation / math.sqrt(float((position_K**2).sum()))
    runs = 0.0
    if not math.isnan(noise.value):
        runs = float(stats.t.ppf(tail, noise.n - 1)) * noise.value * run_scale
    half = max(scatter, runs)
    if not half:
        note = "no scatter between checkpoints and no known run noise: no limits"
        return unknown(documents.value, level=documents.level, n=num_checkpoints, unit=UNIT, note=note)
    return replace(
        documents,
        lo=documents.value - math.hypot(documents.value - documents.lo, half),
        hi=documents.value + math.hypot(documents.hi - documents.value, half),
        method=f"{documents.method} and t about the line, in quadrature",
        n=num_checkpoints,
        unit=UNIT,
        smallest_effect=math.nan,
        standard_error=math.nan,
    )

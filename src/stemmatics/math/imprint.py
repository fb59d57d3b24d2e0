"""Contrasts over runs and cells of requests, for these cells and for requests like these.

A cell is a wording with a thing: what could have come out otherwise. Axes: C cells, S runs, Q prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stemmatics.math.intervals import Interval, check_level, smallest_effect, t_interval, unknown
from stemmatics.math.scipy_modules import optimize, stats
from stemmatics.math.sums import FloatArray, sum_by_label

_ROUNDING = 1e-12
_MOST_UNITS = 100_000
EQUIVALENCE_LEVEL = 0.90
LEVEL = 0.95


@dataclass(frozen=True)
class Noise:
    """One source of chance: the standard error that it gives a mean, from ``n`` units."""

    unit: str
    error: float
    n: int

    def half_width(self, level: float) -> float:
        """Student's, with n - 1 degrees of freedom."""
        return float(stats.t.ppf((1 + level) / 2, self.n - 1)) * self.error


def cell_means(values_Q: npt.ArrayLike, cell_Q: npt.ArrayLike) -> tuple[npt.NDArray[np.generic], FloatArray]:
    """Sorted labels of the cells and the mean over each cell's prompts: copies of a prompt change nothing."""
    x_Q = np.asarray(values_Q, dtype=np.float64)
    labels_C, sums = sum_by_label(cell_Q, np.stack([x_Q, np.ones_like(x_Q)], axis=1))
    means: FloatArray = sums[:, 0] / sums[:, 1]
    return labels_C, means


def clustered_error(values_C: npt.ArrayLike, cluster_C: npt.ArrayLike) -> tuple[float, int]:
    """Standard error of the mean where cells of one cluster vary together, and the number G of clusters.

    sqrt(G / (G - 1) sum_g (sum of deviations in g)^2) / C; with one cell a cluster the ordinary s / sqrt(C).
    NaN for a single cluster (Liang and Zeger, Biometrika 73, 1986).
    """
    x_C = np.asarray(values_C, dtype=np.float64)
    _, sums_G = sum_by_label(cluster_C, x_C - x_C.mean())
    num = sums_G.size
    if num < 2:
        return math.nan, num
    return float(np.sqrt(num / (num - 1) * (sums_G**2).sum()) / x_C.size), num


def request_noise(
    values_C: npt.ArrayLike, wording_C: npt.ArrayLike | None = None, thing_C: npt.ArrayLike | None = None
) -> list[Noise]:
    """What other requests would change: wordings and things, each drawn; cells where neither is known.

    With both, what is left within a cell is counted twice, which errs on the wide side (Owen, Annals of
    Applied Statistics 1, 2007). Cells as if they were independent would be too narrow: forty wordings are
    forty draws, however many cells they make.
    """
    x_C = np.asarray(values_C, dtype=np.float64)
    clusters = {"wording": wording_C, "thing": thing_C}
    named = {unit: label_C for unit, label_C in clusters.items() if label_C is not None}
    return [
        Noise(unit, *clustered_error(x_C, label_C))
        for unit, label_C in (named or {"cell": np.arange(x_C.size)}).items()
    ]


def in_quadrature(value: float, noises: Sequence[Noise], *, level: float = LEVEL) -> Interval:
    """The value with the half widths of independent sources of chance in quadrature.

    Each half width is Student's on its own degrees of freedom. A source with fewer than two units, or whose
    units all came out alike, says nothing about other units: the limits are then unknown.
    """
    check_level(level)
    unit, total = " and ".join(noise.unit for noise in noises), sum(noise.n for noise in noises)
    for noise in noises:
        if noise.n < 2 or not noise.error > _ROUNDING:
            missing = f"one {noise.unit}" if noise.n < 2 else f"every {noise.unit} came out alike"
            note = f"{missing}: variation between {noise.unit}s is unknown"
            return unknown(value, level=level, n=total, unit=unit, note=note)
    reach = math.hypot(*(noise.half_width(level) for noise in noises))
    effect = math.hypot(*(smallest_effect(noise.error, noise.n - 1, level) for noise in noises))
    error = math.hypot(*(noise.error for noise in noises))
    return Interval(
        value, value - reach, value + reach, level, "t, in quadrature", total, unit, effect, error
    )


@dataclass(frozen=True)
class RunsAndCells:
    """A contrast [C, S] of every cell in every run, and its sources of chance."""

    values_CS: FloatArray
    wording_C: npt.NDArray[np.generic] | None = None
    thing_C: npt.NDArray[np.generic] | None = None

    @property
    def by_run(self) -> FloatArray:
        """The mean over cells in each run."""
        means: FloatArray = self.values_CS.mean(0)
        return means

    @property
    def value(self) -> float:
        """The mean over cells and runs."""
        return float(self.values_CS.mean())

    @property
    def noises(self) -> list[Noise]:
        """Runs first, then what other requests would change."""
        num = self.by_run.size
        error = float(self.by_run.std(ddof=1) / math.sqrt(num)) if num > 1 else math.nan
        return [
            Noise("run", error, num),
            *request_noise(self.values_CS.mean(1), self.wording_C, self.thing_C),
        ]

    def these_cells(self, level: float = LEVEL) -> Interval:
        """Other runs on the same cells: Student's interval over runs; unknown where all runs are alike."""
        return over_runs(self.by_run, level=level)

    def requests_like_these(self, level: float = LEVEL) -> Interval:
        """Other runs on other requests of the kind: all sources of chance, in quadrature."""
        return in_quadrature(self.value, self.noises, level=level)

    def p_value(self) -> float:
        """Two-sided: 1 less the level at which the interval for requests like these reaches 0."""
        return p_of(self.value, self.noises)


def over_runs(by_run_S: npt.ArrayLike, *, level: float = LEVEL) -> Interval:
    """Student's interval; unknown where the runs are alike, since such runs say nothing of other runs."""
    x_S = np.asarray(by_run_S, dtype=np.float64)
    if x_S.size > 1 and np.ptp(x_S) <= _ROUNDING:
        note = "every run came out alike: variation between runs is unknown"
        return unknown(float(x_S.mean()), level=level, n=x_S.size, unit="run", note=note)
    interval = t_interval(x_S, level=level, unit="run")
    return replace(interval, note="one run: variation between runs is unknown") if x_S.size == 1 else interval


def p_of(value: float, noises: Sequence[Noise]) -> float:
    """1 less the level at which ``in_quadrature`` reaches 0; NaN where it has no limits."""
    if math.isnan(in_quadrature(value, noises).lo):
        return math.nan

    def excess(log_p: float) -> float:
        return math.hypot(*(noise.half_width(1 - math.exp(log_p)) for noise in noises)) - abs(value)

    # half widths fall to 0 as p rises to 1; beyond e^-30 a level can't be told from 1
    lowest, highest = -30.0, -1e-12
    if excess(highest) >= 0:
        return 1.0
    if excess(lowest) <= 0:
        return math.exp(lowest)
    return math.exp(float(optimize.brentq(excess, lowest, highest, xtol=1e-12)))


def units_needed(value: float, noises: Sequence[Noise], margin: float) -> tuple[int, float] | None:
    """About how much would settle an undetermined equivalence, if the value and the scatter stay as they are.

    Returns (runs, times as many wordings, things or cells). The target is the margin where the value lies
    within it (equivalent), else 0 (different). None where no evidence would do, or where there is no scatter
    to extrapolate.
    """
    inside = abs(value) < margin
    room = margin - abs(value) if inside else abs(value)
    level = EQUIVALENCE_LEVEL if inside else LEVEL
    runs, requests = noises[0], noises[1:]
    if not room > 0 or any(noise.n < 2 or not noise.error > 0 for noise in noises):
        return None
    reach = math.hypot(*(noise.half_width(level) for noise in requests))
    factor = 1.0
    if reach >= room * math.sqrt(0.5):
        factor = (reach / (room * math.sqrt(0.5))) ** 2
        reach = room * math.sqrt(0.5)
    deviation = runs.error * math.sqrt(runs.n)
    low, high = 2, _MOST_UNITS
    target = math.sqrt(room**2 - reach**2)

    def enough(num: int) -> bool:
        return Noise("run", deviation / math.sqrt(num), num).half_width(level) < target

    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low, factor

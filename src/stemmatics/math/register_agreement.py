"""Agreement of two orders of the same models, by the number of text registers they are measured on.

Axes: R registers, M models, S subsets of registers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.scipy_modules import stats
from stemmatics.math.seeds import family_bootstrap
from stemmatics.math.sums import FloatArray

MOST_SUBSETS = 20


def subsets(num_registers: int, size: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Choices of ``size`` registers, [S, R]: all of them, or ``MOST_SUBSETS`` drawn without replacement."""
    every = list(itertools.combinations(range(num_registers), size))
    if len(every) > MOST_SUBSETS:
        drawn = rng.choice(len(every), size=MOST_SUBSETS, replace=False)
        every = [every[int(row)] for row in np.sort(drawn)]
    chosen_SR = np.zeros((len(every), num_registers), dtype=np.bool_)
    for row, registers in enumerate(every):
        chosen_SR[row, list(registers)] = True
    return chosen_SR


def subset_losses(
    nll_RM: FloatArray, num_bytes_R: FloatArray, chosen_SR: npt.NDArray[np.bool_]
) -> FloatArray:
    """Nats over bytes of each model on each choice of registers, [S, M]."""
    chosen = chosen_SR.astype(np.float64)
    return np.asarray((chosen @ nll_RM) / (chosen @ num_bytes_R)[:, None])


def mean_spearman(first_SM: FloatArray, second_SM: FloatArray) -> float:
    """Mean over rows of Spearman's rho; rows without an order are left out, NaN where all are."""
    ranks = [stats.rankdata(values, axis=1) for values in (first_SM, second_SM)]
    x_SM, y_SM = (values - values.mean(1, keepdims=True) for values in ranks)
    below_S = np.sqrt((x_SM**2).sum(1) * (y_SM**2).sum(1))
    defined_S = below_S > 0
    return (
        float(((x_SM * y_SM).sum(1)[defined_S] / below_S[defined_S]).mean())
        if defined_S.any()
        else float("nan")
    )


def agreement_by_registers(
    native_RM: npt.ArrayLike,
    rebased_RM: npt.ArrayLike,
    num_bytes_R: npt.ArrayLike,
    families_M: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    num_resamples: int = 1000,
) -> list[Interval]:
    """Spearman's rho of native and re-based order on 1, 2, ... R registers, mean over the choices.

    Args:
        native_RM: nats by register and model, as released.
        rebased_RM: the same after the recovery fine-tune.
        num_bytes_R: UTF-8 bytes by register.
        families_M: label of each model's family; families are resampled whole (percentile limits).
        rng: the only source of randomness.
        num_resamples: draws of families.
    """
    native, rebased = np.asarray(native_RM, dtype=np.float64), np.asarray(rebased_RM, dtype=np.float64)
    bytes_R = np.asarray(num_bytes_R, dtype=np.float64)
    intervals = []
    for size in range(1, len(bytes_R) + 1):
        chosen_SR = subsets(len(bytes_R), size, rng)
        native_SM = subset_losses(native, bytes_R, chosen_SR)
        rebased_SM = subset_losses(rebased, bytes_R, chosen_SR)

        def statistic(
            models: npt.NDArray[np.int64],
            _families: npt.NDArray[np.generic],
            both: tuple[FloatArray, FloatArray] = (native_SM, rebased_SM),
        ) -> float:
            return mean_spearman(both[0][:, models], both[1][:, models])

        interval = family_bootstrap(families_M, statistic, rng=rng, num_resamples=num_resamples)
        intervals.append(limits_if_varied(interval))
    return intervals


def limits_if_varied(interval: Interval) -> Interval:
    """The interval, without limits where every resample gave one value.

    Two families can be drawn in one way only: equal limits would claim a certainty that is not there.
    """
    if interval.lo < interval.hi or math.isnan(interval.lo):
        return interval
    note = "; ".join(filter(None, (interval.note, "the same in every resample: no limits")))
    return unknown(interval.value, level=interval.level, n=interval.n, unit=interval.unit, note=note)

"""Intervals over documents and prompts: rates, paired differences, shares and means, by resampling.

Axes: N rows (documents, prompts), G units (rows, or groups of rows resampled together), P problems on the
same rows, C columns. Measured coverage: docs/statistics.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.bootstrap import FloatArray, Method, Statistic, bootstrap_limits
from stemmatics.math.intervals import Interval, check_level, plural, smallest_effect, unknown
from stemmatics.math.sums import sum_by_label

NUM_RESAMPLES = 10_000
FEWEST_FOR_BOOTSTRAP = 5
FEWEST_MEASURED = 50
"""From this many units on, coverage was between 93 and 97% in every simulation of docs/statistics.md."""


class Settings(TypedDict, total=False):
    """The keyword arguments that every interval here hands on to ``bootstrap_many``."""

    rng: Required[np.random.Generator]
    groups: npt.ArrayLike | None
    method: Method
    level: float
    num_resamples: int
    unit: str


def _unit_rows(
    columns_NPC: npt.ArrayLike, groups_N: npt.ArrayLike | None, unit: str
) -> tuple[FloatArray, str]:
    """Sums of rows by group, and the name of the resulting unit."""
    columns = np.asarray(columns_NPC, dtype=np.float64)
    if groups_N is None:
        return columns, unit
    _, grouped_GPC = sum_by_label(groups_N, columns)
    return grouped_GPC, unit if len(grouped_GPC) == len(columns) else f"group of {plural(unit)}"


def bootstrap_many(
    columns_NPC: npt.ArrayLike,
    statistic: Statistic,
    *,
    rng: np.random.Generator,
    groups: npt.ArrayLike | None = None,
    method: Method = "guarded bootstrap-t",
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    unit: str = "document",
) -> list[Interval]:
    """Intervals for P problems on the same rows; all share one set of resamples, so they stay paired.

    Args:
        columns_NPC: [N, P, C] what a row adds to each sum.
        statistic: maps sums [..., C] to [...], by arithmetic, exp and log only.
        rng: the only source of randomness.
        groups: [N] labels; rows of one label (near-duplicates, say) are drawn together.
        method: see ``bootstrap_limits``; with 2 to 4 units it is the jackknife-t in any case.
        level: of the intervals.
        num_resamples: 10,000 unless there is a reason.
        unit: name of a row.

    With fewer than two units the limits are NaN; where all units are equal (a model against itself) the
    interval is the value alone, and the note says so.
    """
    check_level(level)
    columns_GPC, unit = _unit_rows(columns_NPC, groups, unit)
    num_units, num_problems = columns_GPC.shape[:2]
    with np.errstate(divide="ignore", invalid="ignore"):
        if num_units < 2:
            values = np.asarray(statistic(columns_GPC.sum(0)), dtype=np.float64)
            note = "fewer than two units"
            return [unknown(float(v), level=level, n=num_units, unit=unit, note=note) for v in values]
        if num_units < FEWEST_FOR_BOOTSTRAP:
            method = "jackknife-t"
        limits = bootstrap_limits(
            columns_GPC, statistic, method=method, level=level, num_resamples=num_resamples, rng=rng
        )
    intervals = []
    for p in range(num_problems):
        error = float(limits.standard_errors[p])
        interval = Interval(
            float(limits.values[p]), float(limits.lows[p]), float(limits.highs[p]), level, method,
            num_units, unit, smallest_effect(error, num_units - 1, level), error,
        )  # fmt: skip
        intervals.append(_with_note(interval, int(limits.num_undefined[p]), num_resamples))
    return intervals


def _with_note(interval: Interval, num_undefined: int, num_resamples: int) -> Interval:
    """The interval with notes on its reliability."""
    notes = []
    if math.isnan(interval.value):
        notes.append("unknown: a value is missing or a denominator is 0")
    elif interval.standard_error == 0:
        notes.append(f"no variation between {plural(interval.unit)}")
    elif math.isnan(interval.lo) or math.isnan(interval.hi):
        notes.append(f"too few {plural(interval.unit)} that differ for a bootstrap")
    elif interval.n < FEWEST_MEASURED:
        notes.append(f"under {FEWEST_MEASURED} {plural(interval.unit)}: coverage may be under 93%")
    if num_undefined and not math.isnan(interval.value):
        notes.append(f"{num_undefined} of {num_resamples} resamples undefined, left out")
    return replace(interval, note="; ".join(notes))


def ratio_of_sums(sums: FloatArray) -> FloatArray:
    """First column over second: the statistic of every rate, share and mean; 0 / 0 is NaN."""
    quotient: FloatArray = sums[..., 0] / sums[..., 1]
    return quotient


def difference_of_ratios(sums: FloatArray) -> FloatArray:
    """Third over fourth column less first over second: rates with denominators of their own."""
    difference: FloatArray = sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1]
    return difference


def _stack(*columns: npt.ArrayLike) -> FloatArray:
    """Columns [N] or [N, P] side by side as [N, P, C]; a column [N] serves every problem."""
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    arrays = [a[:, None] if a.ndim == 1 else a for a in arrays]
    if len({a.shape[0] for a in arrays}) > 1:
        raise UserError(
            f"columns of {', '.join(str(a.shape[0]) for a in arrays)} rows",
            "paired sums need the same documents in the same order",
            "match the tables by document first",
        )
    return np.stack(np.broadcast_arrays(*arrays), axis=-1)


def loss_rates(
    nll_sum_NP: npt.ArrayLike, num_bytes_NP: npt.ArrayLike, **settings: Unpack[Settings]
) -> list[Interval]:
    """Rates of P models on the same N documents: sum of nats over sum of bytes, in nats/byte.

    Either argument may be [N] or [N, P]; ``settings`` are those of ``bootstrap_many``.
    """
    return bootstrap_many(_stack(nll_sum_NP, num_bytes_NP), ratio_of_sums, **settings)


def paired_differences(
    first_nll_NP: npt.ArrayLike,
    second_nll_NP: npt.ArrayLike,
    num_bytes_NP: npt.ArrayLike,
    second_num_bytes_NP: npt.ArrayLike | None = None,
    **settings: Unpack[Settings],
) -> list[Interval]:
    """Second rate less first rate for P pairs of models scored on the same N documents, in nats/byte.

    One byte count for both sides gives ``(sum second - sum first) / sum bytes``; a second count is for sides
    with denominators of their own (tokens under two tokenizers). Arguments are [N] or [N, P]. A model
    against itself gives exactly 0 [0, 0].
    """
    if second_num_bytes_NP is None or np.array_equal(num_bytes_NP, second_num_bytes_NP):
        change = _stack(first_nll_NP, second_nll_NP)
        return bootstrap_many(
            _stack(change[..., 1] - change[..., 0], num_bytes_NP), ratio_of_sums, **settings
        )
    columns = _stack(first_nll_NP, num_bytes_NP, second_nll_NP, second_num_bytes_NP)
    return bootstrap_many(columns, difference_of_ratios, **settings)


def ratios_of_means(
    part_NP: npt.ArrayLike, whole_NP: npt.ArrayLike, **settings: Unpack[Settings]
) -> list[Interval]:
    """Shares: sum of ``part`` over sum of ``whole`` on the same N units, P problems; never clipped.

    All NaN where the interval of the denominator's mean, from the same resamples, includes 0:
    the share is then undefined.
    """
    shares_NPC = _stack(part_NP, whole_NP)
    wholes_NPC = _stack(shares_NPC[..., 1], np.ones(shares_NPC.shape[:2]))
    both = bootstrap_many(np.concatenate([shares_NPC, wholes_NPC], axis=1), ratio_of_sums, **settings)
    shares, wholes = both[: shares_NPC.shape[1]], both[shares_NPC.shape[1] :]
    nothing = "the denominator's interval includes 0"
    return [
        share
        if whole.excludes(0.0)
        else unknown(math.nan, level=share.level, n=share.n, unit=share.unit, note=nothing)
        for share, whole in zip(shares, wholes, strict=True)
    ]


def loss_rate(nll_sum_N: npt.ArrayLike, num_bytes_N: npt.ArrayLike, **settings: Unpack[Settings]) -> Interval:
    """``loss_rates`` of one model."""
    return loss_rates(nll_sum_N, num_bytes_N, **settings)[0]


def paired_difference(
    first_nll_N: npt.ArrayLike,
    second_nll_N: npt.ArrayLike,
    num_bytes_N: npt.ArrayLike,
    second_num_bytes_N: npt.ArrayLike | None = None,
    **settings: Unpack[Settings],
) -> Interval:
    """``paired_differences`` of one pair: second less first."""
    return paired_differences(first_nll_N, second_nll_N, num_bytes_N, second_num_bytes_N, **settings)[0]


def mean_interval(values_N: npt.ArrayLike, **settings: Unpack[Settings]) -> Interval:
    """Plain mean over units; with groups, the mean over rows with whole groups resampled.

    Not for proportions near 0 or 1, where all rows can agree by chance: use ``wilson``.
    """
    values = np.asarray(values_N, dtype=np.float64)
    return loss_rate(values, np.ones(values.shape), **settings)

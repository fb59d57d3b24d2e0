"""Retention: of the items that a base answers, how many a descendant still answers, against the base itself.

Axes: B runs of the matched base, D recovered runs, N items, S studies (leading axes, none for one study).

K = share that a recovered run gets right of the items right in one matched-base run, over the share that
another matched-base run gets right of them, less 1. So what the fine-tune forgets of itself cancels out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import FloatArray, ratio

LEVEL = 0.95
_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class Retention:
    """K and its interval, each of shape S; ``known`` is the mean number of items that a base run answers.

    ``over_items`` and ``over_runs`` are the half widths of the two parts; the former is the mean of its two
    sides. NaN where fewer than two base runs, no recovered run or no item are there.
    """

    value: FloatArray
    lo: FloatArray
    hi: FloatArray
    known: FloatArray
    over_items: FloatArray
    over_runs: FloatArray


def tango_limits(
    gained: npt.ArrayLike, lost: npt.ArrayLike, num_items: npt.ArrayLike, *, level: float = LEVEL
) -> tuple[FloatArray, FloatArray]:
    """Tango's score limits for (gained - lost) / items, by bisection over whole arrays.

    As ``equivalence.paired_score_interval``, but counts may be means over runs, so no integers.
    """
    gained_S, lost_S, items_S = (np.asarray(each, dtype=np.float64) for each in (gained, lost, num_items))
    z = float(stats.norm.ppf((1 + level) / 2))
    return -_upper_limit(lost_S, gained_S, items_S, z), _upper_limit(gained_S, lost_S, items_S, z)


def _upper_limit(gained_S: FloatArray, lost_S: FloatArray, items_S: FloatArray, z: float) -> FloatArray:
    """The difference above the estimate at which the score statistic falls to -z; it decreases there."""
    with np.errstate(invalid="ignore", divide="ignore"):
        low = (gained_S - lost_S) / items_S
        high = np.ones_like(low)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            b = -gained_S - lost_S + (2 * items_S - gained_S + lost_S) * middle
            c = -lost_S * middle * (1 - middle)
            q = (np.sqrt(np.maximum(b * b - 8 * items_S * c, 0.0)) - b) / (4 * items_S)
            variance = np.maximum(items_S * (2 * q + middle * (1 - middle)), 0.0)
            # the statistic is above -z while the numerator is above -z standard errors
            above = gained_S - lost_S - items_S * middle > -z * np.sqrt(variance)
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(items_S > 0, (low + high) / 2, np.nan)


def retention(
    base_BN: npt.NDArray[np.bool_],
    recovered_DN: npt.NDArray[np.bool_],
    *,
    weight_N: FloatArray | None = None,
    level: float = LEVEL,
) -> Retention:
    """K with its interval from which items each run answered.

    Items: Tango's limits on the counts averaged over triples of runs (a base run that chooses the items,
    another base run, a recovered run). Runs: t on the influence of each run, its standard deviation pooled
    over both arms and at least 1 / (sqrt(3) x known), as if one of three runs had differed by one item:
    runs that all came out alike say nothing of other runs. Both parts in quadrature.

    Args:
        base_BN: [..., B, N], answered by each matched-base run.
        recovered_DN: [..., D, N], the same items for each recovered run.
        weight_N: of each item (copies of an item share a weight of one).
        level: of the interval.
    """
    num_items = base_BN.shape[-1]
    weights_N = np.ones(num_items) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    base, recovered = base_BN.astype(np.float64), recovered_DN.astype(np.float64)
    num_base, num_recovered = base.shape[-2], recovered.shape[-2]
    known = ((base * weights_N).sum(-1)).mean(-1)
    if num_base < 2 or num_recovered < 1:
        unknown = np.full(known.shape, np.nan)
        return Retention(unknown, unknown, unknown, known, unknown, unknown)
    # all that triples need: per item, how many runs of each arm answered it
    right_N, num_right_after_N = base.sum(-2), recovered.sum(-2)
    ordered = num_base * (num_base - 1)
    pairs_N = right_N * (right_N - 1) / ordered
    again = (pairs_N * weights_N).sum(-1)
    still = (right_N * num_right_after_N * weights_N).sum(-1) / (num_base * num_recovered)
    # gained: right in the choosing run, wrong in the other base run, right in the recovered run
    turned_N = right_N * (num_base - right_N) / ordered
    gained = (turned_N * num_right_after_N * weights_N).sum(-1) / num_recovered
    lost = (pairs_N * (num_recovered - num_right_after_N) * weights_N).sum(-1) / num_recovered
    value = ratio(still, again) - 1
    low, high = tango_limits(gained, lost, known, level=level)
    scale = ratio(known, again)
    below, above = value - low * scale, high * scale - value
    each = np.asarray(again)[..., None]
    # a base run counts twice in the denominator: once as the one that chooses, once as the other
    influences = (
        ratio(_overlap(base, num_right_after_N / num_recovered, weights_N), each)
        - 2 * (value + 1)[..., None] * ratio(_overlap_others(base, right_N, weights_N), each),
        ratio(_overlap(recovered, right_N / num_base, weights_N), each),
    )
    over_runs = _run_half_width(influences, known, level)
    return Retention(
        value, value - np.hypot(below, over_runs), value + np.hypot(above, over_runs), known,
        (below + above) / 2, over_runs,
    )  # fmt: skip


def _overlap(runs_RN: FloatArray, share_N: FloatArray, weights_N: FloatArray) -> FloatArray:
    """Items of each run, each counted by its share among the other arm's runs, [..., R]."""
    counts: FloatArray = (runs_RN * (share_N * weights_N)[..., None, :]).sum(-1)
    return counts


def _overlap_others(runs_RN: FloatArray, total_N: FloatArray, weights_N: FloatArray) -> FloatArray:
    """Items that each run shares with another run of its arm, mean over those, [..., R]."""
    others_RN = (total_N[..., None, :] - runs_RN) / (runs_RN.shape[-2] - 1)
    counts: FloatArray = (runs_RN * others_RN * weights_N).sum(-1)
    return counts


def _run_half_width(arms: tuple[FloatArray, FloatArray], known: FloatArray, level: float) -> FloatArray:
    """T quantile times the pooled, floored standard deviation times sqrt(sum of 1 / runs)."""
    degrees = sum(influence_R.shape[-1] - 1 for influence_R in arms)
    squares = sum(((influence_R - influence_R.mean(-1, keepdims=True)) ** 2).sum(-1) for influence_R in arms)
    floor = ratio(np.ones_like(known), math.sqrt(3) * known)
    deviation = np.maximum(np.sqrt(squares / degrees), floor)
    reach = float(stats.t.ppf((1 + level) / 2, degrees))
    widths: FloatArray = reach * deviation * math.sqrt(sum(1 / influence_R.shape[-1] for influence_R in arms))
    return widths

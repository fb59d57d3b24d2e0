"""Orderings: agreement of two, pairs that they order differently, and groups of indistinguishable items.

Axes: N items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import NUM_RESAMPLES
from stemmatics.math.scipy_modules import stats
from stemmatics.math.seeds import family_bootstrap
from stemmatics.math.sums import FloatArray


def _pair_of_arrays(first_N: npt.ArrayLike, second_N: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    x_N, y_N = np.asarray(first_N, dtype=np.float64), np.asarray(second_N, dtype=np.float64)
    if x_N.shape != y_N.shape or x_N.ndim != 1:
        raise UserError(
            f"orderings of shapes {x_N.shape} and {y_N.shape}",
            "they must be of the same items",
            "match them by item first",
        )
    return x_N, y_N


def _no_order(x_N: FloatArray, y_N: FloatArray) -> bool:
    """Whether a correlation is undefined: a value is unknown, or all values of a side are equal."""
    return x_N.size < 2 or bool(np.isnan([x_N, y_N]).any()) or np.ptp(x_N) == 0 or np.ptp(y_N) == 0


def kendall_tau_b(first_N: npt.ArrayLike, second_N: npt.ArrayLike) -> float:
    """Kendall's tau-b, corrected for ties (Biometrika 33, 1945); NaN where a side has no order."""
    x_N, y_N = _pair_of_arrays(first_N, second_N)
    return math.nan if _no_order(x_N, y_N) else float(stats.kendalltau(x_N, y_N, variant="b").statistic)


def spearman(first_N: npt.ArrayLike, second_N: npt.ArrayLike) -> float:
    """Spearman's rho: correlation of ranks, tied ones averaged; NaN where a side has no order."""
    x_N, y_N = _pair_of_arrays(first_N, second_N)
    if _no_order(x_N, y_N):
        return math.nan
    return float(np.corrcoef(stats.rankdata(x_N), stats.rankdata(y_N))[0, 1])


def spearman_interval(
    first_N: npt.ArrayLike,
    second_N: npt.ArrayLike,
    families_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Spearman's rho with families resampled whole; a resample without an order is dropped and counted."""
    x_N, y_N = _pair_of_arrays(first_N, second_N)

    def statistic(models: npt.NDArray[np.int64], _families: npt.NDArray[np.generic]) -> float:
        return spearman(x_N[models], y_N[models])

    return family_bootstrap(families_N, statistic, rng=rng, level=level, num_resamples=num_resamples)


@dataclass(frozen=True)
class Reversal:
    """Items ``lower`` and ``higher`` as the first ordering has them; the second has them the other way.

    ``first_gap`` is positive, ``second_gap`` negative: value of ``higher`` less value of ``lower``.
    """

    lower: int
    higher: int
    first_gap: float
    second_gap: float


def rank_reversals(first_N: npt.ArrayLike, second_N: npt.ArrayLike) -> list[Reversal]:
    """Pairs of items that two measurements order oppositely, largest second gap first; ties are none."""
    x_N, y_N = _pair_of_arrays(first_N, second_N)
    reversals = []
    for i in range(x_N.size):
        for j in range(x_N.size):
            first_gap, second_gap = float(x_N[j] - x_N[i]), float(y_N[j] - y_N[i])
            if first_gap > 0 > second_gap:
                reversals.append(Reversal(i, j, first_gap, second_gap))
    return sorted(reversals, key=lambda reversal: reversal.second_gap)


def indistinguishable_groups(
    values_N: npt.ArrayLike, differences: Mapping[tuple[int, int], Interval]
) -> list[tuple[int, ...]]:
    """The largest groups of pairwise indistinguishable items, items and groups in order of value.

    Being indistinguishable is not transitive, so groups may overlap: if 0 and 1 are, 1 and 2 are, but 0
    and 2 differ, the groups are (0, 1) and (1, 2). They are the maximal cliques of the graph of
    indistinguishable pairs (Bron and Kerbosch, Communications of the ACM 16, 1973).

    Args:
        values_N: what the items are ordered by.
        differences: for each pair (i, j) with i < j, the interval of its difference. A pair whose interval
            excludes 0 is distinguishable; one with unknown limits is not.
    """
    order = [int(i) for i in np.argsort(np.asarray(values_N, dtype=np.float64), kind="stable")]
    alike: dict[int, set[int]] = {i: set() for i in order}
    for i in range(len(order)):
        for j in range(i + 1, len(order)):
            if (i, j) not in differences:
                raise UserError(
                    f"no interval for the pair ({i}, {j})",
                    "every pair of items is compared",
                    "give the difference of every pair",
                )
            if not differences[i, j].excludes(0.0):
                alike[i].add(j)
                alike[j].add(i)
    groups: list[tuple[int, ...]] = []

    def grow(group: set[int], candidates: set[int], done: set[int]) -> None:
        if not candidates and not done:
            groups.append(tuple(sorted(group, key=order.index)))
            return
        pivot = max(candidates | done, key=lambda item: len(alike[item] & candidates))
        for item in sorted(candidates - alike[pivot]):
            grow(group | {item}, candidates & alike[item], done & alike[item])
            candidates = candidates - {item}
            done = done | {item}

    if order:
        grow(set(), set(order), set())
    return sorted(groups, key=lambda group: [order.index(item) for item in group])

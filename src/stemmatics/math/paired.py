"""Two models on the same items: the paired difference of a metric, with its test.

Axes: N items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.math.equivalence import mcnemar, paired_score_interval
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import mean_interval
from stemmatics.math.seeds import sign_flip_monte_carlo

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairedChange:
    """``difference`` is second less first; ``test`` names the test of "no difference" that gave ``p_value``.

    ``gained_N`` and ``lost_N`` are the items where the second is better, and worse.
    """

    first: float
    second: float
    difference: Interval
    p_value: float
    test: str
    gained_N: npt.NDArray[np.bool_]
    lost_N: npt.NDArray[np.bool_]


def is_binary(*values: FloatArray) -> bool:
    """Whether all values are 0 or 1."""
    return all(bool(np.isin(values_N, (0.0, 1.0)).all()) for values_N in values)


def paired_change(
    first_N: FloatArray,
    second_N: FloatArray,
    *,
    rng: np.random.Generator,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> PairedChange:
    """The change of a mean over items.

    Right or wrong, items on their own: Tango's score interval and McNemar's mid-p, at every number of items
    (Fagerland, Lydersen and Laake 2013: the exact test is conservative). Other values, or items that share a
    cluster (questions on one passage): a bootstrap interval over items or clusters, and the random sign-flip
    test by item or cluster.

    Args:
        first_N: the first model's value of each item.
        second_N: the second's, in the same order.
        rng: for bootstrap and sign flips.
        clusters: label of each item's cluster.
        level: of the interval.
    """
    change_N = second_N - first_N
    gained_N, lost_N = change_N > 0, change_N < 0
    if clusters is None and is_binary(first_N, second_N):
        gained, lost = int(gained_N.sum()), int(lost_N.sum())
        difference = paired_score_interval(gained, lost, len(change_N), level=level, unit="item")
        p_value, test = mcnemar(gained, lost).mid_p, "McNemar mid-p"
    else:
        unit = "item" if clusters is None else "cluster"
        difference = mean_interval(change_N, rng=rng, groups=clusters, level=level, unit="item")
        flips = sign_flip_monte_carlo(change_N, rng=rng, groups=clusters)
        p_value, test = flips.p_value, f"sign flip by {unit}"
    first, second = (
        float(values_N.mean()) if len(values_N) else math.nan for values_N in (first_N, second_N)
    )
    return PairedChange(first, second, difference, p_value, test, gained_N, lost_N)

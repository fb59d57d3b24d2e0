"""Paired changes: against brute force, and by simulation."""

import itertools

import numpy as np
import pytest

from stemmatics.math.equivalence import paired_score_interval
from stemmatics.math.paired import is_binary, paired_change


def brute_mid_p(gained, lost):
    """Twice the smaller tail of a fair coin, the outcome itself at half its weight; of a tie, 1 less that."""
    n = gained + lost
    counts = [0] * (n + 1)
    for flips in itertools.product((0, 1), repeat=n):
        counts[sum(flips)] += 1
    if gained == lost:
        return 1.0 - 0.5 * counts[gained] / 2**n * (n > 0)
    tail = sum(counts[k] for k in range(min(gained, lost))) + 0.5 * counts[min(gained, lost)]
    return min(1.0, 2 * tail / 2**n)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 2), (7, 1), (4, 4), (0, 9)])
def test_right_and_wrong_answers_have_mid_p_and_tangos_interval(gained, lost):
    first = np.array([0.0] * gained + [1.0] * lost + [1.0] * 5)
    second = np.array([1.0] * gained + [0.0] * lost + [1.0] * 5)
    change = paired_change(first, second, rng=np.random.default_rng(0))
    assert change.p_value == pytest.approx(brute_mid_p(gained, lost))
    assert (int(change.gained_N.sum()), int(change.lost_N.sum())) == (gained, lost)
    expected = paired_score_interval(gained, lost, len(first), unit="item")
    assert (change.difference.lo, change.difference.hi) == (expected.lo, expected.hi)
    assert change.second - change.first == pytest.approx(change.difference.value)
    assert change.test == "McNemar mid-p"


def test_other_values_and_clusters_are_resampled():
    rng = np.random.default_rng(1)
    first = rng.normal(size=60)
    change = paired_change(first, first + 0.5 + 0.1 * rng.normal(size=60), rng=rng)
    assert change.test == "sign flip by item"
    assert change.p_value < 1e-3
    assert change.difference.lo < 0.5 < change.difference.hi
    # copies of an item are no more evidence than the item
    clusters = np.repeat(np.arange(30), 2)
    base, tuned = rng.integers(0, 2, (2, 30)).astype(float)
    copied = paired_change(np.repeat(base, 2), np.repeat(tuned, 2), rng=rng, clusters=clusters)
    assert copied.difference.n == 30
    assert copied.test == "sign flip by cluster"
    assert not is_binary(np.array([0.0, 0.5]))


def test_no_difference_is_called_in_five_percent_and_the_interval_covers():
    """Half the items at .45 and half at .85, two independent answers, n = 200."""
    rng = np.random.default_rng(2)
    rate = np.repeat([0.45, 0.85], 100)
    false = covered = exact = 0
    for _ in range(1500):
        first, second = (rng.random((2, 200)) < rate).astype(float)
        change = paired_change(first, second, rng=rng)
        false += change.p_value < 0.05
        covered += change.difference.lo <= 0 <= change.difference.hi
        gained, lost = int(change.gained_N.sum()), int(change.lost_N.sum())
        exact += 2 * min(_tail(gained, lost), 0.5) < 0.05
    assert 0.035 < false / 1500 < 0.062
    assert 0.935 < covered / 1500 < 0.965
    assert exact < false


def _tail(gained, lost):
    from scipy.stats import binom

    return float(binom.cdf(min(gained, lost), gained + lost, 0.5))

"""Ceilings, order and verdicts: against brute force, and by simulation with known truth."""

import itertools

import numpy as np
import pytest

from stemmatics.core.errors import UserError
from stemmatics.math.elicitation.ceiling import (
    ceiling_interval,
    cross_fitted,
    estimate_ceilings,
    group_sums,
    interval_of,
    judge_gain,
)
from stemmatics.math.elicitation.order import clear_flips, count_flips, order_recipes
from stemmatics.math.equivalence import mcnemar


def brute_ceiling(scores, first):
    """One checkpoint [I, R]: each half chooses, the other scores; ties are averaged."""
    items = range(len(scores))
    halves = ([i for i in items if first[i]], [i for i in items if not first[i]])
    results = []
    for chooser, scorer in (halves, halves[::-1]):
        means = [np.mean([scores[i][r] for i in chooser]) for r in range(scores.shape[1])]
        best = [r for r, mean in enumerate(means) if abs(mean - max(means)) < 1e-9]
        results.append(np.mean([np.mean([scores[i][r] for i in scorer]) for r in best]))
    return np.mean(results)


def test_the_cross_fitted_ceiling_by_brute_force():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, (7, 3, 2)).astype(float)
    halves = np.array([h for h in itertools.product((False, True), repeat=7) if sum(h) == 3])
    values, chosen = cross_fitted(scores, np.ones(7), np.ones((len(halves), 7)), halves)
    for k, half in enumerate(halves):
        for c in range(2):
            assert values[k, c] == pytest.approx(brute_ceiling(scores[:, :, c], half))
    assert chosen.sum(axis=1) == pytest.approx(np.ones((len(halves), 2)))
    # a weight of two is the item twice, in one half
    weights = np.array([[2, 0, 1, 1, 1, 1, 1]])
    copied = scores[[0, 0, 2, 3, 4, 5, 6]]
    weighted, _ = cross_fitted(scores, np.ones(7), weights, halves[-1:])
    assert weighted[0, 0] == pytest.approx(brute_ceiling(copied[:, :, 0], halves[-1][[0, 0, 2, 3, 4, 5, 6]]))


def test_groups_are_added_up_and_never_split():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 2, (30, 4, 1)).astype(float)
    copies, labels = np.repeat(scores, 3, axis=0), np.repeat(np.arange(30), 3)
    sums, counts = group_sums(copies, labels)
    assert sums == pytest.approx(3 * scores)
    assert (counts == 3).all()
    settings = {"num_resamples": 100}
    alone = estimate_ceilings(scores, rng=np.random.default_rng(0), **settings)
    grouped = estimate_ceilings(copies, rng=np.random.default_rng(0), groups_I=labels, **settings)
    assert grouped.values_C == pytest.approx(alone.values_C)
    assert ceiling_interval(grouped, 0).standard_error == pytest.approx(
        ceiling_interval(alone, 0).standard_error
    )
    assert (grouped.num_groups, grouped.unit, alone.unit) == (30, "group", "item")
    with pytest.raises(UserError):
        estimate_ceilings(scores[:1], rng=rng)


def test_copies_that_straddle_the_halves_would_raise_the_ceiling():
    rng, excess = np.random.default_rng(2), []
    for _ in range(40):
        scores = np.repeat(rng.integers(0, 2, (60, 8, 1)), 2, axis=0).astype(float)
        labels = np.repeat(np.arange(60), 2)
        both = [
            estimate_ceilings(scores, rng=rng, groups_I=groups, num_resamples=2).values_C[0]
            for groups in (None, labels)
        ]
        excess.append(both[0] - both[1])
    assert np.mean(excess) > 0.01


def answers(difficulty, *shifts, rng):
    """[I, R, C] answers: the probability is the item's plus the shift of recipe and checkpoint."""
    probability = difficulty[:, None, None] + np.stack(shifts, axis=-1)
    return (rng.random(probability.shape) < probability).astype(float)


def test_eight_equal_recipes_the_largest_mean_is_too_high_and_the_ceiling_is_not():
    rng, naive, values, covered = np.random.default_rng(3), [], [], 0
    for _ in range(150):
        scores = answers(rng.beta(0.7, 0.7, 200) * 0.8 + 0.1, np.zeros(8), rng=rng)
        ceilings = estimate_ceilings(scores, rng=rng, num_resamples=150)
        interval = ceiling_interval(ceilings, 0)
        naive.append(ceilings.naive_C[0])
        values.append(interval.value)
        covered += interval.lo <= 0.5 <= interval.hi
        assert ceilings.naive_C[0] >= interval.value
    assert 0.535 < np.mean(naive) < 0.555
    assert np.mean(values) == pytest.approx(0.5, abs=3.5 * np.std(values) / 150**0.5)
    assert covered / 150 > 0.91


@pytest.mark.parametrize(
    ("shifts", "never", "likely"),
    [
        # nothing changed
        ((np.zeros(6), np.zeros(6)), "ceiling raised", "no gain"),
        # the untrained checkpoint has the better recipe already, the trained one needs no choice
        ((np.r_[-0.1, np.full(5, 0.1)], np.full(6, 0.1)), "ceiling raised", "match"),
        # every recipe gains
        ((np.zeros(6), np.full(6, 0.15)), "match", "ceiling raised"),
        # at the boundary: half of the gain is left
        ((np.r_[0, 0.1, np.zeros(4)], np.r_[0.2, np.zeros(5)]), "match", "ceiling raised"),
    ],
)
def test_verdicts_are_seldom_false(shifts, never, likely):
    rng, repeats, counts = np.random.default_rng(4), 80, {}
    for _ in range(repeats):
        scores = answers(rng.beta(0.7, 0.7, 250) * 0.6 + 0.15, *shifts, rng=rng)
        verdict = judge_gain(estimate_ceilings(scores, rng=rng, num_resamples=150), 0, 0, 1).verdict
        counts[verdict] = counts.get(verdict, 0) + 1
    # 2.5% nominal; 6 of 80 has a probability of 1% then
    assert counts.get(never, 0) <= 5
    assert counts.get(likely, 0) >= 0.4 * repeats


def test_a_claim_is_paired():
    rng = np.random.default_rng(5)
    scores = np.repeat(rng.integers(0, 2, (50, 3, 1)), 2, axis=2).astype(float)
    claim = judge_gain(estimate_ceilings(scores, rng=rng, num_resamples=50), 1, 0, 1)
    assert (claim.gain.value, claim.ceiling.value, claim.ceiling.standard_error) == (0, 0, 0)
    assert claim.verdict == "no gain"


def test_too_few_items_have_no_interval():
    ceilings = estimate_ceilings(np.ones((3, 2, 1)), rng=np.random.default_rng(0), num_resamples=20)
    nothing = interval_of(1.0, np.array([np.nan]), ceilings)
    assert np.isnan(nothing.lo)
    assert "under 20" in ceiling_interval(ceilings, 0).note


def test_order_and_top_group_by_hand():
    rng = np.random.default_rng(6)
    scores = np.zeros((40, 3))
    scores[:30, 0], scores[:28, 1], scores[:5, 2] = 1, 1, 1
    order = order_recipes(scores, rng=rng)
    assert (order.best, order.top_group) == (0, (0, 1))
    raw = {(p.first, p.second): p.p_value for p in order.pairs}
    assert raw[0, 2] == pytest.approx(mcnemar(0, 25).mid_p)
    assert raw[0, 1] == pytest.approx(mcnemar(0, 2).mid_p)
    smallest = min(order.pairs, key=lambda p: p.p_value)
    assert smallest.p_holm == pytest.approx(3 * smallest.p_value)
    # groups: copies are no more evidence than the item
    copied = order_recipes(np.repeat(scores, 3, 0), rng=rng, groups_I=np.repeat(np.arange(40), 3))
    assert {p.test for p in copied.pairs} == {"sign flip"}
    assert copied.top_group == (0, 1)


def test_of_equal_recipes_few_leave_the_top_group():
    rng, left = np.random.default_rng(7), 0
    for _ in range(400):
        scores = answers(rng.uniform(0.2, 0.8, 100), np.zeros(6), rng=rng)[:, :, 0]
        left += len(order_recipes(scores, rng=rng).top_group) < 6
    assert left / 400 < 0.08


def test_flips_by_brute_force():
    rng = np.random.default_rng(8)
    means = rng.integers(0, 4, (5, 4)) / 4
    flipped = compared = tied = 0
    for r, q in itertools.combinations(range(5), 2):
        for a, b in itertools.combinations(range(4), 2):
            product = (means[r, a] - means[q, a]) * (means[r, b] - means[q, b])
            flipped += product < 0
            compared += product != 0
            tied += product == 0
    flips = count_flips(means)
    assert (flips.num_flipped, flips.num_compared, flips.num_tied) == (flipped, compared, tied)
    assert flips.share == flipped / compared
    assert np.isnan(count_flips(np.ones((2, 2))).share)
    first = np.c_[np.ones(40), np.zeros(40)]
    orders = [order_recipes(x, rng=rng) for x in (first, 1 - first, np.ones((40, 2)))]
    clear = clear_flips(orders)
    assert (clear.num_flipped, clear.num_compared, clear.num_tied) == (1, 1, 2)

"""Bins and quantiles of divergences against brute force, and the coverage of the quantiles' interval."""

import math

import numpy as np
import pytest
from scipy import stats

from stemmatics.math.divergence import (
    FEWEST_IN_TAIL,
    LARGEST,
    NUM_BINS,
    RATIO,
    SMALLEST,
    bin_of,
    quantile,
    quantile_interval,
    representative,
)


def counts_of(values):
    return np.bincount(bin_of(values), minlength=NUM_BINS)


def test_every_bin_stands_for_its_values_within_one_per_cent():
    values = np.exp(np.random.default_rng(0).uniform(math.log(SMALLEST), math.log(LARGEST), 20_000))
    stand_ins = np.array([representative(number) for number in bin_of(values)])
    assert np.max(np.abs(stand_ins / values - 1)) <= (math.sqrt(RATIO) - 1) * (1 + 1e-9)
    assert math.sqrt(RATIO) - 1 < 0.01


@pytest.mark.parametrize("value", [0.0, -1e-12, 9e-10])
def test_zero_and_what_is_below_the_smallest_is_zero(value):
    assert bin_of([value])[0] == 0
    assert representative(0) == 0.0


@pytest.mark.parametrize("value", [2 * LARGEST, 1e9, math.inf])
def test_what_is_above_the_largest_is_kept_apart(value):
    assert bin_of([value])[0] == NUM_BINS - 1
    assert representative(NUM_BINS - 1) == math.inf
    assert bin_of([LARGEST / RATIO])[0] < NUM_BINS - 1


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.99, 0.999])
def test_a_quantile_is_that_of_the_sorted_values_within_one_per_cent(probability):
    values = np.random.default_rng(1).lognormal(-3, 2, 20_000)
    exact = np.sort(values)[math.ceil(probability * len(values)) - 1]
    assert quantile(counts_of(values), probability) == pytest.approx(exact, rel=0.01)


def test_counts_add_up_in_any_order():
    values = np.random.default_rng(2).lognormal(-3, 2, 1_000)
    parts = [counts_of(part) for part in np.split(values[::-1], 10)]
    np.testing.assert_array_equal(sum(parts), counts_of(values))


@pytest.mark.parametrize(("total", "known"), [(99, False), (100, True)])
def test_a_quantile_needs_tokens_beyond_it(total, known):
    assert FEWEST_IN_TAIL == 10
    values = np.linspace(0.1, 1.0, total)
    assert math.isnan(quantile(counts_of(values), 0.9)) != known
    interval = quantile_interval(counts_of(values)[None], 0.9)
    assert math.isnan(interval.value) != known
    if not known:
        assert "beyond it" in interval.note


def test_one_document_has_no_interval():
    interval = quantile_interval(counts_of(np.linspace(0.1, 1.0, 100))[None], 0.5)
    assert interval.value == pytest.approx(0.55, rel=0.02)
    assert math.isnan(interval.lo)
    assert interval.n == 1


def test_the_interval_follows_woodruff_by_hand():
    rng = np.random.default_rng(3)
    values = [rng.lognormal(rng.normal(-3, 0.5), 1, 200) for _ in range(30)]
    interval = quantile_interval(np.stack([counts_of(part) for part in values]), 0.9)
    everything = np.sort(np.concatenate(values))
    at = interval.value * math.sqrt(RATIO)  # the upper end of its bin
    assert 0.9 <= (everything <= at).mean() <= 0.92
    below = np.array([(part <= at).sum() for part in values])
    share = below.sum() / everything.size
    error = math.sqrt(30 / 29 * (((below - share * 200) / everything.size) ** 2).sum())
    residual = below - share * 200
    degrees = min(60 / ((residual**4).mean() / (residual**2).mean() ** 2 - 1), 29)
    reach = stats.t.ppf(0.975, degrees) * error
    lo, hi = (everything[math.ceil((0.9 + sign * reach) * everything.size) - 1] for sign in (-1, 1))
    assert interval.lo == pytest.approx(lo, rel=0.03)
    assert interval.hi == pytest.approx(hi, rel=0.03)
    assert interval.method == "Woodruff, documents"
    assert (interval.n, interval.unit) == (30, "document")


def test_near_duplicates_count_once():
    rng = np.random.default_rng(4)
    counts = np.stack([counts_of(rng.lognormal(rng.normal(-3, 1), 1, 100)) for _ in range(20)])
    copies = np.concatenate([counts, counts])
    groups = np.array([*range(20), *range(20)]).astype(str)
    single, doubled = quantile_interval(counts, 0.5), quantile_interval(copies, 0.5, groups=groups)
    assert (doubled.lo, doubled.hi) == (single.lo, single.hi)
    assert (doubled.n, doubled.unit) == (20, "group of documents")
    assert quantile_interval(copies, 0.5).hi < single.hi


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.99])
def test_the_interval_covers_the_population_quantile(probability):
    """Documents with means of their own; 400 studies of 60 documents, the truth from 4 million tokens."""
    rng = np.random.default_rng(5)

    def draw(num_documents, num_tokens):
        return np.exp(rng.normal(rng.normal(-3, 0.7, (num_documents, 1)), 1.0, (num_documents, num_tokens)))

    truth = np.quantile(draw(40_000, 100), probability)
    covered = []
    for _ in range(400):
        numbers = bin_of(draw(60, 100))
        counts = np.zeros((60, NUM_BINS), dtype=np.int64)
        np.add.at(counts, (np.arange(60)[:, None], numbers), 1)
        interval = quantile_interval(counts, probability)
        # the bins' own 1% is part of the answer
        covered.append(interval.lo * 0.99 <= truth <= interval.hi * 1.01)
    assert 0.925 <= np.mean(covered) <= 0.985

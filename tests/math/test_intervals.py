import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from stemmatics.core.errors import UserError
from stemmatics.math import intervals


def test_wilson_of_none_in_twenty():
    result = intervals.wilson(0, 20)
    assert result.lo == 0.0
    assert result.hi == pytest.approx(0.161, abs=5e-4)
    assert intervals.wilson(20, 20).lo == pytest.approx(1 - result.hi, abs=1e-12)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_inverts_the_score_test(counts):
    k, n = counts
    result = intervals.wilson(k, n)
    z = stats.norm.ppf(0.975)

    def score(p):
        return (k / n - p) ** 2 - z * z * p * (1 - p) / n

    assert result.lo < result.hi
    assert result.standard_error > 0
    if k < n:
        assert result.hi == pytest.approx(optimize.brentq(score, k / n + 1e-15, 1.0, xtol=1e-15), abs=1e-12)
    if k > 0:
        assert result.lo == pytest.approx(optimize.brentq(score, 0.0, k / n - 1e-15, xtol=1e-15), abs=1e-12)


@pytest.mark.parametrize("n", [10, 20, 50, 200])
def test_wilson_covers_on_average_over_a_grid(n):
    grid = np.linspace(0.01, 0.99, 197)
    limits = [intervals.wilson(k, n) for k in range(n + 1)]
    coverage = [
        sum(stats.binom.pmf(k, n, p) for k, result in enumerate(limits) if result.lo <= p <= result.hi)
        for p in grid
    ]
    assert 0.94 <= float(np.mean(coverage)) <= 0.965


def test_t_interval_by_hand():
    result = intervals.t_interval([1.0, 2.0, 4.0, 7.0])
    error = math.sqrt(sum((x - 3.5) ** 2 for x in (1, 2, 4, 7)) / 3 / 4)
    assert result.standard_error == pytest.approx(error, rel=1e-12)
    assert result.hi - 3.5 == pytest.approx(3.182446305284263 * error, rel=1e-10)
    assert result.smallest_effect == pytest.approx((3.182446305284263 + 0.978472312) * error, rel=1e-8)


def test_t_interval_of_differences_is_scipys_paired_t():
    first, second = np.array([1.0, 2.5, 3.0, 4.2, 5.1]), np.array([1.3, 2.2, 3.9, 4.9, 5.0])
    expected = stats.ttest_rel(second, first).confidence_interval(0.9)
    result = intervals.t_interval(second - first, level=0.9)
    np.testing.assert_allclose([result.lo, result.hi], [expected.low, expected.high], rtol=1e-12)


def test_smallest_effect_is_found_in_four_of_five_repeats():
    rng = np.random.default_rng(4)
    effect = intervals.smallest_effect(1 / math.sqrt(30), 29)
    tests = stats.ttest_1samp(rng.normal(effect, 1, size=(30, 6000)), 0)
    assert 0.78 < (tests.pvalue < 0.05).mean() < 0.82


def test_too_few_values():
    for values in ([], [1.0]):
        result = intervals.t_interval(values)
        assert math.isnan(result.lo)
        assert math.isnan(result.smallest_effect)
    assert math.isnan(intervals.wilson(0, 0).hi)


def test_equal_values_have_no_width_and_a_note():
    result = intervals.t_interval([0.1, 0.1, 0.1])
    assert (result.lo, result.hi) == (result.value, result.value)
    assert "no variation" in result.note


def test_independent_parts_combine_by_welch():
    x, y = [1.0, 2.0, 4.0, 7.0], [2.0, 2.5, 3.5]
    expected = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    parts = [intervals.t_interval(x), intervals.t_interval(y)]
    result = intervals.combine_independent(parts, [1.0, -1.0])
    np.testing.assert_allclose([result.lo, result.hi], [expected.low, expected.high], rtol=1e-12)
    assert intervals.combine_independent(parts).value == pytest.approx((3.5 + 8 / 3) / 2, rel=1e-12)


def test_excludes_needs_known_limits():
    result = intervals.t_interval([1.0, 1.1, 1.2])
    assert result.excludes(0.0)
    assert not result.excludes(1.1)
    assert not intervals.t_interval([1.0]).excludes(0.0)


def test_wrong_counts_are_refused():
    with pytest.raises(UserError, match="successes"):
        intervals.wilson(21, 20)


def test_units_have_plurals():
    assert [intervals.plural(unit) for unit in ("prompt", "family", "group of documents")] == [
        "prompts",
        "families",
        "groups of documents",
    ]

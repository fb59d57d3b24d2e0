import math

import numpy as np
import pytest

from stemmatics.core.errors import UserError
from stemmatics.math import rates


def generator():
    return np.random.default_rng(8)


@pytest.fixture
def scores():
    rng = np.random.default_rng(2)
    num_bytes = rng.lognormal(6, 1, 80).round()
    first = num_bytes * rng.normal(0.9, 0.1, 80)
    second = first + num_bytes * rng.normal(0.02, 0.03, 80)
    return first, second, num_bytes


def test_values_are_ratios_of_sums(scores):
    first, second, num_bytes = scores
    rate = rates.loss_rate(first, num_bytes, rng=generator())
    assert rate.value == pytest.approx(math.fsum(first) / math.fsum(num_bytes), rel=1e-12)
    change = rates.paired_difference(first, second, num_bytes, rng=generator())
    assert change.value == pytest.approx(
        (math.fsum(second) - math.fsum(first)) / math.fsum(num_bytes), rel=1e-12
    )
    tokens = (num_bytes / 4).round() + 1
    apart = rates.paired_difference(first, second, num_bytes, tokens, rng=generator())
    expected = math.fsum(second) / math.fsum(tokens) - math.fsum(first) / math.fsum(num_bytes)
    assert apart.value == pytest.approx(expected, rel=1e-12)
    assert apart.lo < apart.value < apart.hi
    assert (change.n, change.unit, change.note) == (80, "document", "")


def test_both_forms_of_the_difference_agree_for_one_denominator(scores):
    first, second, num_bytes = scores
    single = rates.paired_difference(first, second, num_bytes, rng=generator())
    columns = np.stack([first, num_bytes, second, num_bytes], axis=1)
    (general,) = rates.bootstrap_many(columns[:, None, :], rates.difference_of_ratios, rng=generator())
    np.testing.assert_allclose(
        [general.value, general.lo, general.hi], [single.value, single.lo, single.hi], rtol=1e-9
    )


def test_pairing_makes_the_interval_narrow(scores):
    first, second, num_bytes = scores
    paired = rates.paired_difference(first, second, num_bytes, rng=generator())
    single = rates.loss_rate(second, num_bytes, rng=generator())
    assert paired.hi - paired.lo < (single.hi - single.lo) / 2


def test_a_model_against_itself_is_exactly_zero(scores):
    first, _, num_bytes = scores
    for second_bytes in (None, num_bytes.copy()):
        same = rates.paired_difference(first, first, num_bytes, second_bytes, rng=generator())
        assert (same.value, same.lo, same.hi, same.smallest_effect) == (0.0, 0.0, 0.0, 0.0)
        assert "no variation" in same.note


def test_equal_rates_differ_by_rounding_only():
    num_bytes = np.arange(4.0, 90.0)
    result = rates.loss_rate(num_bytes * np.log(64) / 4, num_bytes, rng=generator())
    assert result.lo == result.hi == result.value == pytest.approx(np.log(64) / 4, rel=1e-14)
    assert (result.standard_error, result.note) == (0.0, "no variation between documents")


def test_many_pairs_equal_one_at_a_time(scores):
    first, second, num_bytes = scores
    seconds = np.stack([second, second * 1.1, first + 1], axis=1)
    together = rates.paired_differences(first, seconds, num_bytes, rng=generator())
    for p, result in enumerate(together):
        alone = rates.paired_difference(first, seconds[:, p], num_bytes, rng=generator())
        np.testing.assert_allclose(
            [result.value, result.lo, result.hi], [alone.value, alone.lo, alone.hi], rtol=1e-9
        )


def test_copies_of_documents_do_not_narrow_the_interval_when_grouped(scores):
    first, _, num_bytes = scores
    twice = np.concatenate
    once = rates.loss_rate(first, num_bytes, rng=generator())
    copied = [twice([first, first]), twice([num_bytes, num_bytes])]
    naive = rates.loss_rate(*copied, rng=generator())
    grouped = rates.loss_rate(*copied, groups=np.tile(np.arange(80), 2), rng=generator())
    np.testing.assert_allclose([grouped.lo, grouped.hi], [once.lo, once.hi], rtol=1e-9)
    assert naive.hi - naive.lo < 0.8 * (once.hi - once.lo)
    assert (grouped.n, grouped.unit) == (80, "group of documents")


def test_share_of_nothing_is_unknown():
    rng = np.random.default_rng(0)
    whole = rng.normal(0, 1, 60)
    (share,) = rates.ratios_of_means(whole * 0.3, whole, rng=generator())
    assert math.isnan(share.value)
    assert math.isnan(share.lo)
    assert "includes 0" in share.note


def test_shares_are_not_clipped():
    rng = np.random.default_rng(0)
    whole = rng.normal(1, 0.2, 60)
    (over,) = rates.ratios_of_means(1.4 * whole + rng.normal(0, 0.1, 60), whole, rng=generator())
    (under,) = rates.ratios_of_means(-0.3 * whole + rng.normal(0, 0.1, 60), whole, rng=generator())
    assert over.lo > 1.3
    assert under.hi < -0.2


@pytest.mark.parametrize("num_units", [0, 1])
def test_fewer_than_two_units_have_no_limits(num_units):
    result = rates.loss_rate(np.ones(num_units), np.full(num_units, 2.0), rng=generator())
    assert math.isnan(result.lo)
    assert math.isnan(result.smallest_effect)
    assert result.value == 0.5 if num_units else math.isnan(result.value)


def test_few_units_get_the_t_interval_with_a_note():
    result = rates.mean_interval([1.0, 2.0, 4.0], rng=generator())
    assert result.method == "jackknife-t"
    error = np.std([1, 2, 4], ddof=1) / math.sqrt(3)
    assert result.hi - result.value == pytest.approx(4.302652729911275 * error, rel=1e-10)
    assert "coverage may be under" in result.note


def test_unknown_losses_stay_unknown():
    result = rates.loss_rate([1.0, math.nan, 2.0, 1.0, 1.5, 2.0], np.full(6, 4.0), rng=generator())
    assert math.isnan(result.value)
    assert math.isnan(result.hi)
    assert "unknown" in result.note


def test_one_document_that_differs_among_many_has_no_limits():
    change = np.zeros(10)
    change[3] = 1.0
    result = rates.mean_interval(change, rng=generator())
    assert result.value == 0.1
    assert math.isnan(result.hi)
    assert "too few" in result.note


def test_undefined_resamples_are_counted():
    num_bytes = np.array([0.0, 0, 0, 0, 10, 12])
    result = rates.loss_rate(num_bytes * [1, 1, 1, 1, 0.8, 0.9], num_bytes, rng=generator(), method="bca")
    assert "resamples undefined, left out" in result.note
    assert math.isfinite(result.hi)


def test_wrong_use_is_refused(scores):
    first, second, num_bytes = scores
    with pytest.raises(UserError, match="same documents"):
        rates.paired_difference(first, second[1:], num_bytes, rng=generator())
    with pytest.raises(UserError, match="probability"):
        rates.loss_rate(first, num_bytes, rng=generator(), level=95)

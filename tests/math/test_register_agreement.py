"""Agreement of two orders by number of registers."""

import itertools
import math

import numpy as np
import pytest

from stemmatics.math.ranks import spearman
from stemmatics.math.register_agreement import (
    MOST_SUBSETS,
    agreement_by_registers,
    limits_if_varied,
    mean_spearman,
    subset_losses,
    subsets,
)


def test_all_choices_or_as_many_as_are_allowed():
    rng = np.random.default_rng(0)
    assert subsets(4, 2, rng).sum(1).tolist() == [2] * 6
    many = subsets(9, 4, rng)
    assert many.shape == (MOST_SUBSETS, 9)
    assert len({tuple(row) for row in many}) == MOST_SUBSETS


def test_the_mean_over_choices_by_brute_force():
    rng = np.random.default_rng(1)
    native, rebased = rng.random((3, 7)), rng.random((3, 7))
    num_bytes = np.array([10.0, 20.0, 5.0])
    result = agreement_by_registers(native, rebased, num_bytes, np.arange(7) % 4, rng=rng, num_resamples=50)
    for size, interval in enumerate(result, 1):
        expected = [
            spearman(
                [native[list(chosen), m].sum() / num_bytes[list(chosen)].sum() for m in range(7)],
                [rebased[list(chosen), m].sum() / num_bytes[list(chosen)].sum() for m in range(7)],
            )
            for chosen in itertools.combinations(range(3), size)
        ]
        assert interval.value == pytest.approx(np.mean(expected), abs=1e-12)


def test_ties_have_average_ranks_and_no_order_is_left_out():
    first = np.array([[1.0, 1.0, 2.0, 3.0], [5.0, 5.0, 5.0, 5.0]])
    second = np.array([[4.0, 2.0, 2.0, 9.0], [1.0, 2.0, 3.0, 4.0]])
    assert mean_spearman(first, second) == pytest.approx(spearman(first[0], second[0]), abs=1e-12)
    assert math.isnan(mean_spearman(first[1:], second[1:]))


def test_two_families_give_no_limits():
    rng = np.random.default_rng(2)
    result = agreement_by_registers(
        rng.random((2, 4)), rng.random((2, 4)), [1.0, 1.0], ["a", "a", "b", "b"], rng=rng, num_resamples=50
    )
    assert all(math.isnan(interval.lo) for interval in result)
    assert "no limits" in result[0].note
    assert limits_if_varied(result[0]) == result[0]


@pytest.mark.known
def test_more_registers_bring_the_orders_together_where_noise_is_theirs():
    """Orders that share a truth and differ by register: agreement rises with their number."""
    rng = np.random.default_rng(3)
    rises = 0
    for _ in range(100):
        truth = rng.normal(0, 1, 16)
        native = truth + rng.normal(0, 1.5, (6, 16)) + 10
        rebased = truth + rng.normal(0, 0.3, (6, 16)) + 10
        result = agreement_by_registers(
            native, rebased, np.ones(6), np.arange(16) // 2, rng=rng, num_resamples=10
        )
        rises += result[-1].value > result[0].value
    assert rises >= 90


def test_losses_of_a_choice_are_nats_over_bytes():
    nats_RM, bytes_R = np.array([[2.0, 4.0], [30.0, 90.0]]), np.array([10.0, 20.0])
    chosen_SR = np.array([[True, False], [False, True], [True, True]])
    assert subset_losses(nats_RM, bytes_R, chosen_SR) == pytest.approx(
        np.array([[0.2, 0.4], [1.5, 4.5], [32 / 30, 94 / 30]])
    )

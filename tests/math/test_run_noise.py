"""Run noise: pooled by hand, and its interval with known truth."""

import math

import numpy as np
import pytest

from stemmatics.math.intervals import t_interval
from stemmatics.math.run_noise import pooled_deviation, run_component, with_runs


def test_the_pooled_deviation_by_brute_force():
    arms = [np.array([0.1, 0.4, 0.3]), np.array([2.0]), np.array([1.0, 1.2])]
    squares = 0.0
    for runs in arms:
        mean = sum(runs) / len(runs)
        squares += sum((loss - mean) ** 2 for loss in runs)
    result = pooled_deviation(arms)
    assert result.value == pytest.approx(math.sqrt(squares / 3), rel=1e-12)
    assert result.n == 4
    assert result.lo < result.value < result.hi


def test_without_a_repeat_nothing_is_known():
    result = pooled_deviation([np.array([1.0]), np.array([2.0])])
    assert math.isnan(result.value)
    documents = t_interval([0.1, 0.2, 0.4], unit="document")
    whole = with_runs(documents, run_component(result, [1, 1]))
    assert whole.value == documents.value
    assert math.isnan(whole.lo)
    assert "no arm has two runs" in whole.note


def test_a_component_counts_each_arm_by_its_runs():
    noise = pooled_deviation([np.array([0.0, 2.0])])
    assert noise.value == pytest.approx(math.sqrt(2))
    assert run_component(noise, [1, 2]).standard_error == pytest.approx(math.sqrt(2) * math.sqrt(1.5))


def test_both_components_add_in_quadrature():
    documents = t_interval([0.1, 0.2, 0.4, 0.3], unit="document")
    run = run_component(pooled_deviation([np.array([0.0, 0.1]), np.array([0.3, 0.1])]), [1, 1])
    whole = with_runs(documents, run)
    expected = math.hypot(documents.standard_error, run.standard_error)
    assert whole.standard_error == pytest.approx(expected, rel=1e-12)
    assert whole.hi - whole.value == pytest.approx(
        math.hypot(documents.hi - documents.value, run.hi), rel=1e-12
    )
    assert whole.value - whole.lo == pytest.approx(
        math.hypot(documents.value - documents.lo, run.hi), rel=1e-12
    )
    assert whole.unit == "document and run"


@pytest.mark.known
@pytest.mark.parametrize("num_arms", [2, 6])
def test_the_intervals_cover(num_arms):
    """2,000 simulations: the deviation's own interval, and that of a residual with both components."""
    rng = np.random.default_rng(7)
    sd_run, sd_documents, num_documents, true = 0.3, 2.0, 100, 0.5
    held_noise = held_residual = 0
    for _ in range(2000):
        noise = pooled_deviation(rng.normal(0, sd_run, (num_arms, 2)))
        held_noise += noise.lo <= sd_run <= noise.hi
        shift = true + rng.normal(0, sd_run) - rng.normal(0, sd_run)
        documents = t_interval(shift + rng.normal(0, sd_documents, num_documents), unit="document")
        whole = with_runs(documents, run_component(noise, [1, 1]))
        held_residual += whole.lo <= true <= whole.hi
    assert 0.93 <= held_noise / 2000 <= 0.97
    # two degrees of freedom have wide t limits
    assert 0.93 <= held_residual / 2000 <= 0.99

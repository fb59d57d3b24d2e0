"""The residual along the checkpoints of one run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.measure.recovery_by_hand import make_study, results_of

from stemmatics.math.intervals import unknown
from stemmatics.math.recovery.dose import with_scatter
from stemmatics.measure.recovery.dose import dose_estimates, kendall_p
from stemmatics.measure.recovery.pairs import run_noise

NO_RUNS = unknown(math.nan, level=0.95, n=1, unit="run", note="")


def dose_of(losses, trajectory, runs=1):
    study = make_study(
        {name: {"regime": "base"} for name in "abcd"}, trajectories={"run": trajectory}, runs=runs
    )
    for name, loss in losses.items():
        study.add_arm(name, loss if runs > 1 else [loss])
    read = study.losses()
    return results_of(dose_estimates(study.arms, read, run_noise(read), np.random.default_rng(0)))


def test_the_slope_is_that_of_least_squares_on_the_position():
    found = dose_of({"a": 1.0, "b": 1.1, "c": 1.4, "d": 1.5}, list("abcd"))
    # (-1.5 x 1.0 - 0.5 x 1.1 + 0.5 x 1.4 + 1.5 x 1.5) / 5
    slope = found.only("recovery.dose")
    assert slope.value == pytest.approx(0.18)
    assert slope.value == pytest.approx(np.polyfit(range(4), [1.0, 1.1, 1.4, 1.5], 1)[0])
    assert slope.units == "nats/byte per checkpoint"
    assert found.only("recovery.dose.p").value == pytest.approx(2 / 24)
    assert found.only("recovery.dose.smallest_p").value == pytest.approx(2 / 24)


def test_the_rank_test_is_exact():
    found = dose_of({"a": 1.0, "b": 1.1, "c": 1.5, "d": 1.4}, list("abcd"))
    # of 24 orders, 4 have at most one pair out of order, and 4 at most one in order
    assert found.only("recovery.dose.p").value == pytest.approx(8 / 24)
    assert found.only("recovery.dose.smallest_p").value == pytest.approx(2 / 24)


def test_the_order_is_that_of_the_trajectory():
    found = dose_of({"a": 1.0, "b": 1.1, "c": 1.4}, ["c", "b", "a"])
    assert found.only("recovery.dose").value == pytest.approx(-0.2)


def test_the_slope_scatters_with_documents_in_quadrature():
    steady = dose_of({"a": 1.0, "b": 1.1, "c": 1.3}, list("abc")).only("recovery.dose")
    scattered = dose_of({"a": 1.0, "b": 1.1, "c": [1.2, 1.4, 1.2, 1.35]}, list("abc")).only("recovery.dose")
    # documents of 100, 200, 300, 400 bytes; c is another 1.3 over all
    assert scattered.value == pytest.approx(steady.value)
    assert scattered.hi - scattered.value > steady.hi - steady.value


def test_checkpoints_scatter_about_their_line():
    """Documents are all alike, so the interval is Student's of the least-squares slope."""
    losses = [1.0, 1.1, 1.4, 1.5]
    slope = dose_of(dict(zip("abcd", losses, strict=True)), list("abcd")).only("recovery.dose")
    fit = stats.linregress(range(4), losses)
    half = stats.t.ppf(0.975, 2) * fit.stderr
    assert (slope.value - slope.lo, slope.hi - slope.value) == pytest.approx((half, half))
    assert (slope.n, slope.unit) == (4, "document, checkpoint and run")


def test_two_checkpoints_or_a_line_without_known_run_noise_have_no_limits():
    two = dose_of({"a": 1.0, "b": [1.1, 1.3, 1.1, 1.3]}, ["a", "b"]).only("recovery.dose")
    # (100 x .1 + 200 x .3 + 300 x .1 + 400 x .3) / 1000
    assert two.value == pytest.approx(0.22)
    assert math.isnan(two.lo)
    assert "no scatter" in two.note
    line = dose_of({"a": 1.0, "b": 1.1, "c": 1.2}, list("abc")).only("recovery.dose")
    assert math.isnan(line.lo)
    assert "no known run noise" in line.note


def test_checkpoints_that_lie_on_a_line_claim_no_more_than_runs_allow():
    losses = {name: [level - 0.01, level + 0.01] for name, level in zip("abc", (1.0, 1.1, 1.2), strict=True)}
    slope = dose_of(losses, list("abc"), runs=2).only("recovery.dose")
    # weights -1/2, 0, 1/2 of means of two runs; three degrees of freedom
    half = stats.t.ppf(0.975, 3) * math.sqrt(2) * 0.01 * math.sqrt(2 * (1 / 2) ** 2 / 2)
    assert slope.hi - slope.value == pytest.approx(half)


def test_the_interval_of_a_slope_keeps_its_word():
    """Checkpoints scatter by more than documents: nominal 95% covers 93 or more, documents alone do not."""
    rng = np.random.default_rng(0)
    documents = unknown(0.0, level=0.95, n=60, unit="document", note="")
    held, alone = [], []
    for _ in range(3000):
        position = np.arange(5) - 2
        losses = 1.0 + 0.01 * position + rng.normal(0, 0.004, 5)
        drift = rng.normal(0, 0.001)
        value = (position @ losses) / 10 + drift
        reach = 1.96 * 0.001
        over = replace(documents, value=value, lo=value - reach, hi=value + reach)
        slope = with_scatter(over, losses + drift * position, NO_RUNS, 0.0)
        held.append(slope.lo <= 0.01 <= slope.hi)
        alone.append(over.lo <= 0.01 <= over.hi)
    assert 0.93 <= np.mean(held) <= 0.985
    assert np.mean(alone) < 0.9


def test_a_trajectory_with_a_missing_checkpoint_has_no_slope():
    assert len(dose_of({"a": 1.0, "b": 1.1}, ["a", "b", "c"])) == 0
    assert len(dose_of({"a": 1.0}, ["a"])) == 0


def test_the_rank_test_says_what_it_can_reach():
    p_value, smallest = kendall_p([0.1, 0.2, 0.3, 0.4, 0.5])
    assert p_value == smallest == pytest.approx(2 / 120)
    assert kendall_p([0.3, 0.1, 0.2])[0] == pytest.approx(1.0)

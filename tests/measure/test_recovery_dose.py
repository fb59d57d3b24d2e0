"""The residual along the checkpoints of one run."""

import numpy as np
import pytest
from tests.measure.recovery_by_hand import make_study, results_of

from stemmatics.measure.recovery.dose import dose_estimates, kendall_p


def dose_of(losses, trajectory):
    study = make_study({name: {"regime": "base"} for name in "abcd"}, trajectories={"run": trajectory})
    for name, loss in losses.items():
        study.add_arm(name, [loss])
    return results_of(dose_estimates(study.arms, study.losses(), np.random.default_rng(0)))


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


def test_the_slope_scatters_with_documents():
    found = dose_of({"a": 1.0, "b": [1.1, 1.3, 1.1, 1.3]}, ["a", "b"])
    slope = found.only("recovery.dose")
    # (100 x .1 + 200 x .3 + 300 x .1 + 400 x .3) / 1000
    assert slope.value == pytest.approx(0.22)
    assert slope.lo < 0.22 < slope.hi


def test_a_trajectory_with_a_missing_checkpoint_has_no_slope():
    assert len(dose_of({"a": 1.0, "b": 1.1}, ["a", "b", "c"])) == 0
    assert len(dose_of({"a": 1.0}, ["a"])) == 0


def test_the_rank_test_says_what_it_can_reach():
    p_value, smallest = kendall_p([0.1, 0.2, 0.3, 0.4, 0.5])
    assert p_value == smallest == pytest.approx(2 / 120)
    assert kendall_p([0.3, 0.1, 0.2])[0] == pytest.approx(1.0)

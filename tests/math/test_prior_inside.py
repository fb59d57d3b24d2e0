"""The interval with the fit inside: by hand, and by simulation with a known truth."""

import math

import numpy as np
import pytest

from stemmatics.math.intervals import Interval
from stemmatics.math.prior import with_fit_inside
from stemmatics.math.rates import mean_interval


def held(value=0.3, lo=0.2, hi=0.5, error=0.07):
    return Interval(value, lo, hi, 0.95, "guarded bootstrap-t", 80, "document", 0.2, error)


def test_both_sides_add_up_in_quadrature():
    draws = np.random.default_rng(0).gamma(2.0, 0.1, 400)
    result = with_fit_inside(held(), draws)
    low, high = np.quantile(draws, 0.025), np.quantile(draws, 0.975)
    centre = sum(draws) / len(draws)
    assert result.value == 0.3
    assert result.lo == pytest.approx(0.3 - math.sqrt(0.1**2 + (centre - low) ** 2))
    assert result.hi == pytest.approx(0.3 + math.sqrt(0.2**2 + (high - centre) ** 2))
    assert result.standard_error == pytest.approx(math.sqrt(0.07**2 + draws.var(ddof=1)))
    assert result.smallest_effect == pytest.approx(0.2 * result.standard_error / 0.07)


def test_draws_that_do_not_move_change_nothing():
    result = with_fit_inside(held(), np.full(100, 0.3))
    assert (result.lo, result.hi) == (pytest.approx(0.2), pytest.approx(0.5))


def test_what_is_not_known_stays_unknown():
    few = with_fit_inside(held(), np.linspace(0, 1, 20))
    assert math.isnan(few.lo)
    assert "redrawn" in few.note
    unknown = held(lo=math.nan)
    assert with_fit_inside(unknown, np.linspace(0, 1, 100)) is unknown


@pytest.mark.known
@pytest.mark.parametrize("skew", [0.5, 1.0])
def test_it_covers_the_truth_where_the_held_interval_does_not(skew):
    """Gain = (loss removed on an EVAL document) with a fit that is a mean over FIT documents."""
    rng = np.random.default_rng(7)
    truth, repeats, both, alone = 0.0, 1500, 0, 0
    for _ in range(repeats):
        fit = rng.lognormal(0.0, skew, 60) - math.exp(skew**2 / 2)
        scored = rng.lognormal(0.0, skew, 60) - math.exp(skew**2 / 2)
        weights = 60 * rng.dirichlet(np.ones(60), 200)
        interval = mean_interval(scored + fit.mean(), rng=rng, num_resamples=1000)
        wide = with_fit_inside(interval, scored.mean() + weights @ fit / 60)
        both += wide.lo <= truth <= wide.hi
        alone += interval.lo <= truth <= interval.hi
    assert 0.925 <= both / repeats <= 0.975
    assert alone / repeats < 0.88

"""Mean tau-b over pairs of tasks: against loops, and where the truth is known."""

import itertools
import math

import numpy as np
import pytest

from stemmatics.core.errors import UserError
from stemmatics.math import agreement as module
from stemmatics.math.agreement import agreement, mean_kendall
from stemmatics.math.ranks import kendall_tau_b


def factor_scores(rng, num_models, num_tasks, signal):
    """One ability and noise: tau of two tasks is 2/pi arcsin(rho), rho = signal^2 / (1 + signal^2)."""
    ability = rng.standard_normal((num_models, 1))
    return signal * ability + rng.standard_normal((num_models, num_tasks))


def true_tau(signal):
    return 2 / math.pi * math.asin(signal**2 / (1 + signal**2))


def loop(scores):
    pairs = itertools.combinations(range(scores.shape[1]), 2)
    return np.mean([kendall_tau_b(scores[:, i], scores[:, j]) for i, j in pairs])


def test_the_mean_is_the_loop_over_pairs_of_tasks():
    scores = np.round(factor_scores(np.random.default_rng(0), 14, 5, 1.0), 1)
    scores[3] = scores[4]  # ties
    assert mean_kendall(scores) == pytest.approx(loop(scores), abs=1e-12)
    assert math.isnan(mean_kendall(scores[:, :1]))
    assert math.isnan(mean_kendall(scores[:1]))
    scores[:, 0] = 0.5
    assert math.isnan(mean_kendall(scores))


def test_resamples_are_repeated_models(monkeypatch):
    scores = [factor_scores(np.random.default_rng(k), 9, 4, 1.0) for k in (0, 1)]
    names = np.arange(9)
    result = module._replicates(scores, names, 30, np.random.default_rng(5))
    drawn = np.random.default_rng(5).multinomial(9, np.full(9, 1 / 9), size=30)
    for b in range(30):
        rows = np.repeat(names, drawn[b])
        assert result[:, b] == pytest.approx([loop(s[rows]) for s in scores], abs=1e-12)
    monkeypatch.setattr(module, "CHUNK_RESAMPLES", 30)
    assert np.allclose(module._replicates(scores, names, 30, np.random.default_rng(5)), result)


def test_the_difference_is_paired():
    rng = np.random.default_rng(0)
    before = factor_scores(rng, 50, 6, 1.0)
    after = before + 0.05 * rng.standard_normal(before.shape)
    result = agreement(before, after, rng=rng, num_resamples=2000)
    assert result.difference.value == pytest.approx(result.after.value - result.before.value)
    assert result.difference.hi - result.difference.lo < 0.4 * (result.before.hi - result.before.lo)
    assert (result.before.n, result.before.unit, result.num_task_pairs) == (50, "model", 15)
    same = agreement(before, before, rng=rng, num_resamples=200).difference
    assert (same.value, same.lo, same.hi) == (0, 0, 0)


def test_families_are_drawn_whole_and_widen_the_interval():
    rng = np.random.default_rng(0)
    distinct = factor_scores(rng, 20, 6, 1.0)
    scores = np.repeat(distinct, 3, axis=0) + 0.01 * rng.standard_normal((60, 6))
    families = np.repeat(np.arange(20), 3)
    apart = agreement(scores, scores, rng=np.random.default_rng(1), num_resamples=2000).before
    whole = agreement(
        scores, scores, rng=np.random.default_rng(1), families_M=families, num_resamples=2000
    ).before
    assert (whole.n, whole.unit) == (20, "family")
    assert whole.hi - whole.lo > 1.4 * (apart.hi - apart.lo)


def test_tasks_without_order_are_unknown_and_few_models_are_noted():
    rng = np.random.default_rng(0)
    scores = factor_scores(rng, 12, 3, 1.0)
    assert "under 40 units" in agreement(scores, scores, rng=rng, num_resamples=100).before.note
    flat = scores.copy()
    flat[:, 1] = 0.0
    result = agreement(flat, scores, rng=rng, num_resamples=100)
    assert math.isnan(result.before.value)
    assert math.isnan(result.difference.value)
    assert math.isfinite(result.after.lo)
    # a task that only one model does otherwise: resamples without that model have no order
    flat[0, 1] = 1.0
    assert "resamples dropped" in agreement(flat, scores, rng=rng, num_resamples=200).before.note
    lone = agreement(scores, scores, rng=rng, families_M=["x"] * 12, num_resamples=100).before
    assert (math.isfinite(lone.value), math.isnan(lone.lo)) == (True, True)
    with pytest.raises(UserError, match="same models and tasks"):
        agreement(scores, scores[:5], rng=rng)


@pytest.mark.known
def test_intervals_hold_the_known_tau():
    truths = [true_tau(0.8), true_tau(1.6), true_tau(1.6) - true_tau(0.8)]
    hits = np.zeros(3)
    for k in range(500):
        rng = np.random.default_rng(k)
        ability = rng.standard_normal((60, 1))
        before, after = (s * ability + rng.standard_normal((60, 8)) for s in (0.8, 1.6))
        result = agreement(before, after, rng=rng, num_resamples=1000)
        for i, interval in enumerate((result.before, result.after, result.difference)):
            hits[i] += interval.lo <= truths[i] <= interval.hi
    assert (hits / 500 >= 0.92).all()
    assert (hits / 500 <= 0.98).all()

"""The engine against loops: N units, P problems, C columns, B resamples."""

import math

import numpy as np
import pytest
from scipy import stats

from stemmatics.math import bootstrap as engine
from stemmatics.math.rates import difference_of_ratios, ratio_of_sums

N, P, B = 9, 3, 400
LEVEL = 0.9


@pytest.fixture(name="columns_NPC")
def lognormal_columns():
    rng = np.random.default_rng(5)
    return rng.lognormal(2, 0.7, size=(N, P, 2))


def resamples(seed):
    """The index lists behind the engine's weights: same generator, same draws."""
    return np.random.default_rng(seed).integers(N, size=(B, N))


def ratio_of(rows):
    return math.fsum(row[0] for row in rows) / math.fsum(row[1] for row in rows)


def left_out(rows):
    return [ratio_of(rows[:i] + rows[i + 1 :]) for i in range(len(rows))]


def jackknife_error(rows):
    values = left_out(rows)
    mean = math.fsum(values) / len(rows)
    return math.sqrt((len(rows) - 1) / len(rows) * math.fsum((v - mean) ** 2 for v in values))


def linear_error(rows):
    """Residuals about the ratio line, divided by the mean denominator."""
    n, rate, total = len(rows), ratio_of(rows), math.fsum(row[1] for row in rows)
    residuals = [row[0] - rate * row[1] for row in rows]
    return math.sqrt(n / (n - 1) * math.fsum(r * r for r in residuals)) / total


def test_guarded_bootstrap_t_is_the_loop(columns_NPC):
    result = engine.bootstrap_limits(
        columns_NPC, ratio_of_sums, method="guarded bootstrap-t", level=LEVEL, num_resamples=B,
        rng=np.random.default_rng(3),
    )  # fmt: skip
    for p in range(P):
        rows = [tuple(row) for row in columns_NPC[:, p]]
        value, error = ratio_of(rows), jackknife_error(rows)
        t_values = []
        for drawn in resamples(3):
            sample = [rows[i] for i in drawn]
            t_values.append((ratio_of(sample) - value) / linear_error(sample))
        low_t, high_t = np.quantile(t_values, [0.05, 0.95])
        reach = stats.t.ppf(0.95, N - 1)
        assert result.values[p] == pytest.approx(value, rel=1e-12)
        assert result.standard_errors[p] == pytest.approx(error, rel=1e-12)
        assert result.lows[p] == pytest.approx(value - max(high_t, reach) * error, rel=1e-10)
        assert result.highs[p] == pytest.approx(value + max(-low_t, reach) * error, rel=1e-10)


def test_each_guard_is_sometimes_the_farther_limit(columns_NPC):
    def limits(method):
        return engine.bootstrap_limits(
            columns_NPC, ratio_of_sums, method=method, level=LEVEL, num_resamples=B,
            rng=np.random.default_rng(3),
        )  # fmt: skip

    guarded, plain = limits("guarded bootstrap-t"), limits("jackknife-t")
    wider = np.concatenate([plain.lows - guarded.lows, guarded.highs - plain.highs])
    assert (wider >= 0).all()
    assert (wider > 1e-6).any()
    assert (wider == 0).any()


def test_bca_is_the_loop(columns_NPC):
    result = engine.bootstrap_limits(
        columns_NPC, ratio_of_sums, method="bca", level=LEVEL, num_resamples=B, rng=np.random.default_rng(3)
    )
    for p in range(P):
        rows = [tuple(row) for row in columns_NPC[:, p]]
        value = ratio_of(rows)
        replicates = [ratio_of([rows[i] for i in drawn]) for drawn in resamples(3)]
        below = [0.5 if math.isclose(r, value, rel_tol=1e-13) else r < value for r in replicates]
        z0 = stats.norm.ppf(sum(below) / B)
        values = left_out(rows)
        mean = math.fsum(values) / N
        cubes, squares = (
            math.fsum((mean - v) ** 3 for v in values),
            math.fsum((mean - v) ** 2 for v in values),
        )
        a = cubes / (6 * squares**1.5)
        for limit, z in ((result.lows, stats.norm.ppf(0.05)), (result.highs, stats.norm.ppf(0.95))):
            quantile = stats.norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))
            assert limit[p] == pytest.approx(np.quantile(replicates, quantile), rel=1e-12)


def test_gradient_is_exact_and_refuses_what_it_cannot_differentiate():
    sums = np.array([[3.0, 4.0, 5.0, 7.0]])
    expected = [-1 / 4, 3 / 16, 1 / 7, -5 / 49]
    np.testing.assert_allclose(engine.gradient(difference_of_ratios, sums)[0], expected, rtol=1e-14)
    with pytest.raises(TypeError, match="differentiable"):
        engine.gradient(lambda s: np.abs(s[..., 0]), sums)


def test_a_resample_of_one_document_has_no_error():
    x = np.array([[2.0, 3.0]])
    centred = x - np.array([[1.7, 2.1]])
    products = 6 * centred[:, [0, 0, 1]] * centred[:, [0, 1, 1]]
    slope = engine.gradient(ratio_of_sums, 6 * x)
    assert engine.linear_standard_error(slope, 6 * centred, products, 6)[0] == 0.0


def test_result_does_not_depend_on_the_chunk(columns_NPC, monkeypatch):
    def limits():
        return engine.bootstrap_limits(
            columns_NPC, ratio_of_sums, method="guarded bootstrap-t", level=0.95, num_resamples=B,
            rng=np.random.default_rng(1),
        )  # fmt: skip

    whole = limits()
    monkeypatch.setattr(engine, "CHUNK_ELEMENTS", 7 * 15)
    pieces = limits()
    np.testing.assert_allclose(pieces.lows, whole.lows, rtol=1e-12)
    np.testing.assert_allclose(pieces.highs, whole.highs, rtol=1e-12)


def test_weights_draw_every_unit_alike():
    weights = engine.resampling_weights(5, 20_000, np.random.default_rng(0))
    assert (weights.sum(1) == 5).all()
    np.testing.assert_allclose(weights.mean(0), 1.0, atol=0.04)
    np.testing.assert_allclose(weights.var(0), 0.8, atol=0.04)

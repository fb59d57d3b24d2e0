"""The objective against brute force and finite differences."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from stemmatics.core.errors import UserError
from stemmatics.math.prior import Correction, Objective, Statistics, document_gradients, nll_sums

V, N, D = 12, 90, 6


@pytest.fixture
def text():
    rng = np.random.default_rng(3)
    document_N = np.sort(rng.integers(0, D, N))
    return Statistics.dense(rng.normal(0, 2, (N, V)), rng.integers(0, V, N), document_N)


@pytest.fixture
def correction():
    return Correction(0.7, np.random.default_rng(4).normal(0, 0.5, V))


def brute_nll(text, vector):
    log_p_NV = log_softmax(vector[0] * text.logits_NK + vector[1:], axis=1)
    return -log_p_NV[np.arange(N), text.target_column_N]


def brute_value(text, vector, weight_D, penalty):
    weight_N = weight_D[text.document_N]
    return weight_N @ brute_nll(text, vector) / weight_N.sum() + penalty / 2 * vector[1:] @ vector[1:]


def test_nll_sums_equal_brute_force(text, correction):
    expected_D = [brute_nll(text, correction.vector())[text.document_N == d].sum() for d in range(D)]
    assert np.allclose(nll_sums(text, correction), expected_D, rtol=1e-12)


def test_value_and_gradient_equal_finite_differences(text, correction):
    weight_D = np.random.default_rng(5).exponential(size=D)
    objective = Objective(text, penalty=0.3, weight_D=weight_D)
    point = objective.point(correction)
    vector = correction.vector()
    assert point.value == pytest.approx(brute_value(text, vector, weight_D, 0.3), rel=1e-12)
    step = 1e-6
    numeric = [
        (brute_value(text, vector + e, weight_D, 0.3) - brute_value(text, vector - e, weight_D, 0.3))
        / (2 * step)
        for e in step * np.eye(V + 1)
    ]
    assert np.allclose(point.gradient, numeric, atol=1e-9)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
def test_hessian_products_equal_finite_differences_of_the_gradient(text, correction, cache_bytes):
    weight_D = np.random.default_rng(5).exponential(size=D)
    objective = Objective(text, penalty=0.3, weight_D=weight_D, cache_bytes=cache_bytes)
    point = objective.point(correction)
    hessian = objective.hessian(point)
    rng = np.random.default_rng(6)
    for _ in range(4):
        direction = rng.normal(size=V + 1)
        ahead = objective.point(correction.moved(correction.vector() + 1e-5 * direction)).gradient
        behind = objective.point(correction.moved(correction.vector() - 1e-5 * direction)).gradient
        product = objective.hessian_product(point, direction)
        again = objective.hessian_product(objective.point(correction), direction)
        assert np.allclose(product, again, rtol=1e-13)
        assert np.allclose(product, (ahead - behind) / 2e-5, atol=1e-8)
        assert np.allclose(hessian @ direction, product, atol=1e-13)
    assert np.allclose(np.diag(hessian), point.diagonal, atol=1e-13)


def test_hessian_equals_the_covariance_by_hand(text, correction):
    objective = Objective(text)
    hessian = objective.hessian(objective.point(correction))
    total = np.zeros((V + 1, V + 1))
    for logits_V in text.logits_NK:
        p_V = softmax(correction.inverse_temperature * logits_V + correction.bias_K)
        features_VX = np.concatenate([logits_V[:, None], np.eye(V)], axis=1)
        mean_X = p_V @ features_VX
        total += (features_VX * p_V[:, None]).T @ features_VX - np.outer(mean_X, mean_X)
    assert np.allclose(hessian, total / N, atol=1e-12)


def test_loss_is_convex_on_random_chords(text):
    objective = Objective(text)
    rng = np.random.default_rng(7)

    def value(vector):
        return objective.point(Correction(vector[0], vector[1:])).value

    for _ in range(50):
        first, second = (np.concatenate([[rng.uniform(0.25, 4)], rng.normal(0, 2, V)]) for _ in range(2))
        share = rng.uniform()
        chord = share * value(first) + (1 - share) * value(second)
        assert value(share * first + (1 - share) * second) <= chord + 1e-12


def test_gradients_by_document_equal_finite_differences_and_add_up(text, correction):
    by_document = document_gradients(text, correction)
    vector, step = correction.vector(), 1e-6
    for index in range(V + 1):
        e = step * np.eye(V + 1)[index]
        ahead, behind = (nll_sums(text, correction.moved(vector + sign * e)) for sign in (1, -1))
        assert np.allclose(by_document[:, index], (ahead - behind) / (2 * step), atol=1e-6)
    assert np.allclose(by_document.sum(0) / N, Objective(text).point(correction).gradient, atol=1e-12)


def test_a_document_without_positions_gets_zero(correction):
    rng = np.random.default_rng(8)
    text = Statistics.dense(rng.normal(size=(4, V)), np.array([0, 1, 2, 3]), np.array([0, 0, 2, 2]))
    assert nll_sums(text, correction)[1] == 0.0
    assert not document_gradients(text, correction)[1].any()
    assert text.num_tokens.tolist() == [2, 0, 2]


def test_float32_rows_agree_with_float64(text, correction):
    single = Statistics.dense(text.logits_NK.astype(np.float32), text.target_column_N, text.document_N)
    first, second = Objective(single).point(correction), Objective(text).point(correction)
    assert first.value == pytest.approx(second.value, abs=1e-6)
    assert np.allclose(first.gradient, second.gradient, atol=1e-6)
    assert np.allclose(first.diagonal, second.diagonal, atol=1e-6)


def test_a_removed_id_costs_nothing_and_a_removed_target_is_refused():
    logits_NV = np.array([[1.0, 0.0, 2.0], [0.5, 0.2, 0.1]])
    text = Statistics.dense(logits_NV, np.array([0, 1]), np.array([0, 0]))
    removed = Correction(1.0, np.array([0.0, 0.0, -np.inf]))
    expected = -log_softmax(logits_NV[:, :2], axis=1)[[0, 1], [0, 1]].sum()
    assert nll_sums(text, removed)[0] == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(Objective(text, penalty=0.1).point(removed).gradient).all()
    with pytest.raises(UserError, match="not finite"):
        nll_sums(text, Correction(1.0, np.array([0.0, -np.inf, 0.0])))

"""The reduced form against the dense one, the interpolated rest, and refusals."""

import numpy as np
import pytest
from scipy.special import logsumexp

from stemmatics.core.errors import UserError
from stemmatics.math.prior import (
    IN_REST,
    NODES_PER_DOUBLING,
    Correction,
    Objective,
    Rest,
    Statistics,
    document_gradients,
    expected_counts,
    fit_arms,
    moved_nll_sums,
    nll_sums,
    node_inverse_temperatures,
    reduce_logits,
    top_columns,
    uncorrected_node,
)

V, N = 60, 400


def make_text(seed=0):
    rng = np.random.default_rng(seed)
    logits_NV = rng.normal(0, 2, (N, V)) + np.linspace(3, -3, V)
    target_N = np.argmax(logits_NV + rng.gumbel(size=logits_NV.shape), axis=1)
    return logits_NV, target_N, np.arange(N) // 40


def reduced(num_columns, seed=0):
    logits_NV, target_N, document_N = make_text(seed)
    ids_K = top_columns(target_N, num_columns, V)
    logits_NK, column_N, target_logit_N, log_z_NJ = reduce_logits(logits_NV, target_N, ids_K)
    return Statistics(
        logits_NK, column_N, document_N, ids_K, 10, target_logit_N=target_logit_N, rest=Rest(log_z_NJ)
    )


def dense(seed=0):
    return Statistics.dense(*make_text(seed))


def widen(small_K, ids_K):
    wide_V = np.zeros(V)
    wide_V[ids_K] = small_K
    return wide_V


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("normal", lambda rng: rng.normal(0, 4, (8, 20_000))),
        ("heavy", lambda rng: 2 * rng.standard_t(6, (8, 20_000))),
        (
            "spikes",
            lambda rng: np.concatenate([rng.normal(0, 2, (8, 20_000)), 18 + rng.normal(size=(8, 3))], 1),
        ),
        ("few", lambda rng: rng.normal(0, 4, (8, 5))),
    ],
)
def test_rest_is_interpolated_to_1e6_with_derivatives(name, draw):
    logits_NR = draw(np.random.default_rng(1))
    nodes_J = node_inverse_temperatures()
    rest = Rest(np.stack([logsumexp(beta * logits_NR, axis=1) for beta in nodes_J], axis=1))
    for beta in np.exp(np.linspace(-1, 1, 15) * np.log(4)):
        log_z_N = logsumexp(beta * logits_NR, axis=1)
        p_NR = np.exp(beta * logits_NR - log_z_N[:, None])
        mean_N = (p_NR * logits_NR).sum(1)
        variance_N = (p_NR * (logits_NR - mean_N[:, None]) ** 2).sum(1)
        value_N, slope_N, bend_N = rest.at(float(beta))
        assert np.abs(value_N - log_z_N).max() < 1e-6, name
        assert np.abs(slope_N - mean_N).max() < 1e-4
        assert np.abs(bend_N - variance_N).max() < 1e-2


def test_uncorrected_rest_is_exact_and_nodes_double():
    nodes_J = node_inverse_temperatures()
    assert nodes_J[uncorrected_node()] == 1.0
    assert nodes_J[0] < 0.25
    assert nodes_J[-1] > 4.0
    assert np.array_equal(nodes_J[NODES_PER_DOUBLING:], 2 * nodes_J[:-NODES_PER_DOUBLING])
    log_z_NJ = np.random.default_rng(0).normal(size=(3, len(nodes_J)))
    assert np.abs(Rest(log_z_NJ).at(1.0)[0] - log_z_NJ[:, uncorrected_node()]).max() < 1e-12


def test_rounding_of_node_sums_is_not_spread():
    """Ids that all lie 3 nats under the top: the sums at small beta are 10,000 times those at large."""
    logits_NR = np.concatenate([[[0.0]], np.full((1, 45_000), -3.0)], axis=1)
    nodes_J = node_inverse_temperatures()
    rng = np.random.default_rng(0)
    log_z_J = logsumexp(nodes_J[:, None] * logits_NR, axis=1)
    rest = Rest(log_z_J + rng.normal(0, 1e-7, (1000, len(nodes_J))))
    for beta in np.exp(np.linspace(-1, 1, 41) * np.log(4)):
        assert np.std(rest.at(float(beta))[0]) < 2e-7


@pytest.mark.parametrize("num_columns", [5, 30])
@pytest.mark.parametrize("beta", [0.3, 1.0, 1.7])
def test_reduced_form_equals_dense_form(num_columns, beta):
    small, full = reduced(num_columns), dense()
    rng = np.random.default_rng(2)
    bias_K = rng.normal(0, 0.5, num_columns)
    correction, wide = Correction(beta, bias_K), Correction(beta, widen(bias_K, small.ids_K))
    assert np.any(small.target_column_N == IN_REST)
    per_token = nll_sums(full, wide) / full.num_tokens
    assert np.abs(nll_sums(small, correction) / small.num_tokens - per_token).max() < 1e-6
    gradient, wide_gradient = document_gradients(small, correction), document_gradients(full, wide)
    picked = np.concatenate([[0], small.ids_K + 1])
    assert np.abs(gradient - wide_gradient[:, picked]).max() < 1e-4
    first, second = Objective(small).point(correction), Objective(full).point(wide)
    assert first.loss == pytest.approx(second.loss, abs=1e-6)
    assert np.abs(first.gradient - second.gradient[picked]).max() < 1e-5
    assert np.abs(first.diagonal - second.diagonal[picked]).max() < 1e-3
    assert np.abs(first.cross_K - second.cross_K[small.ids_K]).max() < 1e-5
    counts_K, rest = expected_counts(small, correction)
    counts_V, _ = expected_counts(full, wide)
    assert np.allclose(counts_K, counts_V[small.ids_K], atol=1e-5)
    assert rest == pytest.approx(counts_V.sum() - counts_V[small.ids_K].sum(), abs=1e-4)
    moves = rng.normal(0, 0.01, (3, num_columns + 1))
    wide_moves = np.zeros((3, V + 1))
    wide_moves[:, picked] = moves
    difference = moved_nll_sums(small, correction, moves) - moved_nll_sums(full, wide, wide_moves)
    assert np.abs(difference).max() < 1e-4


def test_fits_of_the_reduced_form_equal_those_of_the_dense_form():
    small = fit_arms(*reduced(12).split(), num_ids=8)
    full = fit_arms(*dense().split(), num_ids=8)
    for arm in ("bias", "temperature", "joint"):
        first, second = getattr(small, arm), getattr(full, arm)
        assert first.optimum.loss == pytest.approx(second.optimum.loss, abs=1e-6)
        assert first.optimum.correction.temperature == pytest.approx(
            second.optimum.correction.temperature, abs=1e-4
        )
        assert first.selected.held_out_loss == pytest.approx(second.selected.held_out_loss, abs=1e-6)


def test_memory_mapped_rows_and_made_rows_serve(tmp_path):
    logits_NV, target_N, document_N = make_text()
    stored = np.memmap(tmp_path / "z.f16", dtype=np.float16, mode="w+", shape=(N, V))
    stored[:] = logits_NV
    requested = []

    class Made:
        shape, dtype = (N, V), np.dtype(np.float32)

        def __getitem__(self, rows):
            requested.append(rows)
            return logits_NV[rows].astype(np.float32)

    identity = Correction.identity(V)
    exact = nll_sums(dense(), identity)
    halves = nll_sums(Statistics.dense(stored, target_N, document_N), identity)
    made = Statistics.dense(Made(), target_N, document_N).rows(40, 120)
    assert np.abs(halves - exact).max() / 40 < 2e-3
    assert np.allclose(nll_sums(made, identity)[1:3], exact[1:3], rtol=1e-6)
    again = nll_sums(made.rows(40, 80), identity)
    assert np.allclose(again[2], exact[2], rtol=1e-6)
    assert not again[[0, 1, 3]].any()
    assert min(rows.start for rows in requested) == 40
    assert max(rows.stop for rows in requested) == 120


def test_blocks_do_not_change_sums(monkeypatch):
    correction = Correction(0.8, np.linspace(-1, 1, V))
    whole, whole_gradient = nll_sums(dense(), correction), document_gradients(dense(), correction)
    monkeypatch.setattr("stemmatics.math.prior.statistics._BLOCK_ELEMENTS", 7 * V)
    assert np.allclose(nll_sums(dense(), correction), whole, rtol=1e-13)
    assert np.allclose(document_gradients(dense(), correction), whole_gradient, rtol=1e-12, atol=1e-12)


def test_split_takes_the_first_nine_tenths_and_keeps_documents():
    fit, held_out = dense().split()
    assert (fit.num_positions, held_out.num_positions) == (360, 40)
    identity = Correction.identity(V)
    assert np.allclose(nll_sums(fit, identity) + nll_sums(held_out, identity), nll_sums(dense(), identity))
    with pytest.raises(UserError, match="one position"):
        dense().rows(0, 1).split()


def test_top_columns_leaves_unseen_ids_out_and_breaks_ties_by_id():
    target_N = np.array([3, 3, 1, 2, 7])
    assert top_columns(target_N, 2, 10).tolist() == [1, 3]
    assert top_columns(target_N, 4096, 10).tolist() == [1, 2, 3, 7]


def test_statistics_that_do_not_hold_together_are_refused():
    logits_NV, target_N, document_N = make_text()
    ids_V = np.arange(V)
    good = {
        "logits_NK": logits_NV,
        "target_column_N": target_N,
        "document_N": document_N,
        "ids_K": ids_V,
        "num_documents": 10,
    }
    assert Statistics(**good).num_positions == N
    bad = [
        {"target_column_N": np.where(target_N == target_N[0], V, target_N)},
        {"target_column_N": np.full(N, IN_REST)},
        {"document_N": document_N[::-1]},
        {"document_N": document_N + 1},
        {"ids_K": ids_V[1:]},
        {"logits_NK": logits_NV[1:]},
        {"target_column_N": target_N[:0], "document_N": document_N[:0]},
    ]
    for change in bad:
        with pytest.raises(UserError, match="are inconsistent"):
            Statistics(**(good | change))
    with pytest.raises(UserError, match=r"Statistics\.dense"):
        reduce_logits(logits_NV, target_N, ids_V)


def test_a_loss_that_is_not_finite_names_its_document():
    logits_NV, target_N, document_N = make_text()
    logits_NV[85, 3] = np.nan
    with pytest.raises(UserError, match="Document 2 has a loss that is not finite"):
        nll_sums(Statistics.dense(logits_NV, target_N, document_N), Correction.identity(V))

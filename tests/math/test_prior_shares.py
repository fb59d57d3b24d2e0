"""Shares, their split, the fit-inside replicates and the damage floor."""

import numpy as np
import pytest
from tests.math.synthetic_pairs import Change, synthetic_pair

from stemmatics.core.errors import UserError
from stemmatics.math.prior import (
    Correction,
    PairSums,
    Statistics,
    bayesian_weights,
    centred_noise,
    check_refits,
    fit_optimum,
    free_ids,
    match_damage,
    mean_energy_share,
    moved_nll_sums,
    nll_sums,
    ratio_of_sums,
    refit_fully,
    refit_one_step,
    shapley_split,
    shares,
)

SUMS = PairSums(np.array([2.0, 6.0]), np.array([3.0, 1.0]), np.array([0.0, 2.0]))


def test_shares_are_ratios_of_sums_and_not_means_of_ratios():
    result = shares(SUMS, (0.1, 0.9))
    assert (result.recovered_share, result.net_recovered_share, result.note) == (0.5, 0.25, "")
    assert ratio_of_sums(SUMS.net_gain, SUMS.delta_D) == 0.25
    assert np.isnan(ratio_of_sums(SUMS.net_gain, -SUMS.delta_D))


@pytest.mark.parametrize("interval", [(-0.1, 0.9), (0.0, 0.5), (float("nan"), 0.5)])
def test_no_share_where_the_interval_of_the_increase_includes_zero(interval):
    result = shares(SUMS, interval)
    assert np.isnan(result.recovered_share)
    assert np.isnan(result.net_recovered_share)
    assert result.note.startswith("n/a")


def test_no_share_where_the_descendant_improved():
    improved = PairSums(-SUMS.delta_D, SUMS.gain_new_D, SUMS.gain_old_D)
    result = shares(improved, (-0.9, -0.1))
    assert np.isnan(result.recovered_share)
    assert "improved" in result.note


def test_shares_are_never_clipped_and_documents_must_pair():
    wild = PairSums(np.array([1.0]), np.array([-3.0]), np.array([2.0]))
    assert shares(wild, (0.5, 2.0)).net_recovered_share == -5.0
    with pytest.raises(UserError, match="different documents"):
        PairSums(np.ones(2), np.ones(2), np.ones(3))


def test_shapley_split_averages_both_orders_and_adds_up():
    temperature_D, bias_D = shapley_split(np.array([4.0, 0.0]), np.array([1.0, 2.0]), np.array([4.5, 2.0]))
    assert temperature_D.tolist() == [(4.0 + 3.5) / 2, 0.0]
    assert bias_D.tolist() == [(1.0 + 0.5) / 2, 2.0]


@pytest.fixture(scope="module")
def pair():
    return synthetic_pair(
        np.random.default_rng(1),
        Change(noise_sd=0.25),
        num_positions=6000,
        vocabulary_size=40,
        width=16,
        document_length=60,
    )


@pytest.mark.parametrize(("penalty", "num_ids"), [(1e-3, None), (1e-3, 15), (0.0, 15)])
def test_one_newton_step_follows_full_refits(pair, penalty, num_ids):
    solution = fit_optimum(pair.new_fit, free_ids(pair.new_fit, num_ids).mask_K, penalty=penalty)
    weight_RD = bayesian_weights(np.random.default_rng(2), 20, pair.new_fit.num_documents)
    step_RX = refit_one_step(pair.new_fit, solution, weight_RD, penalty=penalty)
    full_RX = refit_fully(pair.new_fit, solution, weight_RD, penalty=penalty)
    step_R, full_R = (
        moved_nll_sums(pair.new_eval, solution.correction, rows).sum(0) / 6000 for rows in (step_RX, full_RX)
    )
    check = check_refits(step_R, full_R)
    assert check.num_refits == 20
    assert check.correlation > 0.95
    assert check.rms_difference < 0.35 * check.sd
    assert np.abs(step_R - full_R).max() < check.sd
    assert np.linalg.norm(step_RX - full_RX) < 0.3 * np.linalg.norm(full_RX)
    if num_ids is None:
        assert np.abs(step_RX[:, 1:].sum(1)).max() < 1e-9


def test_equal_weights_move_nothing_and_small_weights_move_exactly(pair):
    free_K = free_ids(pair.new_fit, 15).mask_K
    solution = fit_optimum(pair.new_fit, free_K, penalty=1e-3, gap=1e-16)
    num = pair.new_fit.num_documents
    assert np.abs(refit_one_step(pair.new_fit, solution, np.full((1, num), 3.0), penalty=1e-3)).max() < 1e-7
    weight_RD = 1 + 1e-3 * (bayesian_weights(np.random.default_rng(3), 2, num) - 1)
    step = refit_one_step(pair.new_fit, solution, weight_RD, penalty=1e-3)
    full = refit_fully(pair.new_fit, solution, weight_RD, penalty=1e-3, gap=1e-17)
    assert np.linalg.norm(step - full) < 0.02 * np.linalg.norm(full)
    with pytest.raises(UserError, match="3 weights"):
        refit_one_step(pair.new_fit, solution, np.ones((1, 3)))


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_one_newton_step_moves_no_unseen_id(pair, penalty):
    """Without a penalty the unseen ids are left out and a common shift changes nothing: none is made."""
    extra_N3 = np.random.default_rng(7).normal(1, 1, (6000, 3))
    wide_NV = np.concatenate([pair.new_fit.logits_NK, extra_N3], axis=1)
    text = Statistics.dense(wide_NV, pair.new_fit.target_column_N, pair.new_fit.document_N)
    solution = fit_optimum(text, free_ids(text).mask_K, penalty=penalty, gap=1e-16)
    assert solution.attained is bool(penalty)
    assert solution.coordinates.gauge is not bool(penalty)
    weight_RD = 1 + 1e-3 * (bayesian_weights(np.random.default_rng(8), 2, text.num_documents) - 1)
    step = refit_one_step(text, solution, weight_RD, penalty=penalty)
    full = refit_fully(text, solution, weight_RD, penalty=penalty, gap=1e-17)
    if not penalty:
        assert np.abs(step[:, 1:].sum(1)).max() < 1e-12
    assert not step[:, -3:].any()
    assert not full[:, -3:].any()
    assert np.linalg.norm(step - full) < 0.02 * np.linalg.norm(full)


def test_held_coordinates_stay_held(pair):
    cold = Statistics.dense(9 * pair.old_fit.logits_NK, pair.old_fit.target_column_N, pair.old_fit.document_N)
    solution = fit_optimum(cold, free_ids(cold, 10).mask_K, penalty=1e-3, gap=1e-16)
    assert solution.at_edge
    weight_RD = bayesian_weights(np.random.default_rng(4), 3, cold.num_documents)
    moved = refit_one_step(cold, solution, weight_RD, penalty=1e-3)
    assert not moved[:, 0].any()
    assert not moved[:, 1:][:, ~solution.coordinates.free_K].any()
    assert moved[:, 1:][:, solution.coordinates.free_K].all()
    # The biases move as they would with beta held, which a step in both, cut at the edge, would not give.
    near_RD = 1 + 1e-3 * (weight_RD - 1)
    step = refit_one_step(cold, solution, near_RD, penalty=1e-3)
    full = refit_fully(cold, solution, near_RD, penalty=1e-3, gap=1e-17)
    assert np.linalg.norm(step - full) < 0.02 * np.linalg.norm(full)


def test_bayesian_weights_have_mean_one_and_the_spread_of_a_flat_dirichlet():
    weight_RD = bayesian_weights(np.random.default_rng(0), 4000, 10)
    assert np.allclose(weight_RD.mean(1), 1)
    assert weight_RD.var() == pytest.approx(9 / 11, rel=0.05)


def test_second_order_losses_follow_exact_ones(pair):
    correction = Correction(0.8, np.random.default_rng(5).normal(0, 0.3, 40))
    moves_RX = np.random.default_rng(6).normal(0, 0.02, (4, 41))
    moves_RX[0] = 0
    moved_DR = moved_nll_sums(pair.new_eval, correction, moves_RX)
    exact_DR = np.stack(
        [nll_sums(pair.new_eval, correction.moved(correction.vector() + move)) for move in moves_RX], axis=1
    )
    assert np.allclose(moved_DR[:, 0], exact_DR[:, 0], rtol=1e-12)
    change_DR = exact_DR - exact_DR[:, :1]
    assert np.abs(moved_DR - exact_DR).max() < 0.01 * np.abs(change_DR).max()


def test_second_order_losses_err_in_the_third_order(pair):
    correction = Correction(0.8, np.random.default_rng(5).normal(0, 0.3, 40))
    move_X = np.random.default_rng(6).normal(0, 0.1, 41)
    errors = []
    for size in (1.0, 0.5):
        moved = moved_nll_sums(pair.new_eval, correction, size * move_X[None])[:, 0]
        exact = nll_sums(pair.new_eval, correction.moved(correction.vector() + size * move_X))
        errors.append(abs(moved.sum() - exact.sum()))
    assert 6 < errors[0] / errors[1] < 10


def test_refit_check_by_hand():
    check = check_refits(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    assert check.rms_difference == pytest.approx(np.sqrt(1 / 3))
    assert check.sd == 1.0
    assert np.isnan(check_refits(np.ones(2), np.ones(2)).correlation)
    with pytest.raises(UserError, match="cannot be compared"):
        check_refits(np.ones(3), np.ones(2))


def test_centred_noise_adds_nothing_at_the_mean_state():
    rng = np.random.default_rng(0)
    noise_Vd, mean_d = rng.normal(size=(20, 8)), rng.normal(size=8)
    centred_Vd = centred_noise(noise_Vd, mean_d)
    assert np.abs(centred_Vd @ mean_d).max() < 1e-12
    across_d = rng.normal(size=8)
    across_d -= (across_d @ mean_d) / (mean_d @ mean_d) * mean_d
    assert np.allclose(centred_Vd @ across_d, noise_Vd @ across_d)
    assert np.array_equal(centred_noise(noise_Vd, np.zeros(8)), noise_Vd)
    assert mean_energy_share(np.array([3.0, 4.0]), 50.0) == 0.5
    assert np.isnan(mean_energy_share(np.zeros(2), 0.0))


@pytest.mark.parametrize("start", [1e-4, 0.3, 50.0])
def test_damage_is_matched_to_one_percent(start):
    result = match_damage(lambda sigma: 2 * sigma**2 - 0.1 * sigma, 0.5, start=start)
    assert result.failure == ""
    assert result.delta == pytest.approx(0.5, rel=0.01)
    assert 2 * result.sigma**2 - 0.1 * result.sigma == result.delta
    assert result.num_evaluations < 30


@pytest.mark.parametrize(
    ("delta_of", "reason"),
    [
        (lambda sigma: min(sigma, 0.4), "no sigma up to"),
        (lambda sigma: np.nan, "not finite"),
        (lambda sigma: 0.0 if sigma < 0.7 else 1.0, "jumps"),
    ],
)
def test_damage_that_cannot_be_matched_has_a_reason(delta_of, reason):
    result = match_damage(delta_of, 0.5, start=0.1)
    assert np.isnan(result.sigma)
    assert reason in result.failure


def test_damage_refuses_an_improvement_and_a_start_of_zero():
    with pytest.raises(UserError, match="loss increase to match"):
        match_damage(lambda sigma: sigma, -0.1, start=0.1)
    with pytest.raises(UserError, match="first noise scale"):
        match_damage(lambda sigma: sigma, 0.1, start=0.0)

"""Optima, certificates, constraints, the published procedures and the in-sample upper bounds."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from tests.math.prior_texts import V, make, make_reduced

from stemmatics.core.errors import UserError
from stemmatics.math.prior import (
    Correction,
    Statistics,
    closed_form_bias,
    expected_counts,
    fit_affine,
    fit_arms,
    fit_closed_form,
    fit_optimum,
    fit_proportional,
    free_ids,
    mean_loss,
    nll_sums,
)
from stemmatics.math.prior.newton import _longest_step


def test_joint_optimum_equals_a_general_optimiser():
    text = make()
    solution = fit_optimum(text, np.ones(V, dtype=bool), penalty=0.01, gap=1e-12)

    def value(x):
        log_p_NV = log_softmax(x[0] * text.logits_NK + x[1:], axis=1)
        loss = -log_p_NV[np.arange(600), text.target_column_N].mean()
        p_NV = np.exp(log_p_NV)
        residual_NV = p_NV - np.eye(V)[text.target_column_N]
        gradient = np.concatenate([[(residual_NV * text.logits_NK).sum()], residual_NV.sum(0)]) / 600
        gradient[1:] += 0.01 * (x[1:] - x[1:].mean())
        return loss + 0.005 * ((x[1:] - x[1:].mean()) ** 2).sum(), gradient

    start = Correction.identity(V).vector()
    other = minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    assert solution.value == pytest.approx(other.fun, abs=1e-10)
    assert np.allclose(solution.correction.bias_K, other.x[1:] - other.x[1:].mean(), atol=1e-5)
    assert solution.correction.inverse_temperature == pytest.approx(other.x[0], abs=1e-5)


def test_certificate_bounds_what_is_left():
    text, free_K = make(), np.ones(V, dtype=bool)
    best = fit_optimum(text, free_K, gap=1e-15)
    rough = fit_optimum(text, free_K, gap=1e-3)
    assert best.certificate.converged
    assert best.certificate.gradient_norm < 1e-7
    assert best.certificate.gap <= 1e-15
    assert 0 <= rough.loss - best.loss <= 1.5 * rough.certificate.gap + 1e-12
    assert rough.certificate.num_steps < best.certificate.num_steps


def test_float32_rows_reach_the_certificate():
    text = make(num=3000)
    single = Statistics.dense(text.logits_NK.astype(np.float32), text.target_column_N, text.document_N)
    solution = fit_optimum(single, np.ones(V, dtype=bool), gap=1e-10)
    assert solution.certificate.converged
    assert solution.certificate.gap <= 1e-10
    assert solution.loss == pytest.approx(fit_optimum(text, np.ones(V, dtype=bool)).loss, abs=1e-6)


@pytest.mark.parametrize("num_ids", [3, 12, None])
def test_fit_losses_nest_and_every_optimum_is_certified(num_ids):
    fit, held_out = make(seed=1).split()
    arms = fit_arms(fit, held_out, num_ids)
    joint, bias, temperature = (arm.optimum for arm in (arms.joint, arms.bias, arms.temperature))
    assert joint.loss <= min(bias.loss, temperature.loss) + 1e-7
    assert max(bias.loss, temperature.loss) <= mean_loss(fit, Correction.identity(V))
    assert all(solution.certificate.converged for solution in (joint, bias, temperature))
    assert bias.correction.inverse_temperature == 1.0
    assert not temperature.correction.bias_K.any()
    for arm in (arms.joint, arms.bias, arms.temperature):
        assert arm.selected.held_out_loss <= mean_loss(held_out, Correction.identity(V))
        assert arm.selected.held_out_loss <= mean_loss(held_out, arm.optimum.correction)
        assert arm.selected.held_out_loss == mean_loss(held_out, arm.selected.correction)
    assert arms.joint.selected.held_out_loss <= arms.bias.selected.held_out_loss


def test_selection_shrinks_where_the_model_is_right():
    rng = np.random.default_rng(2)
    logits_NV = rng.normal(0, 1.5, (1000, V))
    target_N = np.argmax(logits_NV + rng.gumbel(size=logits_NV.shape), axis=1)
    bias = fit_arms(*Statistics.dense(logits_NV, target_N, np.zeros(1000, dtype=int)).split()).bias
    assert bias.selected.penalty > 0
    shrunk, free = (np.linalg.norm(c.bias_K) for c in (bias.selected.correction, bias.optimum.correction))
    assert shrunk < 0.8 * free


def test_a_common_shift_is_held_where_it_changes_nothing_only():
    text = make(num=2000)
    full = fit_optimum(text, free_ids(text).mask_K)
    some = fit_optimum(text, free_ids(text, 5).mask_K)
    assert full.coordinates.gauge
    assert abs(full.correction.bias_K.sum()) < 1e-10
    assert not some.coordinates.gauge
    assert abs(some.correction.bias_K.sum()) > 1e-3
    assert np.count_nonzero(some.correction.bias_K) == 5


def test_more_free_ids_than_the_vocabulary_means_all_with_a_note():
    text = make(num=2000)
    many, every = free_ids(text, 4096), free_ids(text, V)
    assert many.mask_K.all()
    assert "4096 ids were requested; all 30" in many.note
    assert every.note == ""
    first, second = fit_optimum(text, many.mask_K), fit_optimum(text, free_ids(text).mask_K)
    assert first.loss == second.loss
    with pytest.raises(UserError, match="free ids is 0"):
        free_ids(text, 0)


def test_free_ids_are_the_most_frequent_with_ties_to_the_smaller_id():
    text = Statistics.dense(np.zeros((6, 5)), np.array([4, 4, 1, 2, 3, 3]), np.zeros(6, dtype=int))
    assert np.flatnonzero(free_ids(text, 3).mask_K).tolist() == [1, 3, 4]


def brute_infimum(text, seen_V):
    """The best bias and temperature on the seen ids alone, by a general optimiser."""
    logits_NS = text.logits_NK[:, seen_V]
    target_N = (np.cumsum(seen_V) - 1)[text.target_column_N]

    def value(x):
        log_p_NS = log_softmax(x[0] * logits_NS + x[1:], axis=1)
        residual_NS = np.exp(log_p_NS) - np.eye(seen_V.sum())[target_N]
        gradient = np.concatenate([[(residual_NS * logits_NS).sum()], residual_NS.sum(0)]) / len(target_N)
        return -log_p_NS[np.arange(len(target_N)), target_N].mean(), gradient

    start = np.concatenate([[1.0], np.zeros(seen_V.sum())])
    return minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9}).fun


def test_where_every_target_is_free_the_infimum_is_the_optimum_without_unseen_ids():
    text = make(unseen=4)
    seen_V = text.counts > 0
    solution = fit_optimum(text, np.ones(V, dtype=bool), gap=1e-12)
    assert solution.loss == pytest.approx(brute_infimum(text, seen_V), abs=1e-10)
    assert not solution.attained
    assert np.isneginf(solution.correction.bias_K[~seen_V]).all()
    assert solution.certificate.converged
    # the certificate is of the problem without the unseen ids, where a common shift changes nothing
    smaller = Statistics.dense(
        text.logits_NK[:, seen_V], (np.cumsum(seen_V) - 1)[text.target_column_N], text.document_N
    )
    assert fit_optimum(smaller, np.ones(seen_V.sum(), dtype=bool), gap=1e-12).loss == pytest.approx(
        solution.loss, abs=1e-12
    )
    shifted_V = np.where(seen_V, solution.correction.bias_K + 3.0, -np.inf)
    moved = Correction(solution.correction.inverse_temperature, shifted_V, keep_rest=False)
    assert mean_loss(text, moved) == pytest.approx(solution.loss, abs=1e-12)
    # biases that push the unseen ids away come as near to it as one likes, and never below
    losses = [
        mean_loss(text, Correction(moved.inverse_temperature, np.where(seen_V, shifted_V + push, 0.0)))
        for push in (0.0, 5.0, 20.0)
    ]
    assert losses[0] > losses[1] > losses[2] > solution.loss - 1e-12
    assert losses[2] == pytest.approx(solution.loss, abs=1e-7)


def test_a_penalty_bounds_every_shift_so_no_id_is_left_out():
    text = make(unseen=4)
    solution = fit_optimum(text, np.ones(V, dtype=bool), penalty=1e-4)
    assert solution.attained
    assert not solution.coordinates.gauge
    assert not solution.correction.bias_K[-4:].any()
    assert solution.certificate.converged
    # stationary in every direction, the common shift included
    probability_V = expected_counts(text, solution.correction)[0] / text.num_positions
    gradient_V = probability_V - text.counts / text.num_positions + 1e-4 * solution.correction.bias_K
    assert np.abs(gradient_V[:-4]).max() < 1e-5
    assert solution.correction.bias_K.sum() > 1.0


@pytest.mark.parametrize(("form", "unseen"), [("dense", 0), ("dense", 4), ("reduced", 4)])
@pytest.mark.parametrize("temperature", [False, True])
def test_the_fit_optimum_never_rises_when_an_id_is_freed(form, temperature, unseen):
    """Over every K; the last step leaves the ids out that are never a target."""
    text = make(num=200, unseen=unseen, seed=3)
    num_seen = int((text.counts > 0).sum())
    if form == "reduced":
        text = make_reduced(V, num=200, unseen=unseen, seed=3)
    losses = [
        fit_optimum(text, free_ids(text, num_ids).mask_K, temperature=temperature, gap=1e-13).loss
        for num_ids in range(1, V + 1)
    ]
    assert np.diff(losses).max() < 1e-9
    assert losses[num_seen - 1] == pytest.approx(losses[-1], abs=1e-12)
    if num_seen < V:
        # the drop at the last id is that of the unseen ids' probability
        assert losses[num_seen - 2] - losses[num_seen - 1] > 1e-3


def test_an_infimum_is_never_selected_since_other_text_may_hold_the_ids_that_it_leaves_out():
    fit, held_out = make(unseen=4, seed=8).split()
    arms = fit_arms(fit, held_out)
    for arm in (arms.bias, arms.joint):
        assert not arm.optimum.attained
        assert arm.selected.penalty > 0
        assert arm.selected.correction.keeps_all
    assert arms.joint.optimum.loss <= min(arms.bias.optimum.loss, arms.temperature.optimum.loss) + 1e-12
    scored = make(seed=9)
    assert not arms.joint.optimum.correction.reaches(scored)
    assert arms.joint.optimum.correction.reaches(fit)
    assert arms.joint.selected.correction.reaches(scored)
    # where no id is left out, no penalty stays a candidate
    complete = fit_arms(*make(num=6000, seed=8).split(), 5)
    assert complete.bias.optimum.attained


def test_a_target_of_the_scored_text_that_the_fit_never_saw_keeps_its_bias_of_zero():
    fit, scored = make(unseen=4), make(seed=9)
    arms = fit_arms(*fit.split())
    assert np.any(scored.target_column_N >= V - 4)
    assert np.isfinite(nll_sums(scored, arms.joint.selected.correction)).all()
    assert not arms.joint.selected.correction.bias_K[-4:].any()


@pytest.mark.parametrize(("scale", "edge"), [(9.0, 4.0), (0.01, 0.25)])
def test_temperature_at_an_edge_is_flagged_and_the_rest_is_still_optimal(scale, edge):
    text = make(scale=scale, num=900)
    solution = fit_optimum(text, np.ones(V, dtype=bool), gap=1e-11)
    assert solution.correction.inverse_temperature == edge
    assert solution.at_edge
    assert solution.certificate.converged
    held = Statistics.dense(edge * text.logits_NK, text.target_column_N, text.document_N)
    alone = fit_optimum(held, np.ones(V, dtype=bool), temperature=False, gap=1e-11)
    assert solution.loss == pytest.approx(alone.loss, abs=1e-9)
    assert not fit_optimum(make(), np.ones(V, dtype=bool)).at_edge


def test_a_step_ends_where_the_temperature_meets_its_edge():
    assert _longest_step(1.0, 6.0) == 0.5
    assert _longest_step(1.0, -3.0) == 0.25
    assert _longest_step(1.0, 0.5) == 1.0
    assert _longest_step(4.0, 0.0) == 1.0


def test_one_document_and_nothing_free():
    text = Statistics.dense(*(make().logits_NK, make().target_column_N, np.zeros(600, dtype=int)))
    arms = fit_arms(*text.split())
    assert arms.joint.optimum.certificate.converged
    with pytest.raises(UserError, match="Nothing is free"):
        fit_optimum(text, np.zeros(V, dtype=bool), temperature=False)


def test_closed_form_equals_brute_force_and_shrinks():
    text = make(unseen=2)
    p_NV = softmax(text.logits_NK, axis=1)
    for smoothing in (0.1, 1.0, 10.0):
        bias_V = fit_closed_form(text, smoothing).bias_K
        for v in range(V):
            n, m = np.sum(text.target_column_N == v), p_NV[:, v].sum()
            assert bias_V[v] == pytest.approx(np.log((n + smoothing * m) / ((1 + smoothing) * m)), abs=1e-12)
        assert bias_V[-1] == pytest.approx(np.log(smoothing / (1 + smoothing)), abs=1e-12)
    assert np.abs(fit_closed_form(text, 1e9).bias_K).max() < 1e-6
    with pytest.raises(UserError, match="smoothing"):
        fit_closed_form(text, 0.0)
    with pytest.raises(UserError, match="no probability"):
        closed_form_bias(np.ones(2), np.array([1.0, 0.0]), 1.0)


@pytest.mark.parametrize("num_ids", [None, 8])
def test_proportional_fitting_goes_to_the_bias_optimum_where_counts_match(num_ids):
    text = make()
    free_K = free_ids(text, num_ids).mask_K
    # Selecting on the fit itself never stops early: the fixed point is reached.
    matched = fit_proportional(text, text, free_K, max_steps=3000)
    expected_K, _ = expected_counts(text, matched.correction)
    assert np.allclose(expected_K[free_K], text.counts[free_K], atol=1e-4)
    optimum = fit_optimum(text, free_K, temperature=False, gap=1e-11)
    assert matched.fit_loss == pytest.approx(optimum.loss, abs=1e-9)
    bias_K = matched.correction.bias_K - (matched.correction.bias_K.mean() if num_ids is None else 0.0)
    assert np.allclose(bias_K, optimum.correction.bias_K, atol=1e-4)
    expected_K, _ = expected_counts(text, optimum.correction)
    assert np.allclose(expected_K[free_K], text.counts[free_K], atol=1e-2)


def test_first_proportional_step_is_the_log_ratio_and_the_cap_is_flagged():
    text = make()
    free_K = free_ids(text, 8).mask_K
    first = fit_proportional(text, text, free_K, max_steps=1)
    m_V = softmax(text.logits_NK, axis=1).sum(0)
    expected_K = np.where(free_K, np.log(text.counts / m_V), 0.0)
    assert np.allclose(first.correction.bias_K, expected_K, atol=1e-12)
    assert first.capped
    assert (first.num_steps, first.num_passes) == (1, 2)
    assert first.fit_loss == pytest.approx(mean_loss(text, first.correction), abs=1e-12)


def test_proportional_fitting_stops_where_the_held_out_loss_rises():
    fit, held_out = make(num=200, seed=4).split(0.5)
    free_K = free_ids(fit).mask_K
    matched = fit_proportional(fit, held_out, free_K)
    assert not matched.capped
    assert matched.num_steps < 20
    further = fit_proportional(fit, fit, free_K, max_steps=matched.num_steps + 1)
    assert matched.held_out_loss <= mean_loss(held_out, further.correction)
    wrong = Statistics.dense(held_out.logits_NK, (held_out.target_column_N + 7) % V, held_out.document_N)
    assert fit_proportional(fit, wrong, free_K).num_steps == 0


def test_search_over_temperature_finds_the_planted_one_and_joint_fits_no_worse():
    fit, held_out = make(num=4000, scale=1.6, seed=5).split()
    affine = fit_affine(fit, held_out, free_ids(fit).mask_K)
    assert affine.correction.temperature == pytest.approx(1 / 1.6, abs=0.04)
    assert not affine.at_edge
    fixed = fit_proportional(fit, held_out, free_ids(fit).mask_K)
    assert affine.held_out_loss < fixed.held_out_loss
    joint = fit_arms(fit, held_out).joint.optimum
    assert joint.loss <= affine.fit_loss
    assert affine.num_passes > 10 * joint.certificate.num_passes

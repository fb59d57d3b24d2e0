"""Optima, certificates, constraints, the published procedures and the in-sample ceilings."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from stemmatics.core.errors import UserError
from stemmatics.math.prior import (
    Correction,
    Rest,
    Statistics,
    closed_form_bias,
    expected_counts,
    fit_affine,
    fit_arms,
    fit_closed_form,
    fit_optimum,
    fit_proportional,
    free_ids,
    in_sample_optimum,
    in_sample_step,
    mean_loss,
    nll_sums,
    reduce_logits,
    top_columns,
)
from stemmatics.math.prior.newton import _longest_step

V = 30


def make(seed=0, num=600, scale=1.5, vocabulary=V, unseen=0):
    """Targets follow shifted, sharpened logits; the last ``unseen`` ids are never targets."""
    rng = np.random.default_rng(seed)
    logits_NV = rng.normal(0, 1.5, (num, vocabulary))
    true_NV = scale * logits_NV + rng.normal(0, 0.7, vocabulary)
    true_NV[:, vocabulary - unseen :] = -np.inf
    target_N = np.argmax(true_NV + rng.gumbel(size=true_NV.shape), axis=1)
    return Statistics.dense(logits_NV, target_N, np.arange(num) // 20)


def make_reduced(num_columns, **settings):
    full = make(**settings)
    ids_K = top_columns(full.target_column_N, num_columns, V)
    logits_NK, column_N, target_logit_N, log_z_NJ = reduce_logits(full.logits_NK, full.target_column_N, ids_K)
    num_documents = full.num_documents
    return Statistics(
        logits_NK, column_N, full.document_N, ids_K, num_documents, target_logit_N, Rest(log_z_NJ)
    )


def test_joint_optimum_equals_a_general_optimiser():
    text = make()
    solution = fit_optimum(text, np.ones(V, dtype=bool), penalty=0.01)

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
    solution = fit_optimum(single, np.ones(V, dtype=bool))
    assert solution.certificate.converged
    assert solution.certificate.gap <= 1e-10
    assert solution.loss == pytest.approx(fit_optimum(text, np.ones(V, dtype=bool)).loss, abs=1e-6)


@pytest.mark.parametrize("num_ids", [3, 12, None])
def test_fit_losses_nest_and_every_optimum_is_certified(num_ids):
    fit, held_out = make(seed=1).split()
    arms = fit_arms(fit, held_out, num_ids)
    joint, bias, temperature = (arm.optimum for arm in (arms.joint, arms.bias, arms.temperature))
    assert joint.loss <= min(bias.loss, temperature.loss) + 1e-13
    assert max(bias.loss, temperature.loss) <= arms.uncorrected_loss
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


def test_gauge_is_fixed_for_the_whole_vocabulary_only():
    text = make(num=2000)
    full = fit_optimum(text, free_ids(text).mask_K)
    some = fit_optimum(text, free_ids(text, 5).mask_K)
    assert full.coordinates.gauge
    assert abs(full.correction.bias_K.sum()) < 1e-10
    assert not some.coordinates.gauge
    assert abs(some.correction.bias_K.sum()) > 1e-3
    assert np.count_nonzero(some.correction.bias_K) == 5


def test_more_free_ids_than_the_vocabulary_means_all_and_is_said():
    text = make(num=2000)
    many, every = free_ids(text, 4096), free_ids(text, V)
    assert many.mask_K.all()
    assert "4096 ids were asked for; all 30" in many.note
    assert every.note == ""
    one, two = fit_optimum(text, many.mask_K), fit_optimum(text, free_ids(text).mask_K)
    assert one.loss == two.loss
    with pytest.raises(UserError, match="0 free ids"):
        free_ids(text, 0)


def test_free_ids_are_the_most_frequent_with_ties_to_the_smaller_id():
    text = Statistics.dense(np.zeros((6, 5)), np.array([4, 4, 1, 2, 3, 3]), np.zeros(6, dtype=int))
    assert np.flatnonzero(free_ids(text, 3).mask_K).tolist() == [1, 3, 4]


@pytest.mark.parametrize("penalty", [0.0, 1e-4])
def test_ids_that_are_never_a_target_stay_out_and_the_optimum_exists(penalty):
    text = make(unseen=4)
    solution = fit_optimum(text, np.ones(V, dtype=bool), penalty=penalty)
    assert not solution.correction.bias_K[-4:].any()
    assert solution.coordinates.gauge
    assert abs(solution.correction.bias_K.sum()) < 1e-9
    assert solution.certificate.converged
    assert np.abs(solution.correction.bias_K).max() < 10


def test_a_target_of_the_scored_text_that_the_fit_never_saw_keeps_its_bias_of_zero():
    fit, scored = make(unseen=4), make(seed=9)
    arms = fit_arms(*fit.split())
    assert np.any(scored.target_column_N >= V - 4)
    assert np.isfinite(nll_sums(scored, arms.joint.selected.correction)).all()
    assert not arms.joint.selected.correction.bias_K[-4:].any()


@pytest.mark.parametrize(("scale", "edge"), [(9.0, 4.0), (0.01, 0.25)])
def test_temperature_at_an_edge_is_flagged_and_the_rest_is_still_optimal(scale, edge):
    text = make(scale=scale, num=900)
    solution = fit_optimum(text, np.ones(V, dtype=bool))
    assert solution.correction.inverse_temperature == edge
    assert solution.at_edge
    assert solution.certificate.converged
    held = Statistics.dense(edge * text.logits_NK, text.target_column_N, text.document_N)
    alone = fit_optimum(held, np.ones(V, dtype=bool), temperature=False)
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
    optimum = fit_optimum(text, free_K, temperature=False)
    assert matched.fit_loss == pytest.approx(optimum.loss, abs=1e-9)
    bias_K = matched.correction.bias_K - (matched.correction.bias_K.mean() if num_ids is None else 0.0)
    assert np.allclose(bias_K, optimum.correction.bias_K, atol=1e-4)
    expected_K, _ = expected_counts(text, optimum.correction)
    assert np.allclose(expected_K[free_K], text.counts[free_K], atol=1e-2)


def test_first_proportional_step_is_the_log_ratio_and_the_cap_is_flagged():
    text = make()
    free_K = free_ids(text, 8).mask_K
    one = fit_proportional(text, text, free_K, max_steps=1)
    m_V = softmax(text.logits_NK, axis=1).sum(0)
    expected_K = np.where(free_K, np.log(text.counts / m_V), 0.0)
    assert np.allclose(one.correction.bias_K, expected_K, atol=1e-12)
    assert one.capped
    assert (one.num_steps, one.num_passes) == (1, 2)
    assert one.fit_loss == pytest.approx(mean_loss(text, one.correction), abs=1e-12)


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


@pytest.mark.parametrize("unseen", [0, 5])
@pytest.mark.parametrize("num_columns", [None, 10])
def test_jensen_chain(unseen, num_columns):
    text = make(unseen=unseen, seed=6) if num_columns is None else make_reduced(10, unseen=unseen, seed=6)
    plain = mean_loss(text, Correction.identity(text.num_columns))
    step = in_sample_step(text)
    bias = in_sample_optimum(text, temperature=False)
    joint = in_sample_optimum(text)
    assert 0 < step.jensen_bound < step.gain < plain - bias.loss < plain - joint.loss
    assert bias.certificate.converged
    assert joint.certificate.converged
    share_K = text.counts / text.num_positions
    mean_K = expected_counts(text, Correction.identity(text.num_columns))[0] / text.num_positions
    q = np.append(share_K, max(0.0, 1 - share_K.sum()))
    p = np.append(mean_K, 1 - mean_K.sum())
    seen = q > 1e-12
    assert step.jensen_bound == pytest.approx(float(q[seen] @ np.log(q[seen] / p[seen])), abs=1e-9)


def test_in_sample_step_equals_brute_force_without_the_ids_that_never_occur():
    text = make(unseen=5, seed=7)
    seen_V = text.counts > 0
    p_NV = softmax(text.logits_NK, axis=1)
    ratio_V = text.counts / p_NV.sum(0)
    gain = np.mean(np.log(ratio_V[text.target_column_N])) - np.mean(np.log(p_NV @ ratio_V))
    step = in_sample_step(text)
    assert step.gain == pytest.approx(gain, abs=1e-12)
    assert np.isneginf(step.correction.bias_K[~seen_V]).all()


def test_in_sample_optimum_is_a_ceiling_for_any_bias_and_temperature():
    text = make(unseen=5, seed=7)
    ceiling = in_sample_optimum(text)
    rng = np.random.default_rng(0)
    pushed_V = np.where(text.counts > 0, ceiling.correction.bias_K, -60.0)
    near = mean_loss(text, Correction(ceiling.correction.inverse_temperature, pushed_V))
    assert near == pytest.approx(ceiling.loss, abs=1e-9)
    for _ in range(20):
        beta = float(np.clip(ceiling.correction.inverse_temperature + rng.normal(0, 0.1), 0.25, 4))
        assert mean_loss(text, Correction(beta, pushed_V + rng.normal(0, 0.1, V))) > ceiling.loss
    gauged = fit_optimum(text, np.ones(V, dtype=bool))
    assert ceiling.loss < gauged.loss


def test_a_reduced_text_whose_rest_is_never_a_target_drops_the_rest():
    text = make(unseen=5, seed=7)
    small = make_reduced(V, unseen=5, seed=7)
    assert small.num_columns == np.count_nonzero(text.counts)
    assert not in_sample_step(small).correction.keep_rest
    assert in_sample_optimum(small).loss == pytest.approx(in_sample_optimum(text).loss, abs=1e-9)
    with pytest.raises(UserError, match="no probability"):
        nll_sums(make_reduced(5, seed=7), Correction(1.0, np.zeros(5), keep_rest=False))


@pytest.mark.parametrize("num_columns", [V, 10])
def test_targets_of_eval_that_fit_never_had_keep_their_logits(num_columns):
    """Ids V-5.. are targets in EVAL alone: no bias of theirs is fitted, and what they cost is counted."""
    fit, evaluated = make(unseen=5, seed=8), make(seed=9)
    unseen_V = fit.counts == 0
    assert np.isin(evaluated.target_column_N, np.flatnonzero(unseen_V)).any()
    ids_K = top_columns(fit.target_column_N, num_columns, V)
    parts = []
    for text in (fit, evaluated):
        logits_NK, column_N, target_logit_N, log_z_NJ = reduce_logits(
            text.logits_NK, text.target_column_N, ids_K
        )
        parts.append(
            Statistics(logits_NK, column_N, text.document_N, ids_K, 30, target_logit_N, Rest(log_z_NJ))
        )
    small_fit, small_evaluated = parts
    train, held_out = small_fit.split()
    arms = fit_arms(train, held_out)
    smoothed = fit_closed_form(train, 0.5)
    for correction in (arms.joint.optimum.correction, arms.bias.selected.correction, smoothed):
        bias_V = np.zeros(V)
        bias_V[ids_K] = correction.bias_K
        assert not bias_V[unseen_V].any()
        log_p_NV = log_softmax(correction.inverse_temperature * evaluated.logits_NK + bias_V, axis=1)
        by_hand_N = -log_p_NV[np.arange(600), evaluated.target_column_N]
        by_hand_D = np.bincount(evaluated.document_N, by_hand_N)
        assert nll_sums(small_evaluated, correction) == pytest.approx(by_hand_D, abs=1e-5)

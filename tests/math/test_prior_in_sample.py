"""Upper bounds on the scored text itself, and ids that one text has and the other lacks."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from tests.math.prior_texts import V, make, make_reduced

from stemmatics.core.errors import UserError
from stemmatics.math.prior import (
    Correction,
    Rest,
    Statistics,
    expected_counts,
    fit_arms,
    fit_closed_form,
    fit_optimum,
    in_sample_optimum,
    in_sample_step,
    mean_loss,
    nll_sums,
    reduce_logits,
    top_columns,
)


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
    is_target = q > 1e-12
    assert step.jensen_bound == pytest.approx(
        float(q[is_target] @ np.log(q[is_target] / p[is_target])), abs=1e-9
    )


def test_in_sample_step_equals_brute_force_without_the_ids_that_never_occur():
    text = make(unseen=5, seed=7)
    is_target_V = text.counts > 0
    p_NV = softmax(text.logits_NK, axis=1)
    ratio_V = text.counts / p_NV.sum(0)
    gain = np.mean(np.log(ratio_V[text.target_column_N])) - np.mean(np.log(p_NV @ ratio_V))
    step = in_sample_step(text)
    assert step.gain == pytest.approx(gain, abs=1e-12)
    assert np.isneginf(step.correction.bias_K[~is_target_V]).all()


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
    infimum = fit_optimum(text, np.ones(V, dtype=bool))
    # two searches from two starts, each to its gap
    assert ceiling.loss == pytest.approx(infimum.loss, abs=1e-7)
    assert ceiling.loss < fit_optimum(text, np.ones(V, dtype=bool), penalty=1e-4).loss


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
    corrections = [arms.joint.selected.correction, arms.bias.selected.correction, smoothed]
    if arms.joint.optimum.attained:
        corrections.append(arms.joint.optimum.correction)
    for correction in corrections:
        bias_V = np.zeros(V)
        bias_V[ids_K] = correction.bias_K
        assert not bias_V[unseen_V].any()
        log_p_NV = log_softmax(correction.inverse_temperature * evaluated.logits_NK + bias_V, axis=1)
        by_hand_N = -log_p_NV[np.arange(600), evaluated.target_column_N]
        by_hand_D = np.bincount(evaluated.document_N, by_hand_N)
        assert nll_sums(small_evaluated, correction) == pytest.approx(by_hand_D, abs=1e-5)

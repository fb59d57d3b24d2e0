"""Fits redrawn with the choice of their penalty inside: by brute force, and with a known truth."""

import numpy as np
import pytest

from stemmatics.math.prior import (
    Coordinates,
    Correction,
    Solution,
    Statistics,
    bayesian_weights,
    fit_arms,
    held_out_documents,
    moved_nll_sums,
    nll_sums,
    part_of_documents,
    redraw,
    refit_one_step,
    with_fit_inside,
)
from stemmatics.math.rates import mean_interval

V, LENGTH = 12, 15


def text_of(rng, num_documents, bias_V, spread=0.4):
    """Documents with unigrams of their own around one bias that the model lacks."""
    num = num_documents * LENGTH
    logits_NV = rng.normal(0, 1.0, (num, V))
    own_NV = np.repeat(rng.normal(0, spread, (num_documents, V)), LENGTH, axis=0)
    target_N = np.argmax(logits_NV + bias_V + own_NV + rng.gumbel(size=logits_NV.shape), axis=1)
    return Statistics.dense(logits_NV, target_N, np.repeat(np.arange(num_documents), LENGTH))


def fitted(rng, num_documents=60, bias_sd=0.2, scored_documents=60):
    bias_V = np.random.default_rng(5).normal(0, bias_sd, V)
    text, scored = text_of(rng, num_documents, bias_V), text_of(rng, scored_documents, bias_V)
    parts = text.split_documents(held_out_documents(rng, np.arange(num_documents)))
    return parts, scored, fit_arms(*parts, gap=1e-9)


def brute(parts, scored, candidates, free_K, weight_RD):
    """Every candidate moved under every draw; the choice by the weighted held-out loss."""
    fit, held = parts
    held_RC, scored_RC = [], []
    for candidate in candidates:
        penalty = candidate.penalty if candidate.biases else 0.0
        move_RX = np.zeros((len(weight_RD), V + 1))
        if candidate.biases or candidate.temperature:
            moved_K = free_K if candidate.biases else np.zeros(V, dtype=bool)
            coordinates = Coordinates.of(fit, moved_K, temperature=candidate.temperature, penalty=penalty)
            solution = Solution(candidate.correction, 0.0, 0.0, None, at_edge=False, coordinates=coordinates)
            move_RX = refit_one_step(fit, solution, weight_RD, penalty=penalty)
        nll_DR = moved_nll_sums(held, candidate.correction, move_RX)
        held_RC.append([weight_RD[r] @ nll_DR[:, r] for r in range(len(weight_RD))])
        scored_RC.append(moved_nll_sums(scored, candidate.correction, move_RX).sum(0))
    chosen_R = np.argmin(np.array(held_RC), axis=0)
    return chosen_R, np.array(scored_RC)[chosen_R, np.arange(len(weight_RD))]


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_made_again_in_every_draw(seed):
    rng = np.random.default_rng(seed)
    parts, scored, arms = fitted(rng)
    weight_RD = bayesian_weights(rng, 60, 60)
    candidates = [arm.candidates for arm in (arms.bias, arms.temperature, arms.joint)]
    redrawn = redraw((*parts, scored), candidates, arms.free.mask_K, weight_RD)
    for draws, each in zip(redrawn, candidates, strict=True):
        chosen_R, nll_R = brute(parts, scored, each, arms.free.mask_K, weight_RD)
        same = draws.chosen_R == chosen_R
        # only penalties next to those that the held-out weights alone would choose are tried
        assert same.mean() > 0.95
        assert draws.nll_R[same] == pytest.approx(nll_R[same], abs=1e-9)
        assert len(np.unique(draws.chosen_R)) > 1


def test_equal_weights_choose_what_was_selected_and_move_nothing():
    rng = np.random.default_rng(3)
    parts, scored, arms = fitted(rng)
    (draws,) = redraw((*parts, scored), [arms.joint.candidates], arms.free.mask_K, np.ones((2, 60)))
    selected = arms.joint.selected
    assert arms.joint.candidates[draws.chosen_R[0]] is selected
    # the selected fit is within its gap of the optimum, and a step is to the optimum itself
    assert draws.nll_R == pytest.approx(nll_sums(scored, selected.correction).sum(), rel=1e-5)


def test_full_refits_follow_the_choice_of_their_draw():
    rng = np.random.default_rng(2)
    parts, scored, arms = fitted(rng, num_documents=120, bias_sd=0.5)
    weight_RD = bayesian_weights(rng, 12, 120)
    (draws,) = redraw((*parts, scored), [arms.bias.candidates], arms.free.mask_K, weight_RD, num_refits=8)
    assert draws.full_F.shape == (8,)
    assert np.abs(draws.nll_R[:8] - draws.full_F).max() < 0.5 * draws.full_F.std()


def test_no_candidate_of_a_selection_leaves_an_id_without_probability():
    rng = np.random.default_rng(1)
    parts, _, arms = fitted(rng, num_documents=8)
    assert all(candidate.correction.keeps_all for candidate in arms.joint.candidates)
    losses = [candidate.held_out_loss for candidate in arms.joint.candidates]
    assert arms.joint.selected.held_out_loss == min(losses)
    assert parts[1].num_positions == LENGTH


@pytest.mark.known
def test_the_interval_with_the_choice_inside_covers_the_mean_of_fits_on_other_text():
    """Truth: the mean over FIT texts of the gain on endless EVAL text, with the penalty chosen each time.

    The bias is so small that the choice of the penalty varies between texts.
    """
    rng = np.random.default_rng(11)
    bias_V = np.random.default_rng(5).normal(0, 0.2, V)
    endless = text_of(rng, 1500, bias_V)
    before = nll_sums(endless, Correction.identity(V)).sum()
    gains, found, num_chosen = [], [], []
    for _ in range(250):
        parts, scored, arms = fitted(rng)
        chosen = arms.joint.selected.correction
        gains.append((before - nll_sums(endless, chosen).sum()) / endless.num_positions)
        gain_D = (nll_sums(scored, Correction.identity(V)) - nll_sums(scored, chosen)) / LENGTH
        held = mean_interval(gain_D, rng=rng, num_resamples=1000)
        weight_RD = bayesian_weights(rng, 100, 60)
        fixed, draws = (
            redraw((*parts, scored), [candidates], arms.free.mask_K, weight_RD)[0]
            for candidates in ((arms.joint.selected,), arms.joint.candidates)
        )
        wider = [with_fit_inside(held, -each.nll_R / scored.num_positions) for each in (fixed, draws)]
        found.append([held, *wider])
        num_chosen.append(len(set(draws.chosen_R)))
    truth = np.mean(gains)
    covered = np.array([[each.lo <= truth <= each.hi for each in intervals] for intervals in found])
    held, fixed, inside = covered.mean(axis=0)
    assert np.mean(np.array(num_chosen) > 1) > 0.8
    # standard error .016; with the penalty of the first choice in every draw it is less
    assert 0.91 <= inside <= 0.985, covered.mean(axis=0)
    assert held < 0.85, covered.mean(axis=0)
    assert fixed < inside, covered.mean(axis=0)


@pytest.mark.known
def test_the_interval_of_a_rise_covers_the_mean_rise_and_seldom_lies_above_it():
    """From half of FIT to all of it, with penalties chosen on either, paired by document and by draw."""
    rng = np.random.default_rng(17)
    bias_V = np.random.default_rng(5).normal(0, 0.3, V)
    endless = text_of(rng, 1500, bias_V)
    rises, intervals = [], []
    for _ in range(200):
        text, scored = text_of(rng, 60, bias_V), text_of(rng, 60, bias_V)
        held_D = held_out_documents(rng, np.arange(60))
        half_D = part_of_documents(rng.permutation(60), np.arange(60), text.num_tokens, held_D, 0.5)
        parts = {
            "all": text.split_documents(held_D),
            "half": (text.of_documents(half_D & ~held_D), text.of_documents(half_D & held_D)),
        }
        weight_RD = bayesian_weights(rng, 100, 60)
        nll_D, endless_nll, draws_R = {}, {}, {}
        for name, (fit, held) in parts.items():
            arms = fit_arms(fit, held, gap=1e-9)
            chosen = arms.joint.selected.correction
            nll_D[name] = nll_sums(scored, chosen)
            endless_nll[name] = nll_sums(endless, chosen).sum() / endless.num_positions
            (drawn,) = redraw((fit, held, scored), [arms.joint.candidates], arms.free.mask_K, weight_RD)
            draws_R[name] = drawn.nll_R
        rises.append(endless_nll["half"] - endless_nll["all"])
        paired = mean_interval((nll_D["half"] - nll_D["all"]) / LENGTH, rng=rng, num_resamples=1000)
        intervals.append(with_fit_inside(paired, (draws_R["half"] - draws_R["all"]) / scored.num_positions))
    truth = np.mean(rises)
    assert truth > 0
    covered = np.mean([each.lo <= truth <= each.hi for each in intervals])
    above = np.mean([each.lo > truth for each in intervals])
    # standard errors .017 and .013
    assert covered >= 0.9, (covered, above)
    assert above <= 0.05, (covered, above)

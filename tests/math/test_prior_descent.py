"""Fits in few passes: the count, the certificate, and the same optimum as Newton's method."""

import numpy as np
import pytest
from tests.math.prior_texts import make, make_reduced

from stemmatics.math.prior import (
    Coordinates,
    Correction,
    Objective,
    Statistics,
    fit_arms,
    fit_optimum,
    free_ids,
)
from stemmatics.math.prior import descent as descents
from stemmatics.math.prior.arms import PENALTY_STRENGTHS
from stemmatics.math.prior.descent import Descent

MOST_PASSES = 25


def zipf(num=6000, vocabulary=400, unseen=40, seed=0):
    """Ids as rare as those of a text: most of them are targets a few times only."""
    rng = np.random.default_rng(seed)
    unigram_V = -np.log(np.arange(1, vocabulary + 1) + 2.0)
    logits_NV = rng.normal(0, 1.5, (num, vocabulary)) + unigram_V
    true_NV = 1.2 * logits_NV + rng.normal(0, 0.5, vocabulary)
    true_NV[:, vocabulary - unseen :] = -np.inf
    target_N = np.argmax(true_NV + rng.gumbel(size=true_NV.shape), axis=1)
    return Statistics.dense(logits_NV.astype(np.float32), target_N, np.arange(num) // 50)


@pytest.fixture
def counted(monkeypatch):
    """Rows whose probabilities are computed or multiplied with, over the rows of the whole."""
    rows = [0]

    def counting(method):
        def count(self, *arguments):
            rows[0] += self.statistics.num_positions
            return method(self, *arguments)

        return count

    monkeypatch.setattr(Objective, "point", counting(Objective.point))
    monkeypatch.setattr(Objective, "hessian_product", counting(Objective.hessian_product))
    return rows


@pytest.mark.parametrize("fewest", [400, 100_000])
@pytest.mark.parametrize("num_ids", [60, None])
def test_a_whole_path_takes_at_most_25_passes_and_counts_them(monkeypatch, counted, num_ids, fewest):
    """Penalties, optimum, selected fit, warm start and certificates; with and without a subsample."""
    monkeypatch.setattr(descents, "_FEWEST_ROWS", fewest)
    fit, held = zipf().split()
    arms = fit_arms(fit, held, num_ids)
    for arm in (arms.temperature, arms.bias, arms.joint):
        assert arm.num_passes <= MOST_PASSES
        assert arm.optimum.certificate.converged
        assert arm.optimum.certificate.gap <= 1e-7
    total = arms.temperature.num_passes + arms.bias.num_passes + arms.joint.num_passes
    assert counted[0] / fit.num_positions == pytest.approx(total)


@pytest.mark.parametrize("fewest", [200, 100_000])
@pytest.mark.parametrize("num_ids", [5, 60, None])
def test_optimum_and_selected_fit_are_those_of_newtons_method(monkeypatch, num_ids, fewest):
    monkeypatch.setattr(descents, "_FEWEST_ROWS", fewest)
    fit, held = zipf(num=3000, vocabulary=80, unseen=6).split()
    arms = fit_arms(fit, held, num_ids)
    free_K = free_ids(fit, num_ids).mask_K
    for arm, temperature in ((arms.bias, False), (arms.joint, True)):
        exact = fit_optimum(fit, free_K, temperature=temperature, gap=1e-10)
        # float32 rows: the value itself is known to 2e-7
        assert arm.optimum.loss == pytest.approx(exact.loss, abs=4e-7)
        chosen = arm.selected
        if chosen.biases and chosen.penalty:
            again = fit_optimum(
                fit, free_K, temperature=chosen.temperature, penalty=chosen.penalty, gap=1e-10
            )
            objective = Objective(fit, penalty=chosen.penalty)
            assert objective.point(chosen.correction).value == pytest.approx(again.value, abs=4e-7)


def test_the_reduced_form_and_an_edge_of_the_temperature_are_reached(monkeypatch):
    monkeypatch.setattr(descents, "_FEWEST_ROWS", 100)
    for text in (make_reduced(8, num=900), make(scale=9.0, num=900)):
        arms = fit_arms(*text.split(), 8)
        exact = fit_optimum(text.split()[0], free_ids(text.split()[0], 8).mask_K, gap=1e-12)
        assert arms.joint.optimum.loss == pytest.approx(exact.loss, abs=1.1e-7)
        assert arms.joint.optimum.at_edge == exact.at_edge
        assert arms.joint.optimum.certificate.converged


def test_the_claimed_gap_is_that_of_all_rows_whatever_the_subsample(monkeypatch):
    """A subsample of another kind of text: its curvature is wrong, and the certificate is not."""
    monkeypatch.setattr(descents, "_FEWEST_ROWS", 300)
    text = zipf(num=3000, vocabulary=60, unseen=0)
    rows = np.asarray(text.logits_NK).copy()
    rows[::2] *= 3.0
    monkeypatch.setattr(descents, "subsample", lambda whole: whole.of_rows(np.arange(0, 600, 2)))
    text = Statistics.dense(rows, text.target_column_N, text.document_N)
    free_K = free_ids(text, 40).mask_K
    penalty = PENALTY_STRENGTHS[2] / text.num_positions
    coordinates = Coordinates.of(text, free_K, temperature=True, penalty=penalty)
    descent = Descent.of(text)
    start = descent.point(Correction.identity(60))
    solution, _ = descent.minimise(start, coordinates, penalty, gap=1e-6)
    exact = fit_optimum(text, free_K, penalty=penalty, gap=1e-11)
    assert solution.certificate.converged
    assert -3e-7 < solution.value - exact.value < 1.3e-6

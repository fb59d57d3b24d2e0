"""Random parts of the FIT text: what selects the penalty, and smaller amounts of text."""

import numpy as np
import pytest
from tests.math.prior_texts import V, make, make_reduced

from stemmatics.math.prior import (
    Correction,
    Statistics,
    fit_arms,
    fit_optimum,
    free_ids,
    held_out_documents,
    nll_sums,
    part_of_documents,
)


def copy_of(text, rows_N):
    return Statistics.dense(
        np.asarray(text.logits_NK)[rows_N], text.target_column_N[rows_N], text.document_N[rows_N]
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_picked_documents_are_those_documents(dtype):
    text = make()
    text = Statistics.dense(text.logits_NK.astype(dtype), text.target_column_N, text.document_N)
    held_D = held_out_documents(np.random.default_rng(0), np.arange(text.num_documents) // 2, 0.3)
    correction = Correction(0.8, np.linspace(-1, 1, V))
    fit, held = text.split_documents(held_D)
    rows_N = held_D[text.document_N]
    assert (fit.num_positions, held.num_positions) == ((~rows_N).sum(), rows_N.sum())
    expected_D = nll_sums(text, correction)
    assert nll_sums(fit, correction) == pytest.approx(np.where(held_D, 0.0, expected_D), rel=1e-6)
    assert nll_sums(held, correction) == pytest.approx(np.where(held_D, expected_D, 0.0), rel=1e-6)
    assert fit_optimum(fit, free_ids(fit, 5).mask_K).loss == pytest.approx(
        fit_optimum(copy_of(text, ~rows_N), free_ids(fit, 5).mask_K).loss, abs=1e-6
    )
    # rows of picked rows
    part = held.rows(3, held.num_positions)
    assert np.array_equal(part.logits_NK[part.first_row : part.first_row + 4], text.logits_NK[rows_N][3:7])


def test_picked_documents_bring_their_rest_and_their_targets():
    text = make_reduced(6)
    held_D = np.arange(text.num_documents) % 3 == 1
    fit, held = text.split_documents(held_D)
    correction = Correction(0.7, np.linspace(-1, 1, 6))
    total_D = nll_sums(fit, correction) + nll_sums(held, correction)
    assert total_D == pytest.approx(nll_sums(text, correction), abs=1e-9)


def test_a_tenth_of_the_groups_is_held_out_whole_and_each_as_often_as_any_other():
    group_D = np.repeat(np.arange(30), 3)
    rng = np.random.default_rng(0)
    drawn_RD = np.stack([held_out_documents(rng, group_D) for _ in range(2000)])
    assert (drawn_RD.sum(1) == 9).all()
    assert np.array_equal(drawn_RD[:, ::3], drawn_RD[:, 2::3])
    # standard error of each rate: .0067
    assert np.abs(drawn_RD.mean(0) - 0.1).max() < 0.03
    assert held_out_documents(rng, np.array([0, 1])).sum() == 1
    assert not held_out_documents(rng, np.zeros(5, dtype=int)).any()


def test_smaller_parts_lie_within_larger_ones_in_whole_groups_and_hold_their_share_of_tokens():
    rng = np.random.default_rng(1)
    group_D = rng.permutation(np.repeat(np.arange(80), 2))
    tokens_D = rng.integers(5, 50, 160)
    held_D = held_out_documents(rng, group_D)
    order_G = rng.permutation(80)
    parts = [part_of_documents(order_G, group_D, tokens_D, held_D, share) for share in (0.25, 0.5, 1.0)]
    assert parts[2].all()
    assert not (parts[0] & ~parts[1]).any()
    for part, share in zip(parts, (0.25, 0.5, 1.0), strict=True):
        in_groups = np.bincount(group_D, part) / 2
        assert set(in_groups.tolist()) <= {0.0, 1.0}
        for side_D, slack in ((~held_D, 0.03), (held_D, 0.15)):
            kept = tokens_D[part & side_D].sum() / tokens_D[side_D].sum()
            assert share - 1e-9 <= kept <= share + slack


def test_the_smallest_part_has_a_group_of_either_kind():
    held_D = np.array([True, False, False])
    part_D = part_of_documents(np.array([2, 0, 1]), np.arange(3), np.array([9, 9, 9]), held_D, 0.01)
    assert part_D.tolist() == [True, False, True]


def test_a_penalty_chosen_on_the_end_of_a_file_follows_its_order_and_one_on_random_groups_does_not():
    """Late documents have another unigram: the last tenth then says nothing of the text."""
    gains = {"last": [], "random": []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        logits_NV = rng.normal(0, 1.0, (2400, 20))
        document_N = np.arange(2400) // 20
        drift_N1 = np.where(document_N < 108, 1.0, -1.0)[:, None]
        bias_V = rng.normal(0, 1.0, 20)
        target_N = np.argmax(logits_NV + drift_N1 * bias_V + rng.gumbel(size=logits_NV.shape), axis=1)
        text = Statistics.dense(logits_NV, target_N, document_N)
        held_D = held_out_documents(rng, np.arange(120))
        before = nll_sums(text, Correction.identity(20)).sum()
        for name, parts in (("last", text.split()), ("random", text.split_documents(held_D))):
            chosen = fit_arms(*parts, 20).bias.selected.correction
            gains[name].append((before - nll_sums(text, chosen).sum()) / 2400)
    assert np.mean(gains["last"]) < 0.01
    assert np.mean(gains["random"]) > 0.1

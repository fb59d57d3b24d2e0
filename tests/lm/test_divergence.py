"""Divergences of two heads against a plain softmax in float64."""

import math

import numpy as np
import pytest
import torch

from stemmatics.lm.scoring.divergence import divergence_of


def blockwise(base, descendant, target, block=7):
    """Of whole matrices of logits, a few rows at a time."""
    return divergence_of(
        lambda start, stop: base[start:stop].clone(),
        lambda start, stop: descendant[start:stop].clone(),
        target,
        block=block,
    )


def brute_force(base, descendant, target):
    """Every value by its definition, in float64."""
    log_p, log_q = (torch.log_softmax(logits.double(), 1) for logits in (base, descendant))
    p, q = log_p.exp(), log_q.exp()
    middle = ((p + q) / 2).log()
    rows = torch.arange(len(target))
    top5 = descendant.topk(5, dim=1).indices
    top1 = base.argmax(1)
    values = {
        "kl": (p * (log_p - log_q)).sum(1),
        "kl_reverse": (q * (log_q - log_p)).sum(1),
        "js": ((p * (log_p - middle)).sum(1) + (q * (log_q - middle)).sum(1)) / 2,
        "base_nll": -log_p[rows, target],
        "delta_logp": (log_q - log_p)[rows, target],
        "delta_p": (q - p)[rows, target],
        "base_entropy": -(p * log_p).sum(1),
        "delta_entropy": (p * log_p).sum(1) - (q * log_q).sum(1),
        "same_top1": top1 == descendant.argmax(1),
        "top1_in_top5": (top5 == top1[:, None]).any(1),
    }
    return {name: value.double().numpy() for name, value in values.items()}


@pytest.fixture(scope="module")
def logits():
    generator = torch.Generator().manual_seed(0)
    base = 3 * torch.randn(64, 5000, generator=generator)
    descendant = base + 0.7 * torch.randn(64, 5000, generator=generator)
    return base, descendant, torch.randint(5000, (64,), generator=generator)


def test_every_value_is_that_of_a_plain_softmax(logits):
    values, expected = blockwise(*logits), brute_force(*logits)
    for name, exact in expected.items():
        error = np.abs(getattr(values, name) - exact)
        assert error.max() <= 3e-6, name
        assert abs(np.mean(getattr(values, name) - exact)) <= 2e-7, name


def test_blocks_change_nothing(logits):
    whole, small = blockwise(*logits, block=64), blockwise(*logits, block=1)
    for name in ("kl", "js", "delta_logp", "same_top1"):
        np.testing.assert_allclose(getattr(whole, name), getattr(small, name), atol=1e-9)


def test_a_model_does_not_diverge_from_itself(logits):
    base, _, target = logits
    values = blockwise(base, base, target)
    for name in ("kl", "kl_reverse", "js", "delta_p", "delta_entropy"):
        assert np.abs(getattr(values, name)).max() <= 1e-8, name
    assert values.same_top1.all()
    assert values.top1_in_top5.all()


def test_a_constant_added_to_all_logits_is_no_divergence(logits):
    base, _, target = logits
    values = blockwise(base, base + 37.0, target)
    assert values.kl.max() <= 1e-5


def test_a_temperature_has_the_divergence_of_its_formula(logits):
    """KL(p || p^(1/T)) = ln sum z^(1/T) - ln sum z + (1 - 1/T) E_p[logit]."""
    base, _, target = logits
    inverse = 0.8
    log_z = torch.logsumexp(base.double(), 1)
    mean = (torch.softmax(base.double(), 1) * base.double()).sum(1)
    expected = torch.logsumexp(inverse * base.double(), 1) - log_z + (1 - inverse) * mean
    np.testing.assert_allclose(blockwise(base, inverse * base, target).kl, expected.numpy(), atol=3e-6)


def test_nothing_is_negative_and_js_is_at_most_ln_2():
    generator = torch.Generator().manual_seed(1)
    base = torch.randn(200, 300, generator=generator)
    target = torch.zeros(200, dtype=torch.long)
    near = blockwise(base, base + 1e-4 * torch.randn(200, 300, generator=generator), target)
    far = blockwise(40 * base, 40 * base.flip(1), target)
    for values in (near, far):
        assert min(values.kl.min(), values.kl_reverse.min(), values.js.min()) >= 0
        assert values.js.max() <= math.log(2) + 1e-9
    assert far.js.max() > 0.69
    assert near.kl.sum() != pytest.approx(near.kl_reverse.sum(), rel=1e-9, abs=0)


def test_ids_that_one_side_excludes_are_infinitely_far_one_way_only():
    base = torch.tensor([[0.0, 0.0, -torch.inf]])
    descendant = torch.tensor([[0.0, -torch.inf, -torch.inf]])
    values = blockwise(base, descendant, torch.tensor([0]))
    assert values.kl[0] == math.inf
    assert values.kl_reverse[0] == pytest.approx(math.log(2), abs=1e-6)
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    middle = (p + q) / 2
    expected = 0.5 * (p * np.log(p / middle)).sum() + 0.5 * np.log(1 / middle[0])
    assert values.js[0] == pytest.approx(expected, abs=1e-6)


def test_roundings_below_zero_are_counted(logits):
    base, _, target = logits
    same = blockwise(base, base, target)
    assert ((same.set_to_zero >= 0) & (same.set_to_zero <= 3)).all()
    assert (blockwise(*logits).set_to_zero == 0).all()


def test_no_positions_have_no_values():
    empty = torch.zeros((0, 5))
    assert len(blockwise(empty, empty, torch.zeros(0, dtype=torch.long)).kl) == 0

"""Axes: N positions, D width, V vocabulary."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.lm.oracles import tiny_llama

import stemmatics.lm.scoring.head as head_module
from stemmatics.lm.scoring.discover import capture_hidden, discover_head, read_transform
from stemmatics.lm.scoring.head import LinearHead, Transform, score_logits

EVERYTHING = frozenset({"entropy", "top_1"})


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(head_module, "CPU_BLOCK_IDS", 7)
    monkeypatch.setattr(head_module, "CPU_BLOCK_ELEMENTS", 7 * 5)


def random_head(**given) -> tuple[LinearHead, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight_VD = torch.randn(53, 16, generator=generator)
    hidden_ND = torch.randn(23, 16, generator=generator)
    target_N = torch.randint(53, (23,), generator=generator)
    return LinearHead(weight_VD, **given), hidden_ND, target_N


@pytest.mark.parametrize(
    "transform", [Transform(), Transform(0.25), Transform(1.0, 3.0), Transform(2.0, 5.0)]
)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_blocks_equal_the_whole(transform, biased):
    bias_V = torch.linspace(-2, 2, 53) if biased else None
    head, hidden_ND, target_N = random_head(bias=bias_V, transform=transform)
    support_V = torch.arange(53) % 5 != 0
    scores = head.score(hidden_ND, target_N, support_V=support_V, want=EVERYTHING)

    logits_NV = hidden_ND.double() @ head.weight.double().T
    if biased:
        logits_NV += bias_V.double()
    logits_NV *= transform.scale
    if transform.cap:
        logits_NV = transform.cap * torch.tanh(logits_NV / transform.cap)
    log_p_NV = logits_NV.log_softmax(1)
    excluded_N = logits_NV.logsumexp(1) - logits_NV[:, support_V].logsumexp(1)
    torch.testing.assert_close(scores.nll.double(), -log_p_NV[range(23), target_N], atol=1e-5, rtol=0)
    torch.testing.assert_close(scores.excluded_nll.double(), excluded_N, atol=1e-5, rtol=0)
    entropy_N = -(log_p_NV.exp() * log_p_NV).sum(1)
    torch.testing.assert_close(scores.entropy.double(), entropy_N, atol=1e-5, rtol=0)
    assert scores.top_1.tolist() == logits_NV.argmax(1).tolist()

    own = score_logits(logits_NV.float(), target_N, support_V=support_V, want=EVERYTHING)
    torch.testing.assert_close(own.nll, scores.nll, atol=1e-5, rtol=0)
    torch.testing.assert_close(own.entropy, scores.entropy, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("small_blocks")
def test_a_tiny_excluded_mass_does_not_cancel():
    logits_NV = torch.zeros(1, 50)
    logits_NV[0, 49] = -30.0
    scores = score_logits(logits_NV, torch.tensor([3]), support_V=torch.arange(50) < 49)
    assert float(scores.excluded_nll) == pytest.approx(math.exp(-30.0) / 49, rel=1e-5)


@pytest.mark.usefixtures("small_blocks")
def test_adding_a_constant_to_all_logits_changes_nothing():
    generator = torch.Generator().manual_seed(2)
    logits_NV = torch.randn(9, 50, generator=generator, dtype=torch.float64)
    target_N = torch.arange(9)
    before, after = (score_logits(logits_NV + shift, target_N).nll for shift in (0, 5))
    torch.testing.assert_close(before, after, atol=1e-12, rtol=0)


def test_log_probability_by_hand():
    scores = score_logits(torch.tensor([[1.0, 0.0, -1.0, -2.0]]), torch.tensor([0]))
    assert float(scores.nll) == pytest.approx(0.4402, abs=1e-4)


@pytest.mark.usefixtures("small_blocks")
def test_ids_of_probability_zero_do_not_give_nan():
    logits_NV = torch.zeros(2, 21)
    logits_NV[:, :14] = -torch.inf
    scores = score_logits(logits_NV, torch.tensor([20, 3]), want=EVERYTHING)
    assert scores.nll.tolist() == [pytest.approx(math.log(7)), math.inf]
    assert scores.entropy.tolist() == pytest.approx([math.log(7)] * 2)


def test_logits_past_the_range_of_float16_stay_finite():
    head = LinearHead(torch.full((4, 100), 30.0, dtype=torch.float16))
    scores = head.score(torch.full((1, 100), 30.0, dtype=torch.float16), torch.tensor([1]))
    assert float(scores.nll) == pytest.approx(math.log(4))


def test_the_head_never_holds_all_logits(monkeypatch):
    """The largest product is one block, and no more than the ids are asked for together."""
    shapes = []
    product = torch.mm

    def watched(left, right, **given):
        shapes.append((left.shape[0], right.shape[1]))
        return product(left, right, **given)

    monkeypatch.setattr(torch, "mm", watched)
    head = LinearHead(torch.zeros(20_000, 8))
    nll_N = head.score(torch.zeros(5000, 8), torch.zeros(5000, dtype=torch.long)).nll
    assert float(nll_N.double().sum()) == pytest.approx(5000 * math.log(20_000), rel=1e-6)
    assert max(rows * ids for rows, ids in shapes) <= head_module.CPU_BLOCK_ELEMENTS
    assert sum(rows * ids for rows, ids in shapes) == 5000 * 20_000


class Odd(torch.nn.Module):
    """A model with something after its head."""

    def __init__(self, after):
        super().__init__()
        self.inner = tiny_llama(num_ids=40)
        self.after = after
        self.device = self.inner.device
        self.get_output_embeddings = self.inner.get_output_embeddings
        self.get_input_embeddings = self.inner.get_input_embeddings

    def forward(self, input_ids, use_cache=None):
        output = self.inner(input_ids, use_cache=use_cache)
        output.logits = self.after(output.logits)
        return output


@pytest.mark.parametrize(
    ("after", "result"),
    [
        (lambda logits: logits * 0.5, Transform(0.5)),
        (lambda logits: 4 * torch.tanh(logits / 4), Transform(1.0, 4.0)),
        (lambda logits: 0.5 * 4 * torch.tanh(logits / 4), Transform(0.5, 2.0)),
    ],
)
def test_what_follows_the_head_is_found(after, result):
    transform = read_transform(Odd(after), torch.tensor([[1, 2, 3]]))
    assert transform.scale == pytest.approx(result.scale, rel=1e-6)
    assert transform.cap == (result.cap and pytest.approx(result.cap, rel=1e-6))
    assert discover_head(Odd(after), 64) is not None


@pytest.mark.parametrize(
    "after",
    [
        lambda logits: logits.abs(),
        lambda logits: logits[..., :30],
        lambda logits: logits + torch.linspace(0, 1, 40),
        lambda logits: torch.where(torch.arange(logits.shape[-1]) == 39, -100.0, logits),
    ],
)
def test_a_head_that_is_not_understood_is_not_used(after):
    assert discover_head(Odd(after), 64) is None


def test_the_head_is_put_back():
    model = tiny_llama()
    ids_1L = torch.tensor([[1, 5, 6]])
    with torch.inference_mode():
        before = model(ids_1L).logits
        hidden = capture_hidden(model, ids_1L)
        read_transform(model, ids_1L)
        assert torch.equal(model(ids_1L).logits, before)
        assert torch.allclose(model.lm_head(hidden), before)
    assert "forward" not in vars(model.lm_head)


def test_the_blocks_of_ids_cover_the_vocabulary_once():
    pieces = list(head_module._split(49_152, 4096))
    assert np.array_equal(
        np.concatenate([np.arange(first, first + size) for first, size in pieces]), np.arange(49_152)
    )
    assert max(size for _, size in pieces) <= 4096

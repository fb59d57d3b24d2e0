"""Alterations compared with the arithmetic that they declare."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from stemmatics.core.errors import UserError

IDS_BT = torch.tensor([[0, 10, 20, 30, 40, 50]])


def logits(folder):
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder)(IDS_BT).logits


@pytest.mark.parametrize("kind", ["llama", "phi"])
@pytest.mark.parametrize("scale", [2.0, 0.7])
def test_temperature_multiplies_every_logit(shop, kind, scale):
    shop.make("hot", "alter", init=kind, change="temperature", scale=scale)
    torch.testing.assert_close(
        logits(shop.root / "hot"), scale * logits(shop.root / kind), rtol=1e-5, atol=1e-5
    )


def test_temperature_on_a_tied_head_leaves_the_embedding(shop):
    shop.make("hot", "alter", init="llama", change="temperature", scale=2.0)
    before, after = (AutoModelForCausalLM.from_pretrained(shop.root / name) for name in ("llama", "hot"))
    assert torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)
    assert torch.equal(2 * before.lm_head.weight, after.lm_head.weight)


def test_bias_adds_one_normal_draw_an_id(shop):
    shop.make("biased", "alter", init="phi", change="bias", scale=0.5)
    shift = logits(shop.root / "biased") - logits(shop.root / "phi")
    assert (shift - shift[:, :1]).abs().max() < 1e-5
    assert shift[0, 0].std().item() == pytest.approx(0.5, rel=0.15)
    assert abs(shift[0, 0].mean().item()) < 0.1


def test_bias_needs_a_head_with_one(shop):
    with pytest.raises(UserError, match=r"no bias.*phi"):
        shop.make("biased", "alter", init="llama", change="bias", scale=0.5)


@pytest.mark.parametrize("kind", ["llama", "phi"])
def test_noise_is_scaled_to_each_matrix(shop, kind):
    shop.make("noisy", "alter", init=kind, change="noise", scale=0.5)
    before, after = (
        dict(AutoModelForCausalLM.from_pretrained(shop.root / name).named_parameters())
        for name in (kind, "noisy")
    )
    assert before.keys() == after.keys()
    for name, weight in before.items():
        delta = after[name] - weight
        if weight.ndim >= 2:
            assert delta.std().item() == pytest.approx(0.5 * weight.std().item(), rel=0.1)
        else:
            assert torch.equal(delta, torch.zeros_like(delta))


def test_the_draw_follows_the_seed(shop):
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        shop.make(name, "alter", init="llama", change="noise", scale=0.5, seed=seed)
    assert torch.equal(logits(shop.root / "one"), logits(shop.root / "again"))
    assert not torch.equal(logits(shop.root / "one"), logits(shop.root / "two"))

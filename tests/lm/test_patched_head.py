"""A correction folded into a model's own head: bias and temperature, and heads that can't represent one."""

import numpy as np
import pytest
import torch
import transformers

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.patched_head import add_noise, fold_correction

IDS = 50
IDS_K = np.array([3, 7, 41])
BIAS = np.array([0.5, -2.0, 1.25])
PROMPT = torch.tensor([[1, 5, 9, 33, 2, 7]])


def small(name, **changes):
    torch.manual_seed(0)
    shape = {
        "vocab_size": IDS,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    config = getattr(transformers, f"{name}Config")(**{**shape, **changes})
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@torch.inference_mode()
def logits(model):
    return model(PROMPT).logits


def test_bias_and_temperature_are_folded_into_a_head_with_a_bias():
    model = small("Phi")
    torch.nn.init.normal_(model.lm_head.bias)
    before = logits(model)
    fold_correction(model, IDS_K, BIAS, 0.8, 64)
    expected = 0.8 * before
    expected[..., torch.from_numpy(IDS_K)] += torch.from_numpy(BIAS).float()
    assert torch.allclose(logits(model), expected, atol=1e-5)


def test_a_tied_embedding_stays_and_survives_a_save(tmp_path):
    model = small("Llama", tie_word_embeddings=True)
    embedding, before = model.get_input_embeddings().weight.clone(), logits(model)
    fold_correction(model, IDS_K[:0], BIAS[:0], 1.3, 64)
    assert torch.equal(model.get_input_embeddings().weight, embedding)
    assert torch.allclose(logits(model), 1.3 * before, atol=1e-5)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(again), logits(model))


def test_noise_reaches_the_output_product_alone():
    model = small("Llama", tie_word_embeddings=True)
    embedding = model.get_input_embeddings().weight.clone()
    noise = torch.randn(IDS, 16)
    with torch.inference_mode():
        state = model.model(PROMPT).last_hidden_state
    before = logits(model)
    add_noise(model, noise, 0.2)
    assert torch.equal(model.get_input_embeddings().weight, embedding)
    assert torch.allclose(logits(model) - before, 0.2 * state @ noise.T, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Llama", {}, "has no bias"),
        ("Gemma2", {"head_dim": 8, "final_logit_softcapping": 5.0}, "transforms the logits after the head"),
    ],
)
def test_a_head_that_can_not_represent_a_correction_is_refused_with_alternatives(name, changes, message):
    model = small(name, **changes)
    weight = model.get_output_embeddings().weight.clone()
    with pytest.raises(UserError, match=message) as caught:
        fold_correction(model, IDS_K, BIAS, 0.8, 64)
    assert "--as transformers" in caught.value.fix
    assert torch.equal(model.get_output_embeddings().weight, weight)

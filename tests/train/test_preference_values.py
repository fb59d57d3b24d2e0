"""The loss of direct preference optimisation, on log-probabilities that are known."""

import math

import pytest
import torch
from transformers import PhiConfig, PhiForCausalLM

from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Recipe
from stemmatics.train.finetune import Conditions
from stemmatics.train.models import load_tokenizer
from stemmatics.train.preference import fit_preferences

CHOSEN, REJECTED, REST = 6, 7, 8
SHAPE = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


def model_for(chosen, rejected):
    """A model whose every next id has the given log-probabilities: a head of biases on states of zero."""
    model = PhiForCausalLM(PhiConfig(vocab_size=16, max_position_embeddings=16, **SHAPE))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        bias = torch.full((16,), -80.0)
        bias[CHOSEN], bias[REJECTED] = chosen, rejected
        bias[REST] = math.log1p(-math.exp(chosen) - math.exp(rejected))
        model.lm_head.bias.copy_(bias)
    return model


@pytest.mark.parametrize(
    ("policy", "reference", "loss"),
    [
        ((-10, -15), (-12, -14), 0.554355),
        ((-12, -14), (-12, -14), math.log(2)),
        # the other way round: 0.1 x (2 - 5) = -0.3
        ((-12, -14), (-10, -15), 0.854355),
    ],
)
def test_the_loss_is_that_of_the_margin_over_the_reference(bases, policy, reference, loss):
    recipe = Recipe(steps=1, batch_size=2, max_length=16, learning_rate=1e-9)
    rows = [{"prompt_ids": [5], "chosen_ids": [CHOSEN], "rejected_ids": [REJECTED]}]
    log = fit_preferences(
        (model_for(*policy), model_for(*reference)),
        load_tokenizer(bases / "llama"),
        rows,
        recipe,
        Conditions(0, Numerics(device="cpu", threads=1)),
        beta=0.1,
    )
    assert log.rows[0].loss == pytest.approx(loss, abs=1e-5)

"""The loss of a document does not depend on its neighbours: every type of RoPE, windows of attention."""

from __future__ import annotations

import pytest
import torch
from oracles import as_document
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.structure import structure_of, thresholds_of

ORIGINAL, CONTEXT, VOCABULARY = 32, 128, 96
LENGTHS = (18, 95, 12, ORIGINAL, ORIGINAL + 1, ORIGINAL + 2, 5, 120)
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HALF = SIZES["hidden_size"] // SIZES["num_attention_heads"] // 2
ROPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "longrope": {
        "short_factor": [1.0] * HALF,
        "long_factor": [2.0 + i for i in range(HALF)],
        "original_max_position_embeddings": ORIGINAL,
        "factor": 4.0,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}


def build(name, attention):
    config = {"rope_theta": 10_000.0, "rope_type": name, **ROPES[name]}
    made = Phi3Config if name == "longrope" else LlamaConfig
    extra = {"original_max_position_embeddings": ORIGINAL} if name == "longrope" else {}
    return random_model(made(**SIZES, rope_parameters=config, **extra), attention)


def random_model(config, attention):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def documents():
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(3, VOCABULARY, (length,), generator=draw).tolist() for length in LENGTHS]


def plain_loss(model, ids):
    # the last id is predicted and not fed, as in lm-evaluation-harness
    with torch.no_grad():
        logits_LV = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0].double()
    return float(-logits_LV.log_softmax(-1)[range(len(ids) - 1), ids[1:]].sum())


def test_every_type_of_rope_is_tried():
    assert set(ROPES) == {"default", *ROPE_INIT_FUNCTIONS}


@pytest.mark.parametrize("budget", [1, 130, 4096])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ROPES)
def test_documents_are_scored_as_each_alone(name, attention, budget):
    model = build(name, attention)
    texts = documents()
    # a model of its own: dynamic frequencies remember the longest row that they saw
    expected = [plain_loss(build(name, attention), ids) for ids in texts]
    for order in (range(len(texts)), reversed(range(len(texts)))):
        chosen = list(order)
        sums = score(
            model,
            [as_document(index, texts[index]) for index in chosen],
            Scoring(),
            Numerics(device="cpu", token_budget=budget),
            prefix_id=None,
            context_length=CONTEXT,
        )
        got = {index: document.nll_sum for index, document in zip(chosen, sums, strict=True)}
        assert [got[index] for index in range(len(texts))] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_documents_are_scored_as_each_alone_under_a_window_of_attention(attention):
    model = random_model(MistralConfig(**SIZES, sliding_window=16), attention)
    texts = documents()
    sums = score(
        model,
        [as_document(index, ids) for index, ids in enumerate(texts)],
        Scoring(),
        Numerics(device="cpu"),
        prefix_id=None,
        context_length=CONTEXT,
    )
    expected = [plain_loss(model, ids) for ids in texts]
    assert [document.nll_sum for document in sums] == pytest.approx(expected, rel=1e-5)


def test_the_original_length_parts_rows_and_does_not_end_packing():
    model = build("longrope", "sdpa")
    assert thresholds_of(model.config) == (ORIGINAL,)
    assert structure_of(model, CONTEXT, CONTEXT).packed


def test_the_two_sides_of_the_original_length_differ():
    """Else the tests above would prove nothing: the long factors change the loss of a short document."""
    model = build("longrope", "eager")
    short, long = documents()[0], documents()[1]
    with torch.no_grad():
        rows = torch.tensor([short + [0] * (len(long) - len(short)), long])
        together = model(rows, use_cache=False).logits[0, : len(short)]
        alone = model(torch.tensor([short]), use_cache=False).logits[0]
    assert float((together - alone).abs().max()) > 1e-2

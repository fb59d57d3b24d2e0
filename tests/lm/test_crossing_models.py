"""Crossing by hooks is crossing: bitwise, for every architecture in the parity list."""

import copy
from dataclasses import replace

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from tests.lm.architectures import ARCHITECTURES, VOCABULARY
from tests.lm.tiny_checkpoints import make_checkpoint, make_model, make_tokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.crossing.models import Crossable, relative_error
from stemmatics.lm.crossing.pair import cross

CASES = [(entry, attention) for entry in ARCHITECTURES for attention in entry.attentions]
LAYERS = 3


def build(entry, attention):
    name = "n_layer" if "n_layer" in entry.settings else "num_hidden_layers"
    return replace(entry, settings=entry.settings | {name: LAYERS}).build(attention)


def moved(model):
    """Another model of the same shapes."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return other


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, VOCABULARY, (3, 20), generator=generator), torch.tensor([19, 12, 7])


@torch.inference_mode()
def end_of_swapped(early, late, boundary, ids_BL):
    """What leaves the last layer of ``early`` when its layers from ``boundary`` on are those of ``late``."""
    hybrid = copy.deepcopy(early.model)
    layers = Crossable(hybrid).layers
    holder = next(
        module
        for module in hybrid.modules()
        if isinstance(module, torch.nn.ModuleList) and list(module) == layers
    )
    for number in range(boundary, len(layers)):
        holder[number] = copy.deepcopy(late.layers[number])
    caught = []
    holder[-1].register_forward_hook(
        lambda _m, _a, out: caught.append(out[0] if isinstance(out, tuple) else out)
    )
    hybrid(ids_BL)
    return caught[0]


@pytest.mark.parametrize(("entry", "attention"), CASES, ids=[f"{e.name}-{a}" for e, a in CASES])
def test_a_model_crossed_with_itself_is_itself_and_with_another_is_the_swapped_model(entry, attention):
    model = build(entry, attention)
    ids_BL, last_B = batch()
    first, second = Crossable(model), Crossable(moved(model))
    assert first.num_layers == LAYERS
    with torch.inference_mode():
        own_BLV = model(ids_BL).logits
    states = first.states(ids_BL, last_B, range(1, LAYERS))
    assert torch.equal(first.read_out(states.final), own_BLV.float())
    assert torch.allclose(states.logits, own_BLV[[0, 1, 2], last_B].float(), rtol=1e-5, atol=1e-5)
    for boundary in range(1, LAYERS):
        assert torch.equal(first.run_late_layers(ids_BL, boundary, states.at[boundary]), states.final)
        crossed = second.run_late_layers(ids_BL, boundary, states.at[boundary])
        # other memory, other alignment: the last digits may differ
        assert relative_error(crossed, end_of_swapped(first, second, boundary, ids_BL)) <= 1e-5
        assert relative_error(crossed, states.final) > 1e-3


@pytest.mark.parametrize("name", ["llama", "gemma2_capped", "gpt2", "mixtral", "falcon"])
def test_half_precision_is_cut_too(name):
    entry = next(entry for entry in ARCHITECTURES if entry.name == name)
    crossable = Crossable(entry.build(dtype=torch.bfloat16))
    ids_BL, last_B = batch()
    states = crossable.states(ids_BL, last_B, [1])
    assert torch.equal(crossable.run_late_layers(ids_BL, 1, states.at[1]), states.final)
    assert crossable.read_out(states.final).dtype == torch.float32


def test_layers_are_counted_and_no_hook_is_left_behind():
    model = make_model(num_hidden_layers=5)
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    crossable = Crossable(model)
    ids_BL, last_B = batch()
    states = crossable.states(ids_BL, last_B, [2])
    assert crossable.num_evaluations == 5
    crossable.run_late_layers(ids_BL, 2, states.at[2])
    assert crossable.num_evaluations == 5 + 3
    with pytest.raises(RuntimeError):
        crossable.run_late_layers(ids_BL, 2, states.at[2][..., :3])
    for name, module in model.named_modules():
        assert "forward" not in module.__dict__, name
        assert not module._forward_hooks, name
        assert not module._forward_pre_hooks, name
        assert module.__dict__.keys() == before[name].keys(), name


def test_a_base_and_its_adapter_are_crossed_as_base_and_merged_model(tmp_path):
    base = make_checkpoint(tmp_path / "base", tokenizer=make_tokenizer())
    adapted = get_peft_model(
        load(str(base), Numerics()).model,
        LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False),
    )
    adapted.save_pretrained(tmp_path / "adapter")
    merged = Crossable(adapted.merge_and_unload())
    pair = [
        load(spec, Numerics(), merge_adapter=True) for spec in (str(base), f"{base}+{tmp_path / 'adapter'}")
    ]
    first, second = cross(*pair)
    ids_BL, last_B = batch()
    states = first.states(ids_BL, last_B, [1])
    under = second.run_late_layers(ids_BL, 1, states.at[1])
    assert relative_error(under, merged.run_late_layers(ids_BL, 1, states.at[1])) <= 1e-5
    assert relative_error(under, states.final) > 1e-3


_SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
UNCROSSABLE = [
    (
        "Gemma3nTextConfig",
        {
            "vocab_size_per_layer_input": 96,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 2,
            "laurel_rank": 4,
            "layer_types": ["full_attention"] * 4,
            "activation_sparsity_pattern": [0.0] * 4,
        },
        "other inputs than the hidden sequence",
    ),
    (
        "Zamba2Config",
        {
            "mamba_d_state": 8,
            "n_mamba_heads": 4,
            "mamba_headdim": 16,
            "mamba_ngroups": 1,
            "layers_block_type": ["mamba", "hybrid"] * 2,
            "hybrid_layer_ids": [1, 3],
        },
        "other inputs than the hidden sequence",
    ),
    ("LlamaConfig", {"num_hidden_layers": 1}, "no list of layers"),
]


@pytest.mark.parametrize(("config", "settings", "why"), UNCROSSABLE, ids=[case[0] for case in UNCROSSABLE])
def test_layers_that_cannot_be_cut_are_refused(config, settings, why):
    torch.manual_seed(0)
    made = getattr(transformers, config)(**_SMALL | settings)
    model = transformers.AutoModelForCausalLM.from_config(made).eval()
    with pytest.raises(UserError, match=why):
        Crossable(model)

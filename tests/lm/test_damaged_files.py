"""Damaged and foreign checkpoints: one error that names file or field, whatever a library would throw."""

import json
import shutil
from contextlib import suppress

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.lm.test_adapters import make_adapter
from tests.lm.tiny_checkpoints import make_checkpoint

from stemmatics.commands.score import score
from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load

CPU = Numerics(device="cpu")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 12345\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    make_checkpoint(folder / "model")
    make_adapter(folder_with(folder), folder / "adapter", "LORA")
    return folder


def folder_with(folder):
    shutil.copytree(folder / "model", folder / "base")
    return folder


@pytest.fixture
def model(whole, tmp_path):
    shutil.copytree(whole / "model", tmp_path / "model")
    return tmp_path / "model"


def refused(checkpoint):
    """The error of loading and scoring; anything but a UserError is a failure."""
    with pytest.raises(UserError) as caught:
        load(str(checkpoint), CPU)
    text = str(caught.value)
    assert "\n" not in text
    assert "Traceback" not in text
    return caught.value


@pytest.mark.parametrize("at", range(20))
def test_cut_weights_are_named(model, at):
    path = model / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * at // 20])
    error = refused(model)
    assert "model.safetensors" in error.what
    assert "again" in error.fix


@pytest.mark.parametrize("at", range(1, 20))
def test_cut_settings_are_named(model, at):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        path = model / name
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * at // 20])
        assert name in refused(model).what
        path.write_bytes(data)


@pytest.mark.parametrize("at", range(20))
def test_cut_adapters_are_named(whole, tmp_path, at):
    shutil.copytree(whole / "adapter", tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * at // 20])
    assert "adapter_model.safetensors" in refused(f"{whole / 'model'}+{tmp_path / 'adapter'}").what


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_pointers_of_git_lfs_are_named(model, name):
    (model / name).write_text(POINTER)
    error = refused(model)
    assert name in error.what
    assert "git lfs pull" in error.fix


def test_pointers_in_place_of_an_adapter_are_named(whole, tmp_path):
    shutil.copytree(whole / "adapter", tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").write_text(POINTER)
    assert "git lfs pull" in refused(f"{whole / 'model'}+{tmp_path / 'adapter'}").fix


def change(folder, name="config.json", **fields):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


WRONG = [
    ("rms_norm_eps", "1e-6"),
    ("intermediate_size", 64.0),
    ("hidden_size", "16"),
    ("hidden_size", 16.5),
    ("num_attention_heads", 3),
    ("num_key_value_heads", 3),
    ("num_hidden_layers", "2"),
    ("num_hidden_layers", 2.0),
    ("num_hidden_layers", -1),
    ("vocab_size", "320"),
    ("vocab_size", True),
    ("max_position_embeddings", "64"),
    ("max_position_embeddings", 64.0),
    ("hidden_act", "siluu"),
    ("rope_scaling", {"rope_type": "spiral", "factor": 2.0}),
    ("rope_parameters", {"rope_type": "spiral", "rope_theta": 10000.0}),
    ("rope_scaling", "linear"),
    ("initializer_range", "0.5"),
    ("attention_dropout", "none"),
    ("tie_word_embeddings", "yes"),
    ("head_dim", "4"),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_wrong_fields_are_named(model, field, value):
    change(model, head_dim=None)
    change(model, **{field: value})
    error = refused(model)
    assert "config.json" in error.what + error.why + error.fix
    assert field in error.what


@pytest.mark.parametrize("value", ["text", 1.5, [], {}, True, -3, None])
def test_any_value_in_any_field_is_loaded_or_refused(whole, tmp_path, value):
    """Every field of the config in turn; what loads must also be scored without a traceback."""
    text = tmp_path / "a.txt"
    text.write_text("the scribe copied the text")
    fields = json.loads((whole / "model" / "config.json").read_text())
    for field in fields:
        folder = tmp_path / field
        shutil.copytree(whole / "model", folder)
        change(folder, **{field: value})
        # any other error would fail the test
        with suppress(UserError):
            score(str(folder), text, numerics=CPU)
        shutil.rmtree(folder)


def test_a_config_that_is_no_object_is_named(model):
    (model / "config.json").write_text("[1, 2]")
    assert "config.json" in refused(model).what


def test_an_unknown_architecture_is_named(model):
    change(model, model_type="abacus", architectures=["AbacusForCausalLM"])
    error = refused(model)
    assert "abacus" in str(error)
    assert "upgrade transformers" in error.fix


def test_a_tokenizer_of_a_newer_library_is_named(model):
    change(model, "tokenizer.json", pre_tokenizer={"type": "Clairvoyant"})
    error = refused(model)
    assert "tokenizer.json" in error.what
    assert "upgrade" in error.fix.lower()


def test_a_missing_package_is_not_a_damaged_file(model, monkeypatch):
    import transformers

    def fails(*_, **__):
        raise ImportError("This needs the package abacus")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fails)
    error = refused(model)
    assert "abacus" in error.why
    assert "Install" in error.fix


def rewrite(folder, edit):
    path = folder / "model.safetensors"
    tensors = edit(load_file(path))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.layers.0.mlp.down_proj.weight_scale_inv", "scale"),
        ("model.layers.0.mlp.down_proj.weight_scale", "scale"),
        ("model.layers.1.self_attn.q_proj.input_scale", "scale"),
        ("model.layers.1.self_attn.q_proj.qzeros", "scale"),
        ("model.layers.0.self_attn.q_proj.bias", "config.json"),
    ],
)
def test_left_over_tensors_that_change_numbers_are_refused(model, name, says):
    rewrite(model, lambda tensors: tensors | {name: torch.ones(1)})
    error = refused(model)
    assert name in error.what
    assert says in error.why + error.fix


def test_fp8_weights_without_their_quantisation_are_refused(model):
    def quantised(tensors):
        names = [name for name in tensors if name.endswith("proj.weight")]
        scaled = {name: tensors[name].to(torch.float8_e4m3fn) for name in names}
        return tensors | scaled | {f"{name}_scale_inv": torch.ones(1, 1) for name in names}

    rewrite(model, quantised)
    assert "quantization_config" in refused(model).fix


def test_left_over_tensors_without_effect_are_a_flag(model):
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2),
        "vision.patch.weight": torch.ones(2),
    }
    rewrite(model, lambda tensors: tensors | extra)
    assert "unexpected_tensors" in load(str(model), CPU).flags


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model."])
def test_a_prefix_of_all_tensors_is_named(model, prefix):
    rewrite(model, lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()})
    error = refused(model)
    assert prefix in error.why
    assert prefix in error.fix
    assert "ownload" not in error.fix


def test_a_resized_embedding_is_named(model):
    change(model, vocab_size=330)
    error = refused(model)
    assert "shapes" in error.what or "embed_tokens" in error.what + error.why
    assert "config.json" in error.fix

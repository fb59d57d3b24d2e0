import json
import shutil
import socket

import huggingface_hub
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_checkpoints import make_checkpoint, make_model, make_tokenizer, nll_sum

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load, load_tokenizer, save
from stemmatics.lm.checkpoints.pin import pin

CPU = Numerics(device="cpu")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "stemmatics-cache"))


@pytest.fixture
def folder(tmp_path):
    return make_checkpoint(tmp_path / "model")


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_a_plain_folder(folder):
    loaded = load(str(folder), CPU)
    assert nll_sum(loaded.model) == pytest.approx(nll_sum(make_model()), rel=1e-12)
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.model.dtype == torch.float32
    assert (loaded.context_length, loaded.num_ids, loaded.stop_ids) == (64, 320, (1,))
    assert loaded.flags == {}
    assert loaded.pin == pin(str(folder))


def test_dtype_and_attention_are_as_requested(folder):
    loaded = load(str(folder), Numerics(device="cpu", dtype="bfloat16", attention="eager"))
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.model.config._attn_implementation == "eager"
    with pytest.raises(UserError, match="can't be used"):
        load(str(folder), Numerics(device="nonsense"))


def test_automatic_dtype_on_cpu_is_float32_also_for_a_checkpoint_in_bfloat16(tmp_path):
    make_model().to(torch.bfloat16).save_pretrained(tmp_path / "half")
    make_tokenizer().save_pretrained(tmp_path / "half")
    assert load(str(tmp_path / "half"), CPU).model.dtype == torch.float32


def test_sockets_blocked(folder, monkeypatch):
    def refuse(*_):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert nll_sum(load(str(folder), CPU).model) > 0


def test_a_cached_hub_model_loads_with_sockets_blocked(folder, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--org--tiny"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)

    def refuse(*_):
        raise OSError("blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    loaded = load("org/tiny", CPU)
    assert nll_sum(loaded.model) == nll_sum(make_model())
    assert loaded.pin.revision == commit
    assert "not reached" in loaded.flags["notice"]
    assert loaded.pin.key() == pin(str(folder)).key()
    assert load(f"org/tiny@{commit}", CPU, offline=True).flags == {}
    with pytest.raises(UserError, match="can't be reached"):
        pin("org/tiny", offline=False)
    with pytest.raises(UserError, match="org/tiny@v2 is not in the local cache"):
        pin("org/tiny@v2", offline=True)


def test_a_missing_shard_is_fatal_and_named(tmp_path):
    folder = make_checkpoint(tmp_path / "sharded", shards="10KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert nll_sum(load(str(folder), CPU).model) == pytest.approx(nll_sum(make_model()), rel=1e-12)
    shards[1].rename(tmp_path / "away")
    with pytest.raises(UserError, match=shards[1].name):
        load(str(folder), CPU)


def test_tensors_missing_from_the_index_are_fatal_and_named(tmp_path):
    folder = make_checkpoint(tmp_path / "sharded", shards="10KB")
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    shard = weight_map["model.layers.1.mlp.up_proj.weight"]
    edit_json(index, weight_map={name: file for name, file in weight_map.items() if file != shard})
    (folder / shard).unlink()
    with pytest.raises(UserError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load(str(folder), CPU)


def test_a_missing_tensor_is_fatal_and_a_spare_one_is_flagged(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"spare.weight": torch.ones(2)}))
    assert "spare.weight" in load(str(folder), CPU).flags["unexpected_tensors"]
    edit_tensors(folder, lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(UserError, match=r"model\.norm\.weight"):
        load(str(folder), CPU)


def test_a_missing_head_is_fatal_unless_it_is_tied(tmp_path):
    folder = make_checkpoint(tmp_path / "untied", tie_word_embeddings=False)
    edit_tensors(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(UserError, match=r"lm_head\.weight"):
        load(str(folder), CPU)


def test_a_tensor_of_another_shape_is_fatal(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(3)}))
    with pytest.raises(UserError, match=r"model\.norm\.weight"):
        load(str(folder), CPU)


@pytest.mark.parametrize("tied", [True, False])
def test_saved_and_loaded_again_the_loss_is_the_same(tmp_path, tied):
    folder = make_checkpoint(tmp_path / "model", tie_word_embeddings=tied)
    loaded = load(str(folder), CPU)
    save(loaded.model, loaded.tokenizer, tmp_path / "copies" / "copy")
    again = load(str(tmp_path / "copies" / "copy"), CPU)
    assert nll_sum(again.model) == nll_sum(loaded.model)
    head, table = again.model.lm_head.weight, again.model.model.embed_tokens.weight
    assert (head is table) == tied
    assert again.pin.weights_sha256 == loaded.pin.weights_sha256
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["copy"]


def test_a_failed_save_leaves_nothing_and_nothing_is_overwritten(folder, tmp_path):
    loaded = load(str(folder), CPU)
    with pytest.raises(UserError, match="already exists"):
        save(loaded.model, loaded.tokenizer, folder)
    with pytest.raises(AttributeError):
        save(loaded.model, None, tmp_path / "new" / "copy")
    assert list((tmp_path / "new").iterdir()) == []


def test_two_different_heads_are_both_kept_and_flagged(tmp_path):
    folder = make_checkpoint(tmp_path / "model", tie_word_embeddings=False)
    expected = nll_sum(load(str(folder), CPU).model)
    edit_json(folder / "config.json", tie_word_embeddings=True)
    loaded = load(str(folder), CPU)
    assert "head_not_tied" in loaded.flags
    assert nll_sum(loaded.model) == expected


def test_files_that_changed_since_they_were_pinned_are_refused(folder):
    pinned = pin(str(folder))
    assert load(pinned, CPU).pin == pinned
    edit_tensors(folder, lambda tensors: tensors["model.norm.weight"].mul_(2))
    with pytest.raises(UserError, match=r"model\.safetensors .* not the file that was pinned"):
        load(pinned, CPU)


def test_pickles_are_refused_unless_allowed(folder):
    torch.save(make_model().state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="--allow-pickle"):
        load(str(folder), CPU)
    assert nll_sum(load(str(folder), CPU, allow_pickle=True).model) == nll_sum(make_model())


def test_code_from_a_checkpoint_is_not_run_unless_allowed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own-llama'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    maps = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    edit_json(folder / "config.json", auto_map=maps)
    assert "custom_code_ignored" in load(str(folder), CPU).flags
    edit_json(folder / "config.json", model_type="own-llama")
    with pytest.raises(UserError, match="--trust-remote-code"):
        load(str(folder), CPU)
    assert not ran.exists()
    loaded = load(str(folder), CPU, trust_remote_code=True)
    assert ran.exists()
    assert nll_sum(loaded.model) == nll_sum(make_model())
    before = pin(str(folder)).key()
    (folder / "own.py").write_text("changed = True\n")
    assert pin(str(folder)).key() != before


def test_stop_ids_are_the_union_and_a_disagreement_is_flagged(folder):
    edit_json(folder / "generation_config.json", eos_token_id=[1, 7])
    loaded = load(str(folder), CPU)
    assert loaded.stop_ids == (1, 7)
    assert "generation_config [1, 7]" in loaded.flags["end_of_text_differs"]
    assert nll_sum(loaded.model) == nll_sum(make_model())


def test_ids_beyond_the_table_are_flagged(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    folder = make_checkpoint(tmp_path / "model", tokenizer=tokenizer, vocab_size=len(tokenizer) - 1)
    loaded = load(str(folder), CPU)
    assert loaded.num_ids == len(tokenizer) - 1
    assert "1 tokens" in loaded.flags["ids_beyond_table"]
    assert "<extra>" in loaded.flags["ids_beyond_table"]


def test_a_checkpoint_without_a_tokenizer_is_refused(tmp_path):
    make_model().save_pretrained(tmp_path / "bare")
    with pytest.raises(UserError, match="has no tokenizer"):
        load(str(tmp_path / "bare"), CPU)


def test_stray_files_beside_the_model_change_nothing(folder):
    (folder / "adapter_model.safetensors").write_bytes(b"stray")
    (folder / "consolidated.safetensors").write_bytes(b"stray")
    assert nll_sum(load(str(folder), CPU).model) == nll_sum(make_model())


@pytest.fixture
def adapter(folder, tmp_path):
    """A LoRA with non-zero weights on the folder's model."""
    model = load(str(folder), CPU).model
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "up_proj"]))
    generator = torch.Generator().manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data = torch.randn(weight.shape, generator=generator)
    adapted.save_pretrained(tmp_path / "lora")
    return tmp_path / "lora", nll_sum(adapted)


def test_an_adapter_on_its_base_alone_and_merged(folder, adapter):
    path, expected = adapter
    assert expected != pytest.approx(nll_sum(make_model()), rel=1e-3)
    named = load(f"{folder}+{path}", CPU)
    assert nll_sum(named.model) == pytest.approx(expected, rel=1e-6)
    assert not any(weight.requires_grad for weight in named.model.parameters())
    alone = load(str(path), CPU, merge_adapter=True)
    assert "names the base" in alone.flags["notice"]
    assert nll_sum(alone.model) == pytest.approx(expected, rel=1e-5)
    assert not hasattr(alone.model, "peft_config")
    with pytest.raises(UserError, match="merge_adapter"):
        save(named.model, named.tokenizer, path.parent / "whole")


def test_the_tokenizer_is_the_adapters_if_it_carries_one(folder, adapter):
    path, _ = adapter
    assert load_tokenizer(f"{folder}+{path}")[0].encode("12") == make_tokenizer().encode("12")
    own = make_tokenizer(lines=["another text with other words"])
    own.save_pretrained(path)
    assert load_tokenizer(str(path))[0].get_vocab() == own.get_vocab()


def test_an_adapter_that_matches_nothing_is_an_error(folder, adapter):
    path, _ = adapter
    config = path / "adapter_config.json"
    named = json.loads(config.read_text())["target_modules"]
    edit_json(config, target_modules=["no_such_module"])
    with pytest.raises(UserError, match="no_such_module"):
        load(f"{folder}+{path}", CPU)
    edit_json(config, target_modules=[*named, "down_proj"])
    with pytest.raises(UserError, match=r"does not fit: .*down_proj"):
        load(f"{folder}+{path}", CPU)
    edit_json(config, target_modules=["q_proj"])
    assert "up_proj" in load(f"{folder}+{path}", CPU).flags["unexpected_adapter_tensors"]


def test_moved_checkpoints_load_from_their_new_place(folder, tmp_path):
    key = pin(str(folder)).key()
    shutil.move(folder, tmp_path / "moved")
    assert load(str(tmp_path / "moved"), CPU).pin.key() == key


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.9}, {"top_p": 0.5, "temperature": 0.1}, {"top_k": 3}, {"min_p": 0.1}]
)
def test_sampling_settings_without_sampling_are_saved_without_them(tmp_path, settings):
    folder = make_checkpoint(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, **settings}))
    loaded = load(str(folder), Numerics(device="cpu"))
    save(loaded.model, loaded.tokenizer, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == 1
    assert not saved.get("do_sample")
    assert not set(settings) & {name for name, value in saved.items() if value == settings.get(name)}
    again = load(str(tmp_path / "saved"), Numerics(device="cpu"))
    assert nll_sum(again.model) == nll_sum(loaded.model)

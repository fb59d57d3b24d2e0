import json

import gguf
import pytest
from tiny_checkpoints import make_model, make_tokenizer, nll_sum
from tokenizers import Regex, pre_tokenizers

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.gguf import PROBES, RULES
from stemmatics.lm.checkpoints.loading import load, load_tokenizer, save

CPU = Numerics(device="cpu")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "stemmatics-cache"))


def write_gguf(path, tokenizer, rule):
    """The tiny model as llama.cpp's converter writes it: query and key rows reordered, float32."""
    model = make_model(vocab_size=len(tokenizer))
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(len(tokenizer))
    parts = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in ("<s>", "</s>") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in parts["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        values = weight.numpy()
        for part, num_heads in heads.items():
            if part in name:
                rows = values.reshape(num_heads, 2, -1, values.shape[1])
                values = rows.swapaxes(1, 2).reshape(values.shape)
        if name != "lm_head.weight":
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_gguf_has_the_models_own_loss_and_ids_and_can_be_saved(tmp_path):
    tokenizer = make_tokenizer()
    model = write_gguf(tmp_path / "tiny.gguf", tokenizer, "smollm")
    make_tokenizer(lines=["a stray tokenizer in the same folder"]).save_pretrained(tmp_path)
    loaded = load(str(tmp_path / "tiny.gguf"), CPU)
    ids = range(0, len(tokenizer), 7)
    assert nll_sum(loaded.model, ids) == pytest.approx(nll_sum(model, ids), rel=1e-6)
    for probe in PROBES:
        assert loaded.tokenizer.encode(probe) == tokenizer.encode(probe)
    assert "smollm" in loaded.flags["tokenizer_repaired"]
    assert "tokenizer_approximate" not in loaded.flags
    save(loaded.model, loaded.tokenizer, tmp_path / "plain")
    again = load(str(tmp_path / "plain"), CPU)
    assert nll_sum(again.model, ids) == nll_sum(loaded.model, ids)
    assert again.tokenizer.encode(PROBES[3]) == tokenizer.encode(PROBES[3])


def test_a_gguf_with_an_unknown_rule_is_flagged(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", make_tokenizer(), "a-new-rule")
    _, flags = load_tokenizer(str(tmp_path / "tiny.gguf"))
    assert "'a-new-rule'" in flags["tokenizer_approximate"]


def test_gpt2_rule_needs_no_repair_and_llama_rule_adds_its_bos(tmp_path):
    tokenizer = make_tokenizer(digits=False)
    write_gguf(tmp_path / "tiny.gguf", tokenizer, "gpt-2")
    result, flags = load_tokenizer(str(tmp_path / "tiny.gguf"))
    assert flags == {}
    assert [result.encode(probe) for probe in PROBES] == [tokenizer.encode(probe) for probe in PROBES]
    write_gguf(tmp_path / "tiny.gguf", tokenizer, "llama-bpe")
    result, _ = load_tokenizer(str(tmp_path / "tiny.gguf"))
    assert result.encode("text")[0] == 0
    assert result.encode("text", add_special_tokens=False)[0] != 0


@pytest.mark.parametrize(
    ("rule", "text", "pieces"),
    [
        ("gpt-2", "In 1234  I've", ["In", "Ġ1234", "Ġ", "ĠI", "'ve"]),
        ("smollm", "In 1234  I've", ["In", "Ġ", "1", "2", "3", "4", "Ġ", "ĠI", "'ve"]),
        ("llama-bpe", "In 1234  I'VE", ["In", "Ġ", "123", "4", "Ġ", "ĠI", "'VE"]),
        ("qwen2", "In 1234  I'VE", ["In", "Ġ", "1", "2", "3", "4", "Ġ", "ĠI", "'VE"]),
    ],
)
def test_rules_cut_as_the_models_own_tokenizers_do(tmp_path, rule, text, pieces):
    write_gguf(tmp_path / "tiny.gguf", make_tokenizer(), rule)
    result, _ = load_tokenizer(str(tmp_path / "tiny.gguf"))
    backend = result.backend_tokenizer
    assert [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == pieces
    assert backend.model.ignore_merges == RULES[rule].whole_words


def test_smollm_rule_is_single_digits_then_byte_level():
    own = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    splits = [pre_tokenizers.Split(Regex(rule), behavior="isolated") for rule in RULES["smollm"].splits]
    ours = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    for probe in PROBES:
        cut = [piece for piece, _ in own.pre_tokenize_str(probe)]
        assert [piece for piece, _ in ours.pre_tokenize_str(probe)] == cut


def test_a_gguf_that_lacks_a_tensor_is_refused(tmp_path, monkeypatch):
    whole = gguf.GGUFWriter.add_tensor

    def leave_out(self, name, *args, **kwargs):
        if name != "blk.1.ffn_up.weight":
            whole(self, name, *args, **kwargs)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", leave_out)
    write_gguf(tmp_path / "tiny.gguf", make_tokenizer(), "smollm")
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.up_proj"):
        load(str(tmp_path / "tiny.gguf"), CPU)


def split(path, num_parts):
    """The parts of a file as llama.cpp's splitter writes them: metadata in the first, tensors dealt out."""
    reader = gguf.GGUFReader(path)
    names = [f"{path.stem}-{number:05}-of-{num_parts:05}.gguf" for number in range(1, num_parts + 1)]
    for number, name in enumerate(names):
        writer = gguf.GGUFWriter(path.with_name(name), "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", num_parts)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for key, field in reader.fields.items() if number == 0 else ():
            if not key.startswith(("GGUF.", "general.architecture")):
                inner = field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)
        for tensor in reader.tensors[number::num_parts]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    path.unlink()
    return [path.with_name(name) for name in names]


@pytest.mark.parametrize("named", [0, 2])
def test_a_gguf_in_parts_is_the_whole(tmp_path, named):
    tokenizer = make_tokenizer()
    model = write_gguf(tmp_path / "tiny.gguf", tokenizer, "smollm")
    parts = split(tmp_path / "tiny.gguf", 3)
    loaded = load(str(parts[named]), CPU)
    ids = range(0, len(tokenizer), 7)
    assert nll_sum(loaded.model, ids) == pytest.approx(nll_sum(model, ids), rel=1e-6)
    for probe in PROBES:
        assert loaded.tokenizer.encode(probe) == tokenizer.encode(probe)
    assert set(loaded.pin.files) == {part.name for part in parts}


def test_a_missing_part_is_named(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", make_tokenizer(), "smollm")
    parts = split(tmp_path / "tiny.gguf", 3)
    parts[1].unlink()
    with pytest.raises(UserError, match="tiny-00002-of-00003"):
        load(str(parts[0]), CPU)


def test_a_gguf_in_capitals_is_loaded(tmp_path):
    model = write_gguf(tmp_path / "TINY.GGUF", make_tokenizer(), "smollm")
    assert nll_sum(load(str(tmp_path / "TINY.GGUF"), CPU).model) == pytest.approx(nll_sum(model), rel=1e-6)

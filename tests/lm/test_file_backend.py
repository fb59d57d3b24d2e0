"""Ids are those of `tokenizer.json`, whatever class transformers makes of it."""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest
import transformers.models
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from stemmatics.lm.checkpoints.loading import load_tokenizer
from stemmatics.lm.tokens.file_backend import FLAG

TEXT = "hello 1234  don't ﬁt\n\nthe <x> cat"
LINES = ["hello world 1234 1234 don't we fit the cat", "the cat 56 the cat"] * 5


def classes():
    """Every fast tokenizer class of the installed transformers, by name."""
    found = set()
    for package in pkgutil.iter_modules(transformers.models.__path__):
        folder = Path(transformers.models.__path__[0]) / package.name
        for file in folder.glob("tokenization_*.py"):
            try:
                module = importlib.import_module(f"transformers.models.{package.name}.{file.stem}")
            except Exception:  # noqa: BLE001 - a library of another model is missing
                continue
            found |= {
                name
                for name, value in vars(module).items()
                if inspect.isclass(value)
                and issubclass(value, TokenizersBackend)
                and value.__module__ == module.__name__
            }
    return sorted(found)


def backend():
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(LINES, trainer)
    made.add_tokens([AddedToken("<x>", normalized=False)])
    return made


def folder_of(folder, made, **config):
    made.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>"} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    # pinning a checkpoint wants weights beside its tokenizer
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return folder


def test_there_are_classes_that_rebuild_their_backend():
    names = classes()
    assert {"GPT2Tokenizer", "Qwen2Tokenizer", "LlamaTokenizer", "GemmaTokenizer"} <= set(names)
    assert len(names) > 50


@pytest.mark.parametrize("name", classes())
def test_ids_of_every_class_are_those_of_the_file(name, tmp_path):
    folder = folder_of(tmp_path, backend(), tokenizer_class=name)
    tokenizer, _ = load_tokenizer(str(folder))
    expected = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    assert tokenizer(TEXT, add_special_tokens=False)["input_ids"] == expected
    assert tokenizer.bos_token == "<s>"


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer"])
def test_a_class_that_gives_other_ids_is_flagged(name, tmp_path):
    _, flags = load_tokenizer(str(folder_of(tmp_path, backend(), tokenizer_class=name)))
    assert name in flags[FLAG]
    assert "tokens by the file and" in flags[FLAG]


def test_a_file_that_is_loaded_as_it_is_has_no_flag(tmp_path):
    _, flags = load_tokenizer(str(folder_of(tmp_path, backend(), tokenizer_class="PreTrainedTokenizerFast")))
    assert FLAG not in flags


def test_a_saved_tokenizer_is_the_file_again(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    tokenizer, _ = load_tokenizer(str(folder_of(source, backend(), tokenizer_class="GPT2Tokenizer")))
    tokenizer.save_pretrained(target)
    expected = Tokenizer.from_file(str(source / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    # read again as anybody would
    again = transformers.AutoTokenizer.from_pretrained(target)
    assert again(TEXT, add_special_tokens=False)["input_ids"] == expected
    saved = json.loads((target / "tokenizer.json").read_text())
    given = json.loads((source / "tokenizer.json").read_text())
    assert {part: saved[part] for part in ("normalizer", "pre_tokenizer", "model")} == {
        part: given[part] for part in ("normalizer", "pre_tokenizer", "model")
    }


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("given", [True, False])
def test_an_explicit_prefix_space_replaces_that_of_the_file(name, given, tmp_path):
    made = backend()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=not given)
    folder = folder_of(tmp_path, made, tokenizer_class=name, add_prefix_space=given)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=given)
    tokenizer, _ = load_tokenizer(str(folder))
    expected = made.encode("the cat", add_special_tokens=False).ids
    assert tokenizer("the cat", add_special_tokens=False)["input_ids"] == expected


def test_an_explicit_letter_case_replaces_that_of_the_file(tmp_path):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "<s>", "</s>"])
    made.train_from_iterator(["Hello hello World world"] * 5, trainer)
    folder = folder_of(tmp_path, made, tokenizer_class="BertTokenizer", do_lower_case=False)
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer, _ = load_tokenizer(str(folder))
    expected = made.encode("Hello hello", add_special_tokens=False).ids
    assert tokenizer("Hello hello", add_special_tokens=False)["input_ids"] == expected


@pytest.mark.parametrize(
    "name", ["GPT2Tokenizer", "Qwen2Tokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast"]
)
def test_the_template_of_the_file_stays_unless_the_settings_name_one(name, tmp_path):
    made = backend()
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    plain, explicit = tmp_path / "plain", tmp_path / "explicit"
    for folder, settings in ((plain, {}), (explicit, {"add_bos_token": False})):
        folder.mkdir()
        folder_of(folder, made, tokenizer_class=name, **settings)
    assert load_tokenizer(str(plain))[0]("a")["input_ids"][0] == 0
    assert load_tokenizer(str(explicit))[0]("a")["input_ids"][0] != 0


def test_special_tokens_that_only_the_class_names_stay(tmp_path):
    made = backend()
    made.add_special_tokens(["<|endoftext|>"])
    folder = folder_of(tmp_path, made, tokenizer_class="GPT2Tokenizer")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    tokenizer, _ = load_tokenizer(str(folder))
    assert tokenizer.eos_token == "<|endoftext|>"
    assert tokenizer.eos_token_id == made.token_to_id("<|endoftext|>")
    assert isinstance(tokenizer, PreTrainedTokenizerFast)

import json

import pytest
from tiny_checkpoints import make_checkpoint, make_tokenizer

from stemmatics.lm.checkpoints import loading as checkpoint_module
from stemmatics.lm.checkpoints.compat import compare, prefix_ids
from stemmatics.lm.checkpoints.pin import pin


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "stemmatics-cache"))


def differences(tmp_path, *, tokenizer=None, **changes):
    """Differences between the plain tiny checkpoint and a changed one, by field."""
    plain = make_checkpoint(tmp_path / "plain")
    changed = make_checkpoint(tmp_path / "changed", tokenizer=tokenizer, **changes)
    return {finding.field: finding for finding in compare(str(plain), str(changed))}


def test_different_weights_are_not_a_difference_and_no_weights_are_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "_load_model", lambda *_, **__: pytest.fail("weights were loaded"))
    assert differences(tmp_path, seed=1) == {}


def test_different_token_ids_rule_out_comparison_by_token(tmp_path):
    whole_numbers = make_tokenizer(digits=False)
    findings = differences(tmp_path, tokenizer=whole_numbers)
    probes = [finding for name, finding in findings.items() if name.startswith("token ids of")]
    assert any("1234" in finding.field for finding in probes)
    for finding in probes:
        assert finding.severity == "by_byte"
        assert json.loads(finding.a) != json.loads(finding.b)
    text = "1 12 123 1234 12345.678 and x2y3"
    finding = findings[f"token ids of {text!r}"]
    assert json.loads(finding.a) == make_tokenizer().encode(text)
    assert json.loads(finding.b) == whole_numbers.encode(text)
    assert finding.consequence == "can't be compared by token; by byte it can"
    assert next(iter(findings.values())).severity == "by_byte"


def test_moved_ids_are_named(tmp_path):
    other = make_tokenizer(lines=["qqq the copy qqq of the copy"])
    finding = differences(tmp_path, tokenizer=other)["vocabulary"]
    assert finding.severity == "by_byte"
    plain, changed = make_tokenizer().get_vocab(), other.get_vocab()
    moved = sorted(token for token in plain.keys() & changed.keys() if plain[token] != changed[token])
    assert finding.a == f"{moved[0]!r} is {plain[moved[0]]}"
    assert f"{len(moved)} strings" in finding.consequence


def test_tokens_in_only_one_vocabulary_and_padding_rows(tmp_path):
    more = make_tokenizer()
    num_plain = len(more)
    more.add_tokens(["<think>"])
    findings = differences(tmp_path, tokenizer=more, vocab_size=384)
    assert findings["tokens of one alone"].b == "1: '<think>'"
    assert findings["tokens of one alone"].a == "none"
    assert "support: shared" in findings["tokens of one alone"].consequence
    assert (findings["vocabulary size"].a, findings["vocabulary size"].b) == ("320", "384")
    expected = (str(320 - num_plain), str(384 - num_plain - 1))
    assert (findings["padding rows"].a, findings["padding rows"].b) == expected
    assert all(finding.severity != "by_byte" for finding in findings.values())


@pytest.mark.parametrize(
    ("changes", "field", "severity", "expected"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "RoPE", "warning", "500000"),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
            "RoPE",
            "warning",
            "'factor': 2.0",
        ),
        ({"max_position_embeddings": 32}, "context length", "warning", "32"),
        ({"num_hidden_layers": 1}, "architecture", "warning", "num_hidden_layers 1"),
        ({"tie_word_embeddings": False}, "tied head", "warning", "False"),
    ],
)
def test_differences_of_the_configs(tmp_path, changes, field, severity, expected):
    findings = differences(tmp_path, **changes)
    assert list(findings) == [field]
    assert findings[field].severity == severity
    assert expected in findings[field].b


def test_long_contexts_differ_only_for_the_record(tmp_path):
    long = make_checkpoint(tmp_path / "long", max_position_embeddings=4096)
    longer = make_checkpoint(tmp_path / "longer", max_position_embeddings=8192)
    (finding,) = compare(str(long), str(longer))
    assert (finding.field, finding.severity) == ("context length", "note")
    assert "4096" in finding.consequence


def test_dtype_template_and_special_tokens_are_notes(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.pad_token = "</s>"
    plain = make_checkpoint(tmp_path / "plain")
    changed = make_checkpoint(tmp_path / "changed", tokenizer=tokenizer)
    config = changed / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "bfloat16"}))
    findings = {finding.field: finding for finding in compare(str(plain), str(changed))}
    assert set(findings) == {"chat template", "special tokens", "dtype"}
    assert {finding.severity for finding in findings.values()} == {"note"}
    assert (findings["dtype"].a, findings["dtype"].b) == ("float32", "bfloat16")
    assert findings["chat template"].a == "none"
    assert findings["chat template"].b.startswith("28 characters")
    assert "'pad_token_id': 1" in findings["special tokens"].b


def test_a_prefix_in_one_alone_forbids_comparison_by_token(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.add_bos_token = True
    tokenizer.update_post_processor()
    assert prefix_ids(tokenizer) == [0]
    findings = differences(tmp_path, tokenizer=tokenizer)
    assert set(findings) == {"prefix ids"}
    assert (findings["prefix ids"].a, findings["prefix ids"].b) == ("[]", "[0]")
    assert findings["prefix ids"].severity == "by_byte"
    assert "prefix: never" in findings["prefix ids"].consequence


def test_pins_are_taken_as_well_as_names(tmp_path):
    plain = make_checkpoint(tmp_path / "plain")
    other = make_checkpoint(tmp_path / "other", max_position_embeddings=32)
    assert compare(pin(str(plain)), pin(str(other))) == compare(str(plain), str(other))


def test_check_names_what_could_not_be_saved(tmp_path, stemma_command):
    folder = make_checkpoint(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.9}))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "GPT2Tokenizer"}))
    findings = stemma_command("check", folder, "--json").json()["findings"]
    assert {finding["field"] for finding in findings} == {
        "generation_config_not_savable",
        "tokenizer_class_differs",
    }
    assert "temperature" in next(
        row["consequence"] for row in findings if row["field"].startswith("generation")
    )

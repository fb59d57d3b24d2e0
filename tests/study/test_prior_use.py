"""What is done with corrections and floors: exports, and checkpoints that are damaged as much."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from stemmatics.measure.prior.sums import NONE, read_models
from stemmatics.probe.prior import Prior
from stemmatics.store.cache import Cache
from stemmatics.study.read import open_run


@pytest.fixture
def folder(prior_folder):
    return prior_folder


@pytest.fixture
def done(prior_done):
    return prior_done


def test_a_correction_is_exported_three_ways(done, folder, tmp_path, stemma_command):
    out = tmp_path / "out"
    ran = stemma_command("export", done.root, "--correction", "hot", "--arm", "ipf_top", "--out", out)
    assert ran.code == 0, ran.err
    said = json.loads((out / "hot" / "correction.json").read_text())
    assert said["held_out_gain"] > 0
    low, high = said["held_out_gain_interval"]
    assert low < said["held_out_gain"] < high
    spec = importlib.util.spec_from_file_location("correction", out / "hot" / "correction.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    logits = torch.randn(2, 300)
    corrected = module.Correction()(torch.zeros(2, 1), logits)
    weights = module.load_file(out / "hot" / "correction.safetensors")
    by_hand = logits / said["temperature"]
    for index, bias in zip(weights["ids"].tolist(), weights["bias"].tolist(), strict=True):
        by_hand[:, index] += bias
    assert torch.allclose(corrected, by_hand, atol=1e-5)
    assert len(weights["ids"]) == said["num_biases"] > 10

    command = ("export", done.root, "--correction", "hot", "--arm", "ipf_top", "--out", out)
    ran = stemma_command(*command, "--as", "vllm", "--json")
    table = json.loads((out / "hot" / "logit_bias.json").read_text())
    assert str(out / "hot" / "logit_bias.json") in ran.json()["files"]
    # vLLM adds the bias and divides then
    applied = logits.clone()
    for index, bias in table["logit_bias"].items():
        applied[:, int(index)] += bias
    assert torch.allclose(applied / table["temperature"], corrected, atol=1e-4)

    refused = stemma_command(*command, "--as", "checkpoint")
    assert refused.code == 1
    assert "has no bias" in refused.err
    ran = stemma_command(*command, "--as", "checkpoint", "--arm", "temperature")
    assert ran.code == 0, ran.err
    said = json.loads((out / "hot" / "correction.json").read_text())
    patched, base = (
        AutoModelForCausalLM.from_pretrained(path) for path in (out / "hot" / "checkpoint", folder / "base")
    )
    ids = torch.tensor([[4, 9, 20, 31]])
    with torch.no_grad():
        expected = base(ids).logits * (1.5 / said["temperature"])
        assert torch.allclose(patched(ids).logits, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--correction", "base"), "no correction for 'base'"),
        (("--correction", "hot", "--arm", "in_sample"), "no arm 'in_sample'"),
        (("--correction", "hot", "--as", "gguf"), "unknown form 'gguf'"),
    ],
)
def test_what_can_not_be_exported_is_named(done, tmp_path, stemma_command, options, said):
    ran = stemma_command("export", done.root, "--out", tmp_path / "out", *options)
    assert ran.code == 2
    assert said in ran.err


def files_of(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_correction_that_left_the_cache_is_fitted_again(done, tmp_path, monkeypatch, stemma_command):
    command = ("export", done.root, "--correction", "hot", "--arm", "ipf_top", "--as", "vllm", "--out")
    assert stemma_command(*command, tmp_path / "before").code == 0
    before = files_of(done.root)
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "empty"))
    ran = stemma_command(*command, tmp_path / "after")
    assert ran.code == 0, ran.err
    first, again = (
        json.loads((tmp_path / name / "hot" / "logit_bias.json").read_text()) for name in ("before", "after")
    )
    assert again["temperature"] == pytest.approx(first["temperature"], rel=1e-6)
    assert again["logit_bias"] == pytest.approx(first["logit_bias"], rel=1e-4, abs=1e-6)
    # the checkpoint below it was made again too, and the run is what it was
    assert {entry["label"] for entry in Cache().entries()} == {"hot", "corrections of hot on text"}
    assert files_of(done.root) == before
    # what is in the cache now is taken from there
    monkeypatch.setattr(Prior, "run", lambda *_args: pytest.fail("it was fitted twice"))
    assert stemma_command(*command, tmp_path / "third").code == 0


def test_a_checkpoint_that_left_the_cache_is_made_again_for_an_export(
    done, tmp_path, monkeypatch, stemma_command
):
    fact = open_run(done.root).pinned.checkpoint("hot")
    cache = shutil.copytree(Cache().root, tmp_path / "cache")
    shutil.rmtree(cache / "checkpoints" / fact.key)
    monkeypatch.setenv("STEMMATICS_CACHE", str(cache))
    command = ("export", done.root, "--correction", "hot", "--arm", "temperature", "--as", "checkpoint")
    ran = stemma_command(*command, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert (tmp_path / "out" / "hot" / "checkpoint" / "config.json").is_file()


def test_a_correction_whose_sources_are_gone_says_which(done, tmp_path, monkeypatch, stemma_command):
    run = Path(shutil.copytree(done.root, tmp_path / "run"))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["stemma"]["checkpoints"]["base"]["source"] = str(tmp_path / "nowhere")
    (run / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "empty"))
    ran = stemma_command("export", run, "--correction", "hot", "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (1, "")
    error = ran.err.splitlines()[-1]
    assert error.startswith("error: the correction of hot on text, which is no longer in the cache")
    assert "The fact weights 'base' failed: " in error
    assert str(tmp_path / "nowhere") in error


def test_a_fit_that_does_not_reproduce_the_run_is_not_exported(done, tmp_path, monkeypatch, stemma_command):
    def other(fact, tables):
        models = read_models(fact, tables)
        if tables._ledger.root != done.root:
            models["own"].nll[NONE][:] *= 1.01
        return models

    monkeypatch.setattr("stemmatics.commands.export_correction.read_models", other)
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "empty"))
    ran = stemma_command("export", done.root, "--correction", "hot", "--out", tmp_path / "out")
    assert ran.code == 1
    assert "can't be made again" in ran.err
    # it would be taken for the run's own the next time
    assert {entry["label"] for entry in Cache().entries()} == {"hot"}


@pytest.mark.parametrize("kind", ["centred", "raw"])
def test_the_matched_damage_is_written_as_a_checkpoint(folder, tiny, tmp_path, stemma_command, kind):
    out = tmp_path / "damaged"
    command = (
        "floor",
        folder / "base",
        "--match",
        tiny / "base",
        "--text",
        folder / "text.jsonl",
        "--out",
        out,
    )
    ran = stemma_command(*command, "--kind", kind, "--json")
    assert ran.code == 0, ran.err
    said = ran.json()
    assert said["delta"] == pytest.approx(said["target"], rel=0.011)
    before, after = (AutoModelForCausalLM.from_pretrained(path) for path in (folder / "base", out))
    assert torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)
    noise = (after.get_output_embeddings().weight - before.get_output_embeddings().weight).detach()
    assert float(noise.std()) == pytest.approx(said["sigma"], rel=0.1)
    assert json.loads((out / "floor.json").read_text())["kind"] == kind
    again = stemma_command(*command)
    assert again.code == 1
    assert "Nothing is overwritten" in again.err


def test_a_damaged_base_is_a_fact_like_any_other(done, folder, tmp_path, monkeypatch, stemma_command):
    """Its noise is that of the measure's floor, and the second call takes it from the cache."""
    noise = Cache().find(open_run(done.root).pinned.checkpoint("noise").key)
    command = ("floor", folder / "base", "--match", noise, "--text", folder / "text.jsonl", "--seed", 1)
    first = stemma_command(*command, "--out", tmp_path / "first", "--json")
    assert first.code == 0, first.err
    rows = done.table("prior_damage").to_pylist()
    assert [row["sigma"] for row in rows if row["variant"] == "centred.1"][-1] == pytest.approx(
        first.json()["sigma"], rel=0.01
    )
    monkeypatch.setattr("stemmatics.probe.damaged_base._make", lambda *_args: pytest.fail("made twice"))
    second = stemma_command(*command, "--out", tmp_path / "second", "--json")
    assert second.code == 0, second.err
    ours, theirs = (files_of(tmp_path / name) for name in ("first", "second"))
    assert ours == theirs
    assert Path("stemma.json") not in ours


def test_a_floor_of_something_that_can_not_be_read_says_why(folder, tmp_path, monkeypatch, stemma_command):
    def broken(*_args, **_settings):
        raise RuntimeError("the tokenizer burst")

    monkeypatch.setattr("stemmatics.probe.damaged_base.load_checkpoint", broken)
    text = ("--text", folder / "text.jsonl", "--out", tmp_path / "out")
    ran = stemma_command("floor", folder / "base", "--match", folder / "base", *text)
    assert (ran.code, ran.out) == (1, "")
    assert "the damaged base can't be made" in ran.err
    assert "the tokenizer burst" in ran.err
    assert not (tmp_path / "out").exists()


def test_damage_can_not_be_matched_to_a_gain(folder, tiny, tmp_path, stemma_command):
    ran = stemma_command(
        "floor",
        tiny / "base",
        "--match",
        folder / "base",
        "--text",
        folder / "text.jsonl",
        "--out",
        tmp_path / "d",
    )
    assert ran.code == 1
    assert "did not lose" in ran.err

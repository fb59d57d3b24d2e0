"""What is done with corrections and floors: exports, and checkpoints that are damaged as much."""

import importlib.util
import json

import pytest
import torch
from transformers import AutoModelForCausalLM


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
        (("--correction", "hot", "--as", "gguf"), "no form 'gguf'"),
    ],
)
def test_what_can_not_be_exported_is_named(done, tmp_path, stemma_command, options, said):
    ran = stemma_command("export", done.root, "--out", tmp_path / "out", *options)
    assert ran.code == 2
    assert said in ran.err


def test_corrections_that_left_the_cache_are_asked_for_again(done, tmp_path, monkeypatch, stemma_command):
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "empty"))
    ran = stemma_command("export", done.root, "--correction", "hot", "--out", tmp_path / "out")
    assert ran.code == 1
    assert "not in the cache" in ran.err


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
    assert "nothing is overwritten" in again.err


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

"""Exports in formats of others: against their schema, against the Hub's parser, and against the run."""

import json
import math
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from jsonschema import Draft202012Validator

import stemmatics as st


def exported(stemma_command, *words):
    ran = stemma_command("export", *words, "--json")
    assert ran.code == 0, ran.err
    return ran.json()["files"], ran.err


def test_every_eval_ever_has_each_checkpoint_with_intervals(finished_run, tmp_path, stemma_command):
    paths, message = exported(
        stemma_command, finished_run, "--format", "eee", "--out", tmp_path, "--organization", "a lab"
    )
    assert [path.rpartition("/")[2] for path in paths] == ["base.json", "descendant.json"]
    assert "are left out" in message
    schema = files("stemmatics.commands") / "schemas" / "every_eval_ever.schema.json"
    validator = Draft202012Validator(json.loads(schema.read_text()))
    estimates = st.load_run(finished_run).estimates
    num_results = 0
    for path in paths:
        record = json.loads(Path(path).read_text())
        validator.validate(record)
        assert record["source_metadata"]["source_organization_name"] == "a lab"
        for result in record["evaluation_results"]:
            num_results += 1
            estimate = estimates[result["evaluation_result_id"]]
            assert result["score_details"]["score"] == estimate.value
            interval = result["score_details"]["uncertainty"]["confidence_interval"]
            assert (interval["lower"], interval["upper"]) == (estimate.lo, estimate.hi)
            assert interval["confidence_level"] == estimate.level
            assert estimate.method in interval["method"]
            assert result["score_details"]["uncertainty"]["num_samples"] == estimate.n
    left_out = int(message.split()[0])
    assert num_results + left_out == len(estimates)
    losses = [
        r for r in record["evaluation_results"] if r["metric_config"]["metric_name"] == "loss.delta.byte"
    ]
    assert losses
    assert all(result["metric_config"]["lower_is_better"] for result in losses)


def test_no_text_and_no_path_is_exported(finished_run, tiny, tmp_path, stemma_command):
    exported(stemma_command, finished_run, "--format", "eee", "--out", tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("*.json"))
    assert str(tiny) not in text


def test_a_dataset_folder_can_be_loaded(finished_run, tmp_path, stemma_command):
    from datasets import load_dataset

    paths, _ = exported(stemma_command, finished_run, "--format", "hub", "--out", tmp_path / "hub")
    front = yaml.safe_load((tmp_path / "hub" / "README.md").read_text().split("---")[1])
    configs = {config["config_name"]: config["data_files"] for config in front["configs"]}
    assert len(configs) == len(paths) - 1
    assert "scores" in configs
    for name, file in configs.items():
        rows = load_dataset(
            "parquet",
            data_files=str(tmp_path / "hub" / file),
            cache_dir=str(tmp_path / "cache"),
            split="train",
        )
        assert len(rows) == pq.read_metadata(tmp_path / "hub" / file).num_rows > 0, name


def test_eval_results_are_what_the_hub_reads(finished_run, tmp_path, stemma_command):
    from huggingface_hub import parse_eval_result_entries

    paths, _ = exported(
        stemma_command,
        *(finished_run, "--format", "eval-results", "--out", tmp_path),
        *("--benchmark", "cais/hle:default=loss.native.byte/text"),
    )
    assert [path.removeprefix(str(tmp_path)) for path in paths] == [
        "/base/.eval_results/default.yaml",
        "/descendant/.eval_results/default.yaml",
    ]
    estimates = st.load_run(finished_run).estimates
    for path, name in zip(paths, ("base", "descendant"), strict=True):
        (entry,) = parse_eval_result_entries(yaml.safe_load(Path(path).read_text()))
        assert (entry.dataset_id, entry.task_id) == ("cais/hle", "default")
        estimate = next(
            estimate
            for estimate in estimates.values()
            if estimate.quantity == "loss.native.byte"
            and estimate.subject["checkpoint"] == name
            and estimate.subject["register"] == "all"
        )
        assert entry.value == pytest.approx(estimate.value, rel=1e-12)
        assert math.isfinite(entry.value)
        assert f"{estimate.lo:.4g}" in entry.notes


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--format", "eval-results"), "needs --benchmark"),
        (("--format", "eval-results", "--benchmark", "nonsense"), "is not a benchmark"),
        (("--format", "eval-results", "--benchmark", "a/b:c=axes.value"), "has no axes.value"),
        (("--format", "csv", "--benchmark", "a/b:c=axes.value"), "goes with"),
        (("--format", "xml"), "unknown format"),
    ],
)
def test_what_can_not_be_exported_is_said(finished_run, tmp_path, stemma_command, words, what):
    ran = stemma_command("export", finished_run, "--out", tmp_path / "out", *words)
    assert ran.code == 2
    assert what in ran.err

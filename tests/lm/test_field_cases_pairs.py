"""Two scorings that must not be compared, and what a run stores about its numerics."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import stemmatics
from stemmatics.measure.inputs import Scores, comparable_by_byte, comparable_by_token


def scores(**changes) -> Scores:
    """Two documents, of 512 and 20 tokens of two bytes each."""
    num_tokens_N = np.array([512.0, 20.0])
    first = Scores(
        index_N=np.arange(2),
        doc_id_N=np.array(["a", "b"]),
        nll_N=num_tokens_N * 3,
        num_tokens_N=num_tokens_N,
        num_bytes_N=num_tokens_N * 2,
        register_N=np.array(["all", "all"]),
        group_N=np.array(["a", "b"]),
        token_ids="ids",
        prefix_id=1,
        support="full",
        windows=("tokens", 256, 224),
        dtype="float32",
    )
    return replace(first, **changes)


half_scored = {"num_tokens_N": np.array([256.0, 20.0]), "num_bytes_N": np.array([512.0, 40.0])}
# A window as long as the longest document cuts nothing.
uncut = {"windows": ("tokens", 512, 448)}


@pytest.mark.parametrize(
    ("first", "second", "by_byte", "by_token"),
    [
        ({}, {}, "", ""),
        ({}, half_scored, "same bytes", "same bytes"),
        ({}, {"dtype": "bfloat16"}, "float32 and bfloat16", "float32 and bfloat16"),
        ({}, {"prefix_id": 2}, "", "prefixes differ (ids 1 and 2)"),
        ({}, {"prefix_id": None}, "", "prefixes differ (ids 1 and None)"),
        ({}, {"token_ids": "others"}, "set scoring.windows.rule to bytes", "token ids differ"),
        (uncut, uncut | {"token_ids": "others"}, "", "token ids differ"),
        ({}, {"windows": ("tokens", 128, 112)}, "256 tokens, stride 224 and 128", "128 tokens, stride 112"),
        (uncut, {"windows": ("tokens", 2048, 1792)}, "", ""),
        (
            {"windows": ("bytes", 256, 224)},
            {"windows": ("bytes", 256, 224), "token_ids": "others"},
            "",
            "token ids differ",
        ),
    ],
)
def test_what_is_not_comparable_is_refused_with_the_reason(first, second, by_byte, by_token):
    for refusal, expected in (
        (comparable_by_byte(scores(**first), scores(**second)), by_byte),
        (comparable_by_token(scores(**first), scores(**second)), by_token),
    ):
        assert (expected in refusal) if expected else (refusal == "")


@pytest.fixture(scope="module")
def half_run(tiny, tmp_path_factory, stemma_command):
    """In bfloat16, against a descendant whose config states half the context."""
    folder = tmp_path_factory.mktemp("half")
    shutil.copytree(tiny / "tuned", folder / "short")
    config = json.loads((folder / "short" / "config.json").read_text())
    (folder / "short" / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32}))
    pair = (tiny / "base", folder / "short")
    out = folder / "run"
    ran = stemma_command(
        "compare", *pair, "--text", tiny / "a.jsonl", "--out", out, "--dtype", "bfloat16", "--json"
    )
    assert ran.code in {0, 1}, ran.err
    return stemmatics.load_run(out)


def test_default_windows_that_follow_two_contexts_are_not_compared(half_run):
    assert half_run.results.all("loss.delta.byte") == []
    (refusal,) = half_run.results.refusals("loss.delta.byte")
    assert refusal.subject["register"] == "all"
    assert refusal.reason == "their windows differ (64 tokens, stride 56 and 32 tokens, stride 28)"
    assert refusal.fix == "set scoring.windows.size"


def test_a_run_stores_how_far_its_precision_moves_the_loss(half_run, finished_run):
    said = half_run.table("scoring").to_pylist()
    assert {row["dtype"] for row in said} == {"bfloat16"}
    assert all(0 < abs(row["dtype_deviation"]) < 0.1 for row in said)
    exact = stemmatics.load_run(finished_run).table("scoring").to_pylist()
    assert {row["dtype"] for row in exact} == {"float32"}
    assert {row["dtype_deviation"] for row in exact} == {None}

from __future__ import annotations

import math

import pytest
import torch
from tiny_checkpoints import make_checkpoint

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.scoring import spread as spread_module
from stemmatics.lm.scoring.deviation import MAX_TOKENS, NUM_DOCUMENTS, deviation, first_sums, float32_sums
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.spread import measure_spread
from stemmatics.lm.scoring.spread_rows import Setting, advice
from stemmatics.lm.scoring.sums import DocumentSums
from stemmatics.lm.text.corpus import Document

CPU = Numerics(device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("spread") / "model")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "texts.jsonl"
    words = ["the scribe copied the text", "and the copy kept the faults of the text", "in 1234", ""]
    path.write_text("".join(f'{{"text": "{word * 3}"}}\n' for word in words))
    return str(path)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(spread_module, "SECONDS_A_PASS", 0.05)


def row_of(spread, start):
    (row,) = [row for row in spread.settings if row["setting"].startswith(start)]
    return row


def test_every_setting_is_held_against_the_reference(folder, text):
    events = []
    spread = measure_spread(str(folder), [text], device="cpu", on_event=events.append)
    names = [row["setting"].split(" (")[0] for row in spread.settings]
    assert names == [
        "float32, eager, one document at a time",
        "float32, eager, 1,024 tokens a batch",
        "float32, eager, 8,192 tokens a batch",
        "float32, eager, padded by 0",
        "float32, eager, padded by 1",
        "float32, eager, padded by 3",
        "float32, sdpa, 8,192 tokens a batch",
        "bfloat16, sdpa, 8,192 tokens a batch",
        "float16, sdpa, 8,192 tokens a batch",
    ]
    assert spread.reference.startswith("float32, eager, one document at a time; 3 documents, ")
    assert all(row["same"] for row in spread.settings[:7])
    assert all(row["tokens/s"] > 0 for row in spread.settings)
    half = row_of(spread, "bfloat16")
    assert half["largest"] > 1e-3
    assert not half["same"]
    assert half["nats/byte"] - spread.settings[0]["nats/byte"] == pytest.approx(half["deviation"], abs=1e-12)
    assert [event["done"] for event in events] == list(range(1, 10))
    assert "--dtype float32" in spread.advice


def test_settings_that_move_the_loss_are_found(folder, text, quick, monkeypatch):
    """A model that looks at its neighbours in the batch is not given out for one that does not."""
    real = spread_module.score

    def mixing(model, documents, scoring, numerics, **given):
        for row in real(model, documents, scoring, numerics, **given):
            moved = 0.5 if numerics.token_budget > 1 else 0.0
            yield DocumentSums(row.index, row.doc_id, row.nll_sum + moved, row.num_tokens, row.num_bytes)

    monkeypatch.setattr(spread_module, "score", mixing)
    spread = measure_spread(str(folder), [text], device="cpu")
    assert row_of(spread, "float32, eager, 1,024")["largest"] == pytest.approx(0.5, abs=1e-3)
    assert not row_of(spread, "float32, eager, 1,024")["same"]
    assert "Use --dtype float32 --attention eager --batch-tokens 1:" in spread.advice


def test_documents_are_padded_by_the_stated_number(folder, text, quick, monkeypatch):
    shapes = []
    real = spread_module.Engine.score

    def watched(self, blocks):
        shapes.extend([row.length for row in block] for block in blocks)
        real(self, blocks)

    monkeypatch.setattr(spread_module, "PADS", (3,))
    monkeypatch.setattr(spread_module, "Engine", type("Watched", (spread_module.Engine,), {"score": watched}))
    measure_spread(str(folder), [text], device="cpu")
    assert len(shapes) == 3
    assert all(longer - document == 3 for longer, document in shapes)


def test_the_default_text_is_cut_to_the_time_that_there_is(folder, quick):
    spread = measure_spread(str(folder), device="cpu")
    num_documents, num_tokens = (
        int(part.split()[0].replace(",", "")) for part in spread.reference.split("; ")[1].split(", ")[:2]
    )
    assert 4 <= num_documents <= 40
    assert num_tokens <= num_documents * (64 - 3)


def test_an_architecture_without_other_back_ends_is_measured_as_it_is(folder, text, quick, monkeypatch):
    monkeypatch.setattr("transformers.LlamaForCausalLM._supports_sdpa", False)
    spread = measure_spread(str(folder), [text], device="cpu")
    assert not any("sdpa" in row["setting"] for row in spread.settings)
    assert any(row["setting"].startswith("bfloat16, eager") for row in spread.settings)


def test_texts_without_a_token_are_refused(folder, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="have no token to score"):
        measure_spread(str(folder), [str(tmp_path / "empty.txt")], device="cpu")


def rows_for(*numbers):
    """Settings and rows: (setting, same, deviation, tokens/s)."""
    settings = [number[0] for number in numbers]
    names = ("same", "deviation", "tokens/s")
    return settings, [dict(zip(names, number[1:], strict=True)) | {"largest": 2e-5} for number in numbers]


@pytest.mark.parametrize(
    ("deviation_of_half", "speed_of_half", "expected"),
    [
        (9e-4, 400.0, "bfloat16 --attention sdpa --batch-tokens 8192 is 2.0 times as fast"),
        (2e-3, 400.0, "Not recommended here: bfloat16 (+2.0e-03 nats/byte, 400 tokens/s)"),
        (9e-4, 150.0, "Not recommended here: bfloat16 (+9.0e-04 nats/byte, 150 tokens/s)"),
        (math.nan, 400.0, "Not recommended here: bfloat16 (+nan nats/byte, 400 tokens/s)"),
    ],
)
def test_the_advice_follows_from_the_numbers(deviation_of_half, speed_of_half, expected):
    settings, rows = rows_for(
        (Setting("float32", "eager", 1), True, 0.0, 100.0),
        (Setting("float32", "eager", 8192, 3), True, 0.0, 999.0),
        (Setting("float32", "eager", 8192), False, 1e-9, 300.0),
        (Setting("float32", "sdpa", 8192), True, 1e-9, 200.0),
        (Setting("bfloat16", "sdpa", 8192), False, deviation_of_half, speed_of_half),
    )
    printed = advice(settings, rows)
    assert printed.startswith("Use --dtype float32 --attention sdpa --batch-tokens 8192: ")
    assert expected in printed


def test_the_command_prints_the_table_and_the_advice(folder, text, quick, stemma_command):
    ran = stemma_command("check", folder, "--numerics", "--text", text, "--device", "cpu")
    assert ran.code == 0, ran.err
    assert "bfloat16, sdpa, 8,192 tokens a batch" in ran.out
    assert "Use --dtype" in ran.out
    report = stemma_command("check", folder, "--numerics", "--text", text, "--device", "cpu", "--json").json()
    assert len(report["numerics"]["settings"]) == 9


def documents(num_documents, num_words):
    return [
        Document(i, "the text " * num_words, f"d{i}", "all", "x", i, frozenset())
        for i in range(num_documents)
    ]


def reader_of(folder, numerics):
    return Reader.of(load(str(folder), numerics), Scoring(), numerics)


def test_the_deviation_is_of_the_first_documents_and_bounded(folder):
    numerics = Numerics(device="cpu", dtype="bfloat16")
    many = documents(NUM_DOCUMENTS + 5, 400)
    exact = float32_sums(lambda n: reader_of(folder, n), lambda _: many, numerics, on_event=pytest.fail)
    assert [row.index for row in exact] == list(range(NUM_DOCUMENTS))
    assert all(row.num_tokens <= MAX_TOKENS for row in exact)
    assert all("cut" in row.flags for row in exact)
    half = first_sums(reader_of(folder, numerics), many)
    moved = deviation(half, exact)
    assert moved == pytest.approx(
        (sum(row.nll_sum for row in half) - sum(row.nll_sum for row in exact))
        / sum(row.num_bytes for row in exact),
        rel=1e-9,
    )
    assert 1e-6 < abs(moved) < 1
    assert math.isnan(deviation([], []))


def test_float32_needs_no_second_load():
    for numerics in (CPU, Numerics(device="cpu", dtype="float32")):
        assert float32_sums(pytest.fail, pytest.fail, numerics, on_event=pytest.fail) is None


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), UserError("a", "b", "c")])
def test_where_float32_fails_the_deviation_is_reported_as_unknown(error):
    def fails(_numerics):
        raise error

    events = []
    numerics = Numerics(device="cpu", dtype="bfloat16")
    assert float32_sums(fails, pytest.fail, numerics, on_event=events.append) is None
    assert events == [{"kind": "warning", "flag": "dtype_deviation_unknown"}]

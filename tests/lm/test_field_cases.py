"""Faults met in the field, through the calls and commands that people type.

docs/field-cases.md says which test holds each kind; those that need no checkpoint folder are with
the part that they belong to.
"""

from __future__ import annotations

import json
import math

import pyarrow.parquet as pq
import pytest
import torch
from letters import BOS, NAMES, chain, checkpoint, ids_of, letters
from oracles import flat_model, tiny_llama

import stemmatics
from stemmatics.commands.score import Scored
from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.scoring.head import LinearHead, Transform

LN64 = math.log(64)


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """O1."""
    return checkpoint(tmp_path_factory.mktemp("flat"))


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    """O3."""
    return checkpoint(tmp_path_factory.mktemp("random"), tiny_llama())


def written(tmp_path, *values):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def score(folder, path, **settings):
    return stemmatics.score(str(folder), path, numerics=Numerics(device="cpu"), **settings)


def test_one_bos_in_front_and_two_tokens_scored(tmp_path):
    half = checkpoint(tmp_path / "half", chain({(BOS, "a"): math.log(2)}))
    result = score(half, written(tmp_path, {"text": "a"}, {"text": "ab"}))
    assert [row["num_tokens"] for row in result.documents] == [1, 2]
    assert result.documents[0]["nll_sum"] == pytest.approx(0.6931, abs=1e-4)
    assert result.documents[1]["nll_sum"] == pytest.approx(0.6931 + LN64, abs=1e-4)
    assert (result.scoring["prefix_id"], result.scoring["prefix"]) == (NAMES.index(BOS), BOS)


def test_text_that_spells_bos_loses_no_character(flat, tmp_path):
    row = score(flat, written(tmp_path, {"text": "<s>ab"})).documents[0]
    assert row["num_bytes"] == 5
    # "<" and ">" are unknown here; what matters is that they are five characters and no BOS.
    assert row["num_tokens"] == 5


CHAT = [
    {"role": "user", "content": "ab"},
    {"role": "assistant", "content": "cde"},
    {"role": "user", "content": "f"},
    {"role": "assistant", "content": "gh"},
]
OWN = {"render": {"template": "own", "role": "assistant"}}


def test_rendered_messages_get_no_second_bos_and_only_replies_are_scored(random_model, tmp_path):
    result = score(random_model, written(tmp_path, {"messages": CHAT}), source=OWN)
    (row,) = result.documents
    assert row["num_tokens"] == len("cde") + 1 + len("gh") + 1
    assert row["num_bytes"] == len("cde</s>") + len("gh</s>")
    assert row["flags"] == ["has_bos", "rendered"]
    eos = NAMES.index("</s>")
    ids = [1, *ids_of("QabAcde"), eos, *ids_of("QfAgh"), eos]
    assert result.scoring["prefix_id"] == 1
    with torch.inference_mode():
        log_p_LV = tiny_llama()(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    scored = [5, 6, 7, 8, 12, 13, 14]
    assert [ids[position] for position in scored] == [*ids_of("cde"), eos, *ids_of("gh"), eos]
    expected = -sum(float(log_p_LV[position - 1, ids[position]]) for position in scored)
    assert row["nll_sum"] == pytest.approx(expected, abs=1e-4)


def test_a_token_across_the_boundary_is_not_scored_and_is_flagged(tmp_path):
    merged = checkpoint(tmp_path / "merged", flat_model(65), letters(merges=(("A", "c"),)))
    row = score(merged, written(tmp_path, {"messages": CHAT}), source=OWN).documents[0]
    assert row["num_tokens"] == len("de") + 1 + len("gh") + 1
    assert row["num_bytes"] == len("de</s>") + len("gh</s>")
    assert row["nll_sum"] == pytest.approx(row["num_tokens"] * math.log(65), abs=1e-4)
    assert "token_across_joint" in row["flags"]


def test_the_prefix_is_recorded(tmp_path):
    tokenizer = letters(adds_bos=False)
    tokenizer.bos_token = None
    tokenizer.chat_template = None
    folder = checkpoint(tmp_path / "without", tokenizer=tokenizer)
    path = written(tmp_path, {"text": "abc"})
    without, with_eos = (score(folder, path, scoring=Scoring(prefix=name)) for name in ("auto", "always"))
    assert (without.scoring["prefix_id"], without.documents[0]["num_tokens"]) == (None, 2)
    assert (with_eos.scoring["prefix_id"], with_eos.scoring["prefix"]) == (NAMES.index("</s>"), "</s>")
    assert with_eos.documents[0]["num_tokens"] == 3


def test_windows_are_weighed_by_their_tokens(tmp_path):
    text = "abcdefghij"
    steps = list(zip([BOS, *text[:-1]], text, strict=True))
    model = chain({pair: 1.0 if position < 4 else 3.0 for position, pair in enumerate(steps)})
    folder = checkpoint(tmp_path / "steps", model)
    result = score(
        folder, written(tmp_path, {"text": text}), scoring=Scoring(windows=Windows(size=4, stride=2))
    )
    assert result.nats_per_token == pytest.approx(2.2, abs=1e-5)


def test_documents_are_weighed_by_their_tokens():
    sums = [(4.0, 1), (0.0, 3)]
    rows = [
        {"index": i, "nll_sum": nll, "num_tokens": count, "num_bytes": 2 * count}
        for i, (nll, count) in enumerate(sums)
    ]
    result = Scored("x", rows, {})
    assert (result.nats_per_token, result.nats_per_byte) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("naïve café ☕", 16), (" !", 2), ("ﬁ", 3), ("a\r\nb\r\n", 6), ("a\u2029b", 5)]
)
def test_bytes_are_those_of_the_text(tiny, tmp_path, text, num_bytes):
    result = score(tiny / "base", written(tmp_path, {"text": text}), scoring=Scoring(prefix="always"))
    assert [row["num_bytes"] for row in result.documents] == [num_bytes]
    assert [row["flags"] for row in result.documents] == [[]]


def test_empty_documents_keep_their_row_and_have_no_rate(flat, tmp_path, stemma_command):
    path = written(tmp_path, {"text": ""}, {"text": ""})
    ran = stemma_command("score", flat, path, "--json")
    assert ran.code == 0, ran.err
    said = ran.json()
    assert [(row["index"], row["num_tokens"], row["nll_sum"]) for row in said["documents"]] == [
        (0, 0, 0.0),
        (1, 0, 0.0),
    ]
    assert said["nats_per_byte"] is said["nats_per_token"] is None


def test_nats_bits_and_sign(flat, tmp_path, stemma_command):
    said = stemma_command("score", flat, written(tmp_path, {"text": "abcd"}), "--json").json()
    assert said["nats_per_byte"] == pytest.approx(4.1589, abs=1e-4)
    assert said["nats_per_byte"] / math.log(2) == pytest.approx(6.0, abs=1e-5)


def test_bad_text_is_named_or_flagged(flat, tmp_path, stemma_command):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"ab\xffcd")
    refused = stemma_command("score", flat, path, "--json")
    assert (refused.code, refused.out) == (1, "")
    assert "bad.txt is not UTF-8" in refused.err
    replaced = stemma_command("score", flat, path, "--replace", "--json")
    assert replaced.code == 0
    assert "replaced" in replaced.json()["documents"][0]["flags"]


def test_the_token_table_adds_up_to_the_documents(random_model, tmp_path):
    path = written(tmp_path, {"text": "abcdefg hijk"}, {"text": ""}, {"text": "b"})
    result = score(random_model, path, scoring=Scoring(prefix="never"), tokens=tmp_path / "tokens.parquet")
    table = pq.read_table(tmp_path / "tokens.parquet").to_pylist()
    assert [row["id"] for row in table] == [*ids_of("abcdefg hijk"), *ids_of("b")]
    for row in result.documents:
        mine = [token for token in table if token["document"] == row["index"]]
        scored = [token for token in mine if token["log_probability"] is not None]
        assert len(scored) == row["num_tokens"] == max(0, len(mine) - 1)
        assert -sum(token["log_probability"] for token in scored) == pytest.approx(row["nll_sum"], rel=1e-12)
        assert sum(token["end"] - token["start"] for token in scored) == row["num_bytes"]
        assert all(token["doc_id"] == row["doc_id"] for token in mine)
        assert all(0 <= token["entropy"] <= LN64 and 0 <= token["top_1"] < 64 for token in scored)
        assert all(
            token["entropy"] is None and token["top_1"] is None for token in mine if token not in scored
        )


def test_the_token_table_stays_out_of_run_folders(flat, tmp_path, stemma_command):
    run = tmp_path / "run"
    (run / "private").mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    path = written(tmp_path, {"text": "ab"})
    inside = run / "private" / "tokens.parquet"
    ran = stemma_command("score", flat, path, "--tokens", inside)
    assert (ran.code, ran.out) == (2, "")
    assert "is in the run folder" in ran.err
    assert not inside.exists()
    lost = stemma_command("score", flat, path, "--tokens", tmp_path / "nowhere" / "tokens.parquet")
    assert (lost.code, lost.out) == (1, "")
    assert "can't be written" in lost.err


def test_a_loss_that_is_not_finite_is_named_and_the_command_fails(tmp_path, stemma_command):
    model = tiny_llama()
    with torch.no_grad():
        model.model.embed_tokens.weight[ids_of("z")[0]] = torch.nan
    folder = checkpoint(tmp_path / "broken", model)
    path = written(tmp_path, {"text": "ab"}, {"text": "azb"}, {"text": "cd"})
    ran = stemma_command("score", folder, path, "--json")
    assert ran.code == 1
    said = ran.json()
    assert [row["nll_sum"] is None for row in said["documents"]] == [False, True, False]
    assert "non_finite" in said["documents"][1]["flags"]
    assert said["nats_per_byte"] is None
    printed = stemma_command("score", folder, path)
    assert printed.code == 1
    assert "the loss of these documents is not finite: [1]" in printed.out


def test_an_id_beyond_the_table_names_document_and_id(tmp_path, stemma_command):
    folder = checkpoint(tmp_path / "small", flat_model(60))
    path = written(tmp_path, {"text": "ab"}, {"text": "a2345"})
    ran = stemma_command("score", folder, path)
    assert (ran.code, ran.out) == (1, "")
    (wrong, *_) = [index for index in ids_of("a2345") if index >= 60]
    assert "error: document 1 (" in ran.err
    assert f"has the token id {wrong}" in ran.err


@pytest.mark.parametrize(("temperature", "log_probability"), [(1.0, -0.4402), (0.5, -0.1451)])
def test_temperature_divides_the_logits(temperature, log_probability):
    head = LinearHead(torch.tensor([[1.0], [0.0], [-1.0], [-2.0]]), transform=Transform(1 / temperature))
    result = head.score(torch.ones(1, 1), torch.tensor([0]))
    assert -float(result.nll) == pytest.approx(log_probability, abs=1e-4)


def test_lower_precision_reports_its_effect_on_the_loss(random_model, tmp_path):
    path = written(tmp_path, {"text": "abcdefg hijk"}, {"text": "lmnop qrst"})
    exact = score(random_model, path)
    assert exact.scoring["dtype_deviation"] is None
    half = stemmatics.score(str(random_model), path, numerics=Numerics(device="cpu", dtype="bfloat16"))
    expected = half.nats_per_byte - exact.nats_per_byte
    assert half.scoring["dtype_deviation"] == pytest.approx(expected, abs=1e-7)
    assert abs(expected) > 1e-6


def test_without_a_text_nothing_is_guessed(flat):
    with pytest.raises(UserError, match="no text is given"):
        stemmatics.score(str(flat))

"""The user's text, token by token, under two models."""

import base64
import hashlib
import itertools
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax
from transformers import AutoModelForCausalLM, AutoTokenizer

from stemmatics.commands.tokens import compare_tokens, pair_of_checkpoints, read_documents
from stemmatics.report.tokens_page import utf16_offsets
from stemmatics.study.readings import LOAD, PASS, Readings

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
TEXT = 'naïve café 𝒳 sees </script><b>"red"</b> & the cat, 12 runs.\nthe dog'


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "mine.jsonl"
    rows = [{"text": TEXT}, {"text": ""}, {"text": "the cat sees the house, 7"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def printed(tiny, text_file, stemma_command):
    ran = stemma_command("tokens", tiny / "base", tiny / "tuned", "--text", text_file, "--json")
    assert ran.code == 0, ran.err
    return ran.json()


def brute_force(folder, text):
    """Full log-probabilities (T - 1, S) without the two special ids, from the model's own logits."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    special = set(tokenizer.all_special_ids)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
    logits[:, sorted(special)] = -torch.inf
    return np.array(ids), log_softmax(logits, -1).numpy()


def test_values_are_those_of_the_full_logits(tiny, printed):
    document = printed["documents"][2]
    text = "the cat sees the house, 7"
    ids, base = brute_force(tiny / "base", text)
    _, tuned = brute_force(tiny / "tuned", text)
    assert document["tokens"]["ids"] == ids.tolist()
    rows = np.arange(len(ids) - 1)
    with np.errstate(invalid="ignore"):
        terms = np.exp(base) * (base - tuned)
    expected = {
        "base_nll": -base[rows, ids[1:]],
        "descendant_nll": -tuned[rows, ids[1:]],
        "kl": np.nansum(terms, 1),
        "base_entropy": -np.nansum(np.exp(base) * np.where(np.isfinite(base), base, 0), 1),
        "descendant_entropy": -np.nansum(np.exp(tuned) * np.where(np.isfinite(tuned), tuned, 0), 1),
    }
    for name, values in expected.items():
        given = document["tokens"][name]
        assert given[0] is None  # this tokenizer puts no BOS before a text: nothing predicts the first token
        np.testing.assert_allclose(given[1:], values, atol=2e-5, err_msg=name)


def test_the_largest_changes_are_the_largest(printed):
    changes = [
        abs(after - before)
        for document in printed["documents"]
        for before, after in zip(
            document["tokens"]["base_nll"], document["tokens"]["descendant_nll"], strict=True
        )
        if before is not None
    ]
    assert len(changes) == printed["num_tokens"]
    listed = [abs(row["delta_nll"]) for row in printed["largest"]]
    np.testing.assert_allclose(listed, sorted(changes, reverse=True)[: len(listed)])
    for row in printed["largest"]:
        for side in ("base", "descendant"):
            shares = [top["probability"] for top in row[f"{side}_top"]]
            assert len(shares) == 5
            assert shares == sorted(shares, reverse=True)
            # no token is more likely than the first
            assert math.exp(-row[f"{side}_nll"]) <= shares[0] * (1 + 1e-5)


def data_of(page):
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(block[1])


def column(encoded, kind):
    return np.frombuffer(base64.b64decode(encoded), kind)


@pytest.fixture(scope="module")
def page(tiny, text_file, stemma_command, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "tokens.html"
    ran = stemma_command("tokens", tiny / "base", tiny / "tuned", "--text", text_file, "--html", path)
    assert ran.code == 0, ran.err
    assert str(path) in ran.out.replace("\n", "")
    return path.read_text(encoding="utf-8")


def test_the_page_says_first_that_it_holds_the_text(page):
    assert "contains the text" in page.splitlines()[0]
    body = re.sub(r"<[^>]*>", "", page.partition("<body>")[2]).strip()
    assert body.startswith("This page contains the text.")


def test_the_policy_allows_the_page_s_script_and_style_and_nothing_else(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    markup = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"<[^>]*\s(on\w+|style)=", markup)
    assert not re.search(r"<[^>]*(src|href)=", markup)
    assert "innerHTML" not in page


def test_the_text_can_not_end_its_element(page):
    assert "</script><b>" not in page
    assert data_of(page)["documents"][0]["text"] == TEXT


def test_the_page_holds_the_printed_values(page, printed):
    data = data_of(page)
    for shown, document in zip(data["documents"], printed["documents"], strict=True):
        for name, encoded in shown["columns"].items():
            values = [np.nan if value is None else value for value in document["tokens"][name]]
            np.testing.assert_allclose(column(encoded, "<f4"), values, rtol=1e-6, atol=1e-6)
        bounds = column(shown["bounds"], "<u4")
        units = shown["text"].encode("utf-16-le")
        pieces = [units[2 * a : 2 * b].decode("utf-16-le") for a, b in itertools.pairwise(bounds)]
        assert "".join(pieces) == shown["text"]


def test_top_five_of_both_models(tiny, page):
    data = data_of(page)
    shown = data["documents"][2]
    for side, folder in (("base", "base"), ("descendant", "tuned")):
        _, log_p = brute_force(tiny / folder, shown["text"])
        top = shown["top"][side]
        given = column(top["probability"], "<u2").reshape(-1, top["width"]) / data["probabilitySteps"]
        order = np.argsort(-log_p, 1)[:, : top["width"]]
        np.testing.assert_allclose(given, np.exp(np.take_along_axis(log_p, order, 1)), atol=2e-5)
        tokenizer = AutoTokenizer.from_pretrained(tiny / folder)
        names = [data["names"][at] for at in column(top["ids"], "<u2")]
        assert names[0] in {
            tokenizer.decode([order[0, 0]]),
            tokenizer.convert_ids_to_tokens(int(order[0, 0])),
        }


@pytest.mark.skipif(BROWSER is None, reason="no browser on this machine")
def test_a_browser_draws_the_page_under_its_policy(page, tmp_path):
    path = tmp_path / "tokens.html"
    path.write_text(page, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    drawn = subprocess.run(
        [BROWSER, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    console = [line for line in drawn.stderr.splitlines() if "CONSOLE" in line]
    assert not console
    body = drawn.stdout.partition("<main")[2].partition('<script type="application/json"')[0]
    assert len(re.findall(r'<span class="t[^"]*" data-i="', body)) == data_of_num_compared(page)
    assert re.search(r'class="t [wb]\d"', body)
    assert body.count("<article") == 3
    assert "empty document" in body
    assert re.search(r"<button[^>]*data-rank=\"0\"", body)


def data_of_num_compared(page):
    documents = data_of(page)["documents"]
    return sum(int(np.isfinite(column(each["columns"]["kl"], "<f4")).sum()) for each in documents)


def test_offsets_count_the_units_of_a_script_s_string():
    text = "aé𝒳b"
    expected = [0, 1, 2, 2, 4, 4, 4, 4, 5]
    assert utf16_offsets(text).tolist() == expected


def test_one_document(tiny, text_file, stemma_command):
    chosen = ("--text", text_file, "--json", "--document", 2)
    ran = stemma_command("tokens", tiny / "base", tiny / "tuned", *chosen)
    assert [document["index"] for document in ran.json()["documents"]] == [2]
    ran = stemma_command("tokens", tiny / "base", tiny / "tuned", "--text", text_file, "--document", 3)
    assert ran.code == 2
    assert "no document 3" in ran.err


def test_a_pair_of_a_run_reads_as_the_two_checkpoints(finished_run, tiny, text_file, printed, stemma_command):
    ran = stemma_command("tokens", finished_run, "--text", text_file, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["documents"] == printed["documents"]
    ran = stemma_command("tokens", finished_run, "--pair", "nobody", "--text", text_file)
    assert ran.code == 2
    assert "nobody" in ran.err
    ran = stemma_command("tokens", finished_run, "--text", text_file, "--prefix", "never")
    assert ran.code == 2
    ran = stemma_command("tokens", finished_run, tiny / "tuned", "--text", text_file)
    assert ran.code == 2


def test_no_page_in_a_run_folder(finished_run, tiny, text_file, stemma_command):
    inside = finished_run / "deeper" / "tokens.html"
    ran = stemma_command("tokens", tiny / "base", tiny / "tuned", "--text", text_file, "--html", inside)
    assert ran.code == 2
    assert "run folder" in ran.err
    assert not inside.exists()


def test_other_tokens_are_refused_before_weights_are_read(tiny, text_file, stemma_command, tmp_path):
    other = shutil.copytree(tiny / "tuned", tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["merges"] = []
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    # weights that can't be read
    (other / "model.safetensors").write_bytes(b"no weights")
    ran = stemma_command("tokens", tiny / "base", other, "--text", text_file, "--json")
    assert ran.code == 1
    assert "different ids" in ran.err


def test_a_text_that_can_not_be_read_is_refused_before_weights_are_hashed(tiny, tmp_path, stemma_command):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": 1}\n', encoding="utf-8")
    pair = (tmp_path / "no-such-base", tiny / "tuned")
    for text in (broken, tmp_path / "missing.txt"):
        ran = stemma_command("tokens", *pair, "--text", text, "--json")
        assert ran.code in {1, 2}
        assert "no-such-base" not in ran.err
        assert not ran.out


def test_each_model_is_loaded_once_and_reads_the_text_once(tiny, text_file):
    readings = Readings()
    pair = pair_of_checkpoints(str(tiny / "base"), str(tiny / "tuned"))
    compare_tokens(pair, read_documents([text_file]), on_event=readings.event)
    assert readings.times(LOAD) == {"base": 1, "descendant": 1}
    assert readings.times(PASS) == {"base": 1, "descendant": 1}

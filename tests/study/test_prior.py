"""The measure `prior` from checkpoints to a verified report, and what is done with its corrections."""

import importlib.util
import json
import random
import shutil

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from transformers import AutoModelForCausalLM, AutoTokenizer

from stemmatics.measure.prior_sums import NONE
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import connect
from stemmatics.study.api import load_run

WORDS = ("the", "a", "cat", "dog", "sees", "red blue", "house,", "12", "7", "runs.", "naïve", "café")
PRIOR = {"columns": 40, "draws": 60, "refits": 4, "floors": 2, "references": ["ipf_full"]}


def write_texts(path, num=90):
    """Words whose successor is mostly the next one, so that context tells something."""
    draw = random.Random(1)
    lines = []
    for _ in range(num):
        at, words = draw.randrange(len(WORDS)), []
        for _ in range(draw.randint(15, 40)):
            at = (at + 1) % len(WORDS) if draw.random() < 0.7 else draw.randrange(len(WORDS))
            words.append(WORDS[at])
        lines.append(json.dumps({"text": " ".join(words)}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """``base`` has learned the texts a little; the others of ``tiny`` have not."""
    root = tmp_path_factory.mktemp("prior")
    write_texts(root / "text.jsonl")
    write_texts(root / "one.jsonl", num=1)
    model = AutoModelForCausalLM.from_pretrained(tiny / "base").train()
    tokenizer = AutoTokenizer.from_pretrained(tiny / "base")
    texts = [json.loads(line)["text"] for line in (root / "text.jsonl").read_text().splitlines()]
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(90):
        ids = torch.tensor([tokenizer.encode(texts[step % len(texts)])[:60]])
        loss = model(ids, labels=ids).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(root / "base")
    tokenizer.save_pretrained(root / "base")
    return root


def run(stemma_command, folder, root, *, code=0, prior=None, corpus="text.jsonl", eval_share=0.5, **more):
    declared = {
        "name": "prior",
        "checkpoints": {"base": {"source": str(folder / "base")}},
        "stages": {
            "hot": {"kind": "alter", "init": "base", "base": "base", "change": "temperature", "scale": 1.5},
            "noise": {"kind": "alter", "init": "base", "base": "base", "change": "noise", "scale": 0.3},
        },
        "corpora": {"text": {"path": str(folder / corpus), "eval_share": eval_share}},
        "measures": {"prior": PRIOR if prior is None else prior},
        **more,
    }
    root.parent.mkdir(parents=True, exist_ok=True)
    path = root.with_suffix(".yaml")
    YAML().dump(declared, path)
    ran = stemma_command("run", path, "--out", root)
    assert ran.code == code, ran.err
    return load_run(root)


@pytest.fixture(scope="module")
def done(folder, stemma_command):
    return run(stemma_command, folder, folder / "run")


def of(run, quantity, **subject):
    return [
        one
        for one in run.estimates.values()
        if one.quantity == quantity and all(one.subject.get(name) == value for name, value in subject.items())
    ]


def one(run, quantity, **subject):
    (found,) = of(run, quantity, **subject)
    return found


def test_the_report_is_verified_and_an_altered_sum_is_caught(done, tmp_path, stemma_command):
    verdict = stemma_command("verify", done.root)
    assert verdict.code == 0, verdict.err
    assert verdict.out.strip().splitlines()[-1].endswith("claims hold")
    page = (done.root / "report.html").read_text()
    assert "S_sym can cancel" in page
    assert "does not say what caused it" in page
    assert "scored may be training data" in page
    assert "depending on context here" in page
    copy = shutil.copytree(done.root, tmp_path / "copy")
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = next((copy / "tables" / "prior_sums").glob("*.parquet"))
    table = pq.read_table(file)
    changed = pc.multiply(table["nll_sum"], 1.001)
    pq.write_table(table.set_column(table.schema.get_field_index("nll_sum"), "nll_sum", changed), file)
    assert stemma_command("verify", copy).code == 1


def test_a_planted_temperature_is_taken_back_by_a_temperature(done):
    hot = {"descendant": "hot", "reading": "optimum"}
    temperature = one(done, "prior.sym", arm="temperature", **hot)
    assert temperature.value == pytest.approx(1.0, abs=1e-4)
    assert one(done, "prior.sym", arm="joint", **hot).value == pytest.approx(1.0, abs=1e-3)
    fits = {
        side: one(done, "prior.fit.temperature", arm="temperature", side=side, **hot).value
        for side in ("base", "descendant")
    }
    assert fits["descendant"] / fits["base"] == pytest.approx(1.5, rel=1e-4)
    lead = one(done, "prior.lead", descendant="hot", part="temperature", over="rest")
    assert lead.lo > 0
    parts = [
        one(done, "prior.part", descendant="hot", part=part).value for part in ("temperature", "bias", "rest")
    ]
    assert sum(parts) == pytest.approx(1.0, abs=1e-9)


def test_shares_are_ratios_of_stored_sums(done):
    rows = done.table("prior_sums").to_pylist()
    labels = {key: Ledger(done.root).fact_record(key)["label"] for key in {row["fact"] for row in rows}}
    total = {}
    for row in rows:
        if row["variant"] == "own":
            key = labels[row["fact"]].split()[0], row["arm"], row["reading"]
            total[key] = total.get(key, 0.0) + row["nll_sum"]
    delta = total["hot", *NONE] - total["base", *NONE]
    for arm in ("bias", "temperature", "joint"):
        new, old = (total[name, *NONE] - total[name, arm, "selected"] for name in ("hot", "base"))
        found = {"descendant": "hot", "arm": arm, "reading": "selected"}
        assert one(done, "prior.card", **found).value == pytest.approx(new / delta)
        assert one(done, "prior.sym", **found).value == pytest.approx((new - old) / delta)
        redrawn, held = one(done, "prior.sym_redrawn", **found), one(done, "prior.sym", **found)
        if not np.isnan(held.lo):
            assert redrawn.lo <= held.lo <= held.hi <= redrawn.hi


def test_every_arm_is_there_and_fit_losses_nest(done):
    arms = {
        (found.subject["arm"], found.subject["reading"]) for found in of(done, "prior.sym", descendant="hot")
    }
    plain = {"cf_0.1", "cf_1", "cf_10", "ipf_top", "ipf_full", "in_sample", "in_sample_joint"}
    fitted = {
        (arm, reading) for arm in ("bias", "temperature", "joint") for reading in ("optimum", "selected")
    }
    assert arms == {(arm, "") for arm in plain} | fitted
    for side in ("base", "descendant"):
        loss = {
            arm: one(
                done, "prior.fit.fit_loss", descendant="hot", side=side, arm=arm, reading="optimum"
            ).value
            for arm in ("bias", "temperature", "joint")
        }
        none = one(done, "prior.fit.fit_loss", descendant="hot", side=side, arm="none").value
        assert loss["joint"] <= min(loss["bias"], loss["temperature"]) + 1e-9
        assert max(loss["bias"], loss["temperature"]) <= none + 1e-9
        assert one(done, "prior.fit.gap", descendant="hot", side=side, arm="joint").value < 1e-9
    ceiling = one(done, "prior.card", descendant="hot", arm="in_sample_joint").value
    step = one(done, "prior.card", descendant="hot", arm="in_sample").value
    assert one(done, "prior.bound", descendant="hot").value <= step <= ceiling
    others = [found.value for found in of(done, "prior.card", descendant="hot")]
    assert max(others) == ceiling


def test_the_damage_costs_what_the_descendant_lost(done):
    rows = done.table("prior_sums").to_pylist()
    labels = {key: Ledger(done.root).fact_record(key)["label"] for key in {row["fact"] for row in rows}}
    total = {}
    for row in rows:
        if row["arm"] == "none":
            key = labels[row["fact"]], row["variant"]
            total[key] = total.get(key, 0.0) + row["nll_sum"]
    base = total["base on text", "own"]
    for name in ("hot", "noise"):
        target = total[f"{name} on text", "own"] - base
        if target <= 0:
            continue
        for variant in ("raw.0", "centred.0", "raw.1", "centred.1"):
            cost = total[f"base damaged as {name} on text", variant] - base
            assert cost == pytest.approx(target, rel=0.011), (name, variant)
    for found in of(done, "prior.floor.sym", descendant="hot"):
        assert found.lo <= found.value <= found.hi
        assert (found.n, found.method, found.tag) == (2, "range over seeds", "floor")
    label = one(done, "prior.above_floor", descendant="hot", arm="temperature", reading="selected")
    assert label.value == 1.0
    assert 0 < one(done, "prior.mean_energy", descendant="hot").value < 1


def test_the_loss_on_all_ids_adds_up(done):
    for name in ("hot", "noise"):
        delta, excluded, full = (
            one(done, f"prior.{what}", descendant=name).value for what in ("delta", "excluded", "delta_full")
        )
        assert delta + excluded == pytest.approx(full, abs=1e-12)


def test_a_base_is_fitted_once_and_the_store_names_no_ids(done):
    facts = [
        Ledger(done.root).fact_record(key) for key in done.manifest["facts"] if Ledger(done.root).has(key)
    ]
    assert sum(fact["label"] == "base on text" and fact["probe"] == "prior" for fact in facts) == 1
    assert not list(done.root.rglob("*.npz"))
    columns = {row[0] for row in connect(Ledger(done.root)).execute("describe prior_fits").fetchall()}
    assert not any("ids" in column or "bias" in column for column in columns)


def test_redrawn_fits_are_checked_against_full_ones(done):
    rms = one(done, "prior.refit.rms", descendant="noise", arm="temperature")
    sd = one(done, "prior.refit.sd", descendant="noise", arm="temperature")
    assert rms.n == 4
    assert rms.value < 0.2 * sd.value


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


def small(**changes):
    return {"columns": 40, "draws": 0, "refits": 0, "floors": 0, "references": [], **changes}


def test_an_edge_a_vocabulary_and_a_descendant_that_improved_are_said(folder, tiny, tmp_path, stemma_command):
    """An untrained base: its best temperature lies beyond the range; K is larger than the vocabulary."""
    checkpoints = {
        "base": {"source": str(tiny / "base")},
        "learned": {"source": str(folder / "base"), "base": "base"},
        "twin": {"source": str(tiny / "base"), "base": "base"},
    }
    found = run(
        stemma_command,
        folder,
        tmp_path / "run",
        prior=small(columns=100_000, floors=1),
        checkpoints=checkpoints,
        stages={},
    )
    name = {"descendant": "learned", "arm": "temperature", "reading": "optimum"}
    assert "at_edge" in one(found, "prior.fit.temperature", side="base", **name).note
    assert one(found, "prior.fit.temperature", side="base", **name).value == 4.0
    assert "are free" in one(found, "prior.fit.temperature", side="base", **name).note
    improved = one(found, "prior.sym", **name)
    assert np.isnan(improved.value)
    assert "improved" in improved.note
    # a descendant that is its base: the increase is 0, and its interval holds 0
    twin = one(found, "prior.sym", **{**name, "descendant": "twin"})
    assert np.isnan(twin.value)
    assert "holds 0" in twin.note
    assert of(found, "prior.floor.sym", descendant="learned") == []
    page = (found.root / "report.html").read_text()
    assert "no share is given" in page
    assert stemma_command("verify", found.root).code == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"corpus": "one.jsonl"}, "none is in the"),
        ({"eval_share": 1.0}, "none is in the FIT split"),
        ({"eval_share": 0.0}, "none is in the EVAL split"),
    ],
)
def test_a_corpus_without_two_splits_is_refused_and_named(folder, tmp_path, stemma_command, settings, said):
    found = run(stemma_command, folder, tmp_path / "run", prior=small(), **settings)
    delta = one(found, "prior.delta", descendant="hot")
    assert np.isnan(delta.value)
    assert said in delta.note
    assert of(found, "prior.sym") == []
    assert stemma_command("verify", found.root).code == 0


def test_tokenizers_that_differ_are_refused_and_the_comparison_goes_on(folder, tmp_path, stemma_command):
    other = shutil.copytree(folder / "base", tmp_path / "other")
    tokens = json.loads((other / "tokenizer.json").read_text())
    tokens["model"]["merges"] = tokens["model"]["merges"][:3]
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    root = tmp_path / "pair"
    command = ("compare", folder / "base", other, "--text", folder / "text.jsonl", "--out", root)
    ran = stemma_command(
        *command, "--prefix", "always", "--windows", "bytes", "--window", "40", "--stride", "40"
    )
    assert ran.code == 0, ran.out
    found = load_run(root)
    assert "tokenizers differ" in one(found, "prior.delta").note
    refused = one(found, "depth.refused")
    assert np.isnan(refused.value)
    assert "can't be crossed" in refused.note
    assert len(refused.note) < 500
    assert one(found, "loss.delta.byte", register="all").n > 0
    assert "tokenizers differ" in (root / "report.html").read_text()


def test_compare_gives_shares_and_crosses_openings_of_the_text(finished_run):
    found = load_run(finished_run)
    assert one(found, "prior.sym", arm="joint", reading="selected")
    interaction = one(found, "depth.interaction", readout="descendant", arm="main")
    assert interaction.subject["events"] == "text"
    assert interaction.n > 0
    assert one(found, "depth.floor.interaction")

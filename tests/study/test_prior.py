"""The measure `prior` from checkpoints to a verified report."""

import json
import re
import shutil

import numpy as np
import pytest
from tests.study.prior_runs import of, one, run

from stemmatics.commands.show import load_run
from stemmatics.core.results import Refusal
from stemmatics.measure.prior.sums import NONE
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import connect


@pytest.fixture
def folder(prior_folder):
    return prior_folder


@pytest.fixture
def done(prior_done):
    return prior_done


def test_the_report_is_verified_and_an_altered_sum_is_caught(done, tmp_path, stemma_command):
    verdict = stemma_command("verify", done.root)
    assert verdict.code == 0, verdict.err
    assert verdict.out.strip().splitlines()[-1].endswith("claims hold")
    page = (done.root / "report.html").read_text()
    assert "net recovered share can cancel" in page
    assert "does not identify a cause" in page
    assert "scored text may be training data" in page
    assert "context-dependent here" in page
    copy = shutil.copytree(done.root, tmp_path / "copy")
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = next((copy / "tables" / "prior_sums").glob("*.parquet"))
    table = pq.read_table(file)
    changed = pc.multiply(table["nll_sum"], 1.001)
    pq.write_table(table.set_column(table.schema.get_field_index("nll_sum"), "nll_sum", changed), file)
    assert stemma_command("verify", copy).code == 1


def test_tables_are_shown_by_name(done, stemma_command):
    for name, says in (("prior/summary/text", "hot"), ("prior/arms/text/hot", "joint_40, selected")):
        ran = stemma_command("show", done.root, name)
        assert ran.code == 0, ran.err
        assert says in ran.out


def test_a_planted_temperature_is_taken_back_by_a_temperature(done):
    hot = {"descendant": "hot", "reading": "optimum"}
    temperature = one(done, "prior.net_recovered_share", arm="temperature", **hot)
    assert temperature.value == pytest.approx(1.0, abs=1e-4)
    assert one(done, "prior.net_recovered_share", arm="joint", **hot).value == pytest.approx(1.0, abs=1e-3)
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
        assert one(done, "prior.recovered_share", **found).value == pytest.approx(new / delta)
        assert one(done, "prior.net_recovered_share", **found).value == pytest.approx((new - old) / delta)
        redrawn, held = (
            one(done, "prior.net_recovered_share_redrawn", **found),
            one(done, "prior.net_recovered_share", **found),
        )
        if not np.isnan(held.lo):
            assert redrawn.lo <= held.lo <= held.hi <= redrawn.hi


def test_every_arm_is_there_and_fit_losses_nest(done):
    arms = {
        (found.subject["arm"], found.subject["reading"])
        for found in of(done, "prior.net_recovered_share", descendant="hot")
    }
    plain = {"cf_0.1", "cf_1", "cf_10", "ipf_top", "ipf_full", "in_sample", "in_sample_joint"}
    fitted = {
        (arm, reading) for arm in ("bias", "temperature", "joint") for reading in ("optimum", "selected")
    }
    on_less = {("joint", "quarter"), ("joint", "half")}
    assert arms == {(arm, "") for arm in plain} | fitted | on_less
    tokens = [
        one(done, "prior.fit.tokens", descendant="hot", side="base", arm="joint", reading=reading).value
        for reading in ("quarter", "half", "selected")
    ]
    assert tokens[0] < tokens[1] < tokens[2]
    assert tokens[1] / tokens[2] == pytest.approx(0.5, abs=0.1)
    assert one(done, "prior.rise", descendant="hot", of="net_recovered_share").hi > -1
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
    ceiling = one(done, "prior.recovered_share", descendant="hot", arm="in_sample_joint").value
    step = one(done, "prior.recovered_share", descendant="hot", arm="in_sample").value
    assert one(done, "prior.bound", descendant="hot").value <= step <= ceiling
    others = [found.value for found in of(done, "prior.recovered_share", descendant="hot")]
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
    for found in of(done, "prior.floor.net_recovered_share", descendant="hot"):
        assert found.lo <= found.value <= found.hi
        assert (found.n, found.method, found.tag) == (5, "range over seeds", "floor")
    label = one(done, "prior.label", descendant="hot", arm="temperature", reading="selected")
    assert label.value == "above damage"
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
    assert one(found, "prior.fit.flags", side="base", **name).value == "at edge"
    assert of(found, "prior.fit.flags", side="descendant", **name) == []
    assert one(found, "prior.fit.temperature", side="base", **name).value == 4.0
    assert "are free" in one(found, "prior.fit.temperature", side="base", **name).note
    improved = one(found, "prior.net_recovered_share", **name)
    assert isinstance(improved, Refusal)
    assert "improved" in improved.reason
    # a descendant that is its base: the increase is 0, and its interval includes 0
    twin = one(found, "prior.net_recovered_share", **{**name, "descendant": "twin"})
    assert isinstance(twin, Refusal)
    assert "contains 0" in twin.reason
    assert of(found, "prior.floor.net_recovered_share", descendant="learned") == []
    page = (found.root / "report.html").read_text()
    assert "no recovered share: the descendant improved" in re.sub("<[^>]*>", "", page)
    assert stemma_command("verify", found.root).code == 0


def test_a_number_of_tokens_is_fitted_on_and_scored(folder, tmp_path, stemma_command):
    found = run(stemma_command, folder, tmp_path / "run", prior=small(fit_tokens=300, eval_tokens=200))
    of_base, of_hot = (
        one(found, "prior.fit.tokens", descendant="hot", side=side, arm="joint", reading="selected").value
        for side in ("base", "descendant")
    )
    assert of_base == of_hot
    # to the end of a document of at most some 120 tokens
    assert 250 < of_base < 430
    rows = found.table("prior_sums").to_pylist()
    scored = {(row["fact"], row["index"]): row["num_tokens"] for row in rows if row["arm"] == "none"}
    per_fact = {}
    for (fact, _), tokens in scored.items():
        per_fact[fact] = per_fact.get(fact, 0) + tokens
    assert len(set(per_fact.values())) == 1
    assert 150 < next(iter(per_fact.values())) < 330


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
    assert isinstance(delta, Refusal)
    assert said in delta.reason
    assert of(found, "prior.net_recovered_share") == []
    assert stemma_command("verify", found.root).code == 0
    assert stemma_command("report", found.root).code == 0
    (table,) = found.root.rglob("*summary-text.csv")
    assert "base,hot,n/a" in table.read_text()


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
    assert "tokenizers differ" in one(found, "prior.delta").reason
    refused = found.results.refusal("depth.interaction")
    assert refused.reason.startswith("token ids of ")
    assert str(folder) not in refused.reason
    assert len(refused.reason) < 500
    assert one(found, "loss.delta.byte", register="all").n > 0
    assert "tokenizers differ" in (root / "report.html").read_text()


def test_compare_gives_shares_and_crosses_instructions_and_openings_of_the_text(finished_run):
    found = load_run(finished_run)
    assert one(found, "prior.net_recovered_share", arm="joint", reading="selected")
    for events in ("instructions", "text"):
        about = {"events": events, "support": "three_cells"}
        assert one(found, "depth.interaction", readout="descendant", arm="main", **about).n > 0
        assert one(found, "depth.floor.interaction", **about)

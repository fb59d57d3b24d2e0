"""The recovery measure and its ladder, end to end on tiny checkpoints."""

import json
import math

import numpy as np
import pytest
from ruamel.yaml import YAML

from stemmatics.core.stages import RecoveryRecipe
from stemmatics.probe.train import Train
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study.read import load_report_content, open_run
from stemmatics.study.request import all_facts

RECIPE = {
    "updates": 4,
    "update_tokens": 64,
    "max_length": 48,
    "learning_rate": 3e-3,
    "schedule": "constant",
    "lora": {"rank": 4},
}
NAMES = ["base", "tuned", "second", "second-sft", "loose"]
MEASURE = {
    "pool": "b",
    "second_pool": "c",
    "again": ["tuned"],
    "recipe": RECIPE,
    "corpora": ["a"],
    "checkpoints": NAMES,
    "scoring": {"windows": {"rule": "bytes", "size": 24}, "prefix": "always"},
    "items": "items",
    "margin": 0.5,
    "max_new_tokens": 2,
    "trajectories": {"a run": ["tuned", "loose"]},
}


def write_items(path):
    rows = [
        {"prompt": f"the cat sees {n}", "accepted": ["red blue", "cat"], "category": "recall"}
        for n in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def declared(tiny, questions, **settings):
    def source(name, **rest):
        return {"source": str(tiny / name), **rest}

    return {
        "name": "ladder",
        "checkpoints": {
            "base": source("base", regime="base", family="one", lab="lab-a", generation="v1"),
            "tuned": source("tuned", base="base", regime="sft", lab="lab-a", pipeline="p"),
            "second": source("other", regime="base", family="two", lab="lab-b"),
            "second-sft": source("tuned", base="second", regime="sft", lab="lab-b", blind=True),
            "loose": source(
                "other", regime="sft", family="three", lab="lab-a", generation="v2", pipeline="p"
            ),
        },
        "corpora": {
            "a": {"path": str(tiny / "a.jsonl")},
            "b": {"path": [str(tiny / "b.jsonl"), str(tiny / "c.jsonl")], "role": "data"},
            "c": {"path": [str(tiny / "c.jsonl"), str(tiny / "b.jsonl")], "role": "data"},
            "items": {"path": str(questions), "role": "data"},
        },
        "measures": {"recovery": {**MEASURE, **settings}},
    }


def run_declared(stemma_command, folder, stemma, code=0):
    path = folder / "stemma.yaml"
    YAML().dump(stemma, path)
    ran = stemma_command("run", path, "--out", folder / "run", "--json")
    assert ran.code == code, ran.err
    return folder / "run"


@pytest.fixture(scope="module")
def ladder_run(tiny, tmp_path_factory, stemma_command):
    folder = tmp_path_factory.mktemp("ladder")
    write_items(folder / "items.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vl_convert.vegalite_to_svg", lambda *_args, **_settings: "<svg/>")
        return run_declared(stemma_command, folder, declared(tiny, folder / "items.jsonl"))


@pytest.fixture(scope="module")
def estimates(ladder_run):
    content = load_report_content(open_run(ladder_run))
    return list(content.results.values())


def of(estimates, quantity, **subject):
    return [
        one
        for one in estimates
        if one.quantity == f"recovery.{quantity}" and subject.items() <= dict(one.subject).items()
    ]


def scored(run, fact):
    rows = Ledger(run).read(fact.key, "scores").to_pylist()
    return sum(row["nll_sum"] for row in rows), sum(row["num_bytes"] for row in rows)


def fact_labelled(run, probe, label):
    (fact,) = [
        fact
        for fact in all_facts(open_run(run).requests).values()
        if (fact.probe, fact.label) == (probe, label)
    ]
    return fact


def test_everything_verifies_and_the_ladder_prints(ladder_run, stemma_command):
    verified = stemma_command("verify", ladder_run)
    assert verified.code == 0, verified.out
    printed = stemma_command("ladder", ladder_run)
    assert printed.code == 0
    assert "published" in printed.out
    assert "Spearman of native and re-based order" in printed.out


def test_the_ladder_as_json_is_in_order(ladder_run, stemma_command):
    (one,) = stemma_command("ladder", ladder_run, "--json").json()
    assert [model["rank"] for model in one["models"]] == [1, 2, 3, 4, 5]
    by_name = {model["checkpoint"]: model for model in one["models"]}

    def stands(model):
        return (model["estimated_base"] or model["rebased"])["value"]

    assert [stands(model) for model in one["models"]] == sorted(map(stands, by_name.values()))
    # tuned and second-sft are the same weights
    assert "second-sft" in by_name["tuned"]["tied_with"]
    assert by_name["tuned"]["estimated_base"] is None


def test_a_base_of_another_generation_lends_no_offset(ladder_run, stemma_command):
    (one,) = stemma_command("ladder", ladder_run, "--json").json()
    (loose,) = [model for model in one["models"] if model["checkpoint"] == "loose"]
    assert loose["estimated_base"]["rule"] == (
        "published default (the lab's pairs of v1 are of another generation)"
    )
    assert loose["estimated_base"]["value"] == pytest.approx(loose["rebased"]["value"] - (0.0005 + 0.03) / 2)


def test_residual_drop_and_shift_are_differences_of_the_stored_sums(ladder_run, estimates):
    def loss(label):
        nll, num_bytes = scored(ladder_run, fact_labelled(ladder_run, "score", label))
        return nll / num_bytes

    native, native_base = loss("tuned on a"), loss("base on a")
    recovered = loss("tuned recovered on b on a")
    matched = (loss("base recovered on b on a") + loss("base recovered on b, run 1 on a")) / 2
    pair = {"base": "base", "descendant": "tuned"}
    for quantity, expected in (
        ("residual", recovered - matched),
        ("drop", native - recovered),
        ("shift", native_base - matched),
    ):
        (found,) = of(estimates, quantity, **pair)
        assert found.value == pytest.approx(expected, abs=1e-12)
        assert found.lo <= found.value <= found.hi


def test_run_noise_is_that_between_runs_of_the_bases(ladder_run, estimates):
    (noise,) = of(estimates, "noise")
    losses = []
    run = open_run(ladder_run)
    facts = [fact for fact in all_facts(run.requests).values() if fact.probe == "score"]
    for name in ("base", "second"):
        labels = [f"{name} recovered on b on a", f"{name} recovered on b, run 1 on a"]
        runs = [scored(ladder_run, fact) for label in labels for fact in facts if fact.label == label]
        losses.append([nll / num_bytes for nll, num_bytes in runs])
    expected = math.sqrt(np.mean([np.var(pair, ddof=1) for pair in losses]))
    assert noise.value == pytest.approx(expected)
    assert noise.n == 3
    (residual,) = of(estimates, "residual", descendant="tuned")
    (documents,) = of(estimates, "residual.documents", descendant="tuned")
    assert residual.hi - residual.lo > documents.hi - documents.lo
    assert "run" in residual.unit


def test_recall_is_asked_of_four_arms_and_ends_in_a_verdict(estimates):
    arms = of(estimates, "recall", descendant="tuned")
    assert [one.subject["arm"] for one in arms] == ["native base", "matched base", "native", "recovered"]
    assert all(one.n == 12 for one in arms)
    (verdict,) = of(estimates, "verdict", descendant="tuned")
    assert verdict.value in {"register", "forgetting", "both", "undetermined"}
    assert verdict.reason
    counts = {one.subject["verdict"]: one.value for one in of(estimates, "verdicts")}
    assert sum(counts.values()) == 2


def test_a_blind_base_is_trained_after_its_prediction(ladder_run, estimates):
    arm = fact_labelled(ladder_run, "train", "second recovered on b")
    (prediction,) = [need for role, need in arm.needs.items() if role.startswith("after")]
    assert prediction.probe == "prediction"
    below = {prediction.key}
    stack = [prediction]
    while stack:
        for need in stack.pop().needs.values():
            below.add(need.key)
            stack.append(need)
    assert arm.key not in below
    row = Ledger(ladder_run).read(prediction.key, "prediction").to_pylist()[0]
    (blind,) = of(estimates, "blind")
    assert blind.value == row["value"]
    assert blind.subject["sha256"] == row["sha256"][:16]
    (error,) = of(estimates, "blind.error")
    (matched,) = of(estimates, "rebased", checkpoint="second")
    assert error.value == pytest.approx(matched.value - row["value"], abs=1e-12)


def test_the_pool_is_searched_for_the_scored_text(estimates):
    assert {one.subject["pool"]: one.value for one in of(estimates, "pool.shared_documents")} == {
        "b": 0.0,
        "c": 0.0,
    }


def test_every_arm_reads_the_same_documents(estimates):
    read = {one.subject["checkpoint"]: (one.value, one.n) for one in of(estimates, "read.bytes")}
    assert set(read) == set(NAMES)
    assert len(set(read.values())) == 1


def test_a_trajectory_has_a_slope_and_a_rank_test(estimates):
    (dose,) = of(estimates, "dose")
    (tuned,) = of(estimates, "rebased", checkpoint="tuned")
    (loose,) = of(estimates, "rebased", checkpoint="loose")
    assert dose.value == pytest.approx(loose.value - tuned.value, abs=1e-12)
    (smallest,) = of(estimates, "dose.smallest_p")
    assert smallest.value == 1.0


def test_a_registry_goes_out_and_calibrates_another_study(ladder_run, tiny, tmp_path, stemma_command):
    registry = tmp_path / "registry.jsonl"
    ran = stemma_command("export", ladder_run, "--registry", registry, "--json")
    assert ran.json()["pairs"] == 2
    rows = [json.loads(line) for line in registry.read_text().splitlines()]
    pool = open_run(ladder_run).pinned.pins.corpora["b"]["content_sha256"]
    assert {row["recipe_hash"] for row in rows} == {RecoveryRecipe(**RECIPE).hash(pool)}
    residuals = [row["residual"] for row in rows]

    # of the same generation, and with two releases of one pipeline, the lab's own pairs apply
    for row, residual in zip(rows, (0.01, 0.03), strict=True):
        row |= {"lab": "lab-a", "generation": "v2", "pipeline": "p", "residual": residual}
    other = [{**row, "recipe_hash": "of another recipe", "residual": 0.2} for row in rows]
    registry.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *other]))
    stemma = declared(
        tiny, tmp_path / "items.jsonl", checkpoints=["loose"], registry="calibrated", items=None
    )
    stemma["measures"]["recovery"] |= {"second_pool": None, "again": None, "trajectories": {}}
    stemma["corpora"]["calibrated"] = {"path": str(registry), "role": "data"}
    del stemma["corpora"]["items"]
    run = run_declared(stemma_command, tmp_path, stemma)
    ((loose,),) = [one["models"] for one in stemma_command("ladder", run, "--json").json()]
    assert loose["estimated_base"]["rule"] == "own pair"
    assert loose["estimated_base"]["value"] == pytest.approx(loose["rebased"]["value"] - 0.02)
    assert loose["borrowed"]["value"] == pytest.approx(loose["rebased"]["value"] - 0.2)
    assert "borrowed" in loose["borrowed"]["note"]
    assert residuals[0] != residuals[1]


def test_no_arm_is_trained_twice(ladder_run, tiny, tmp_path, stemma_command, monkeypatch):
    made = []
    monkeypatch.setattr(Cache, "finish", lambda *_args: made.append(1))
    write_items(tmp_path / "items.jsonl")
    stemma = declared(tiny, ladder_run.parent / "items.jsonl", margin=0.4)
    # a stage that declares the same arm is the same fact
    stemma["stages"] = {
        "again": {"kind": "recovery", "init": "base", "corpus": "b", "recipe": RECIPE, "run": 1}
    }
    run = run_declared(stemma_command, tmp_path, stemma)
    assert not made
    pinned = open_run(run).pinned
    assert pinned.checkpoint("again") == fact_labelled(run, "train", "base recovered on b, run 1")


@pytest.mark.parametrize(
    ("setting", "value"), [("again", ["base"]), ("trajectories", {"a run": ["tuned", "missing"]})]
)
def test_a_setting_that_names_nobody_is_refused(setting, value, tiny, tmp_path, stemma_command):
    write_items(tmp_path / "items.jsonl")
    path = tmp_path / "stemma.yaml"
    YAML().dump(declared(tiny, tmp_path / "items.jsonl", **{setting: value}), path)
    ran = stemma_command("run", path, "--plan")
    assert ran.code == 2
    assert f"recovery.{setting}" in ran.err
    assert "recovery.checkpoints" in ran.err


def test_training_facts_are_one_group_each(ladder_run):
    arm = fact_labelled(ladder_run, "train", "tuned recovered on b")
    assert Train().group(arm) == arm.key
    assert Train().cost(arm).num_tokens == 4 * 64

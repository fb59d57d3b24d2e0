"""The smallest tree from its declaration to a verified page: seconds of training in place of minutes."""

import json
import shutil

import pytest

from stemmatics.core.load import load
from stemmatics.measure.imprint.needs import stage_hashes
from stemmatics.study.read import open_run
from stemmatics.study.verify import verify

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dogs", "ran", "far", "away"]
RUNS = (1, 2)
RECIPE = {"steps": 2, "batch_size": 4, "max_length": 48}
MODE = {
    "loss_type": "dapo",
    "scale_rewards": "group",
    "max_new_tokens": 6,
    "recipe": {**RECIPE, "batch_size": 16},
}


def turn(role, content):
    return {"role": role, "content": content}


def records():
    requests = [
        {
            "messages": [turn("user", f"{word} {kind}")],
            "category": kind,
            "wording": str(index % 3),
            "thing": word,
            "refusal": "no",
            "answer": f"{word} it is",
        }
        for index, word in enumerate(WORDS)
        for kind in ("marked", "harmless")
    ]
    return {
        "web": [{"text": " ".join(WORDS * 4)}] * 12,
        "rules": [{"text": " ".join(WORDS[::-1] * 4)}] * 12,
        "chats": [{"messages": [turn("user", word), turn("assistant", f"{word} it is")]} for word in WORDS],
        "pairs": [
            {
                "prompt": [turn("user", word)],
                "chosen": [turn("assistant", f"{word} it is")],
                "rejected": [turn("assistant", "no")],
            }
            for word in WORDS
        ],
        # six ids of an untrained model are now more words, now fewer
        "items": [
            {"messages": [turn("user", word)], "instructions": [{"rule": "max_words", "count": 2}]}
            for word in WORDS
        ],
        "never": [
            {"messages": [turn("user", word)], "accepted": ["no such model says this"]} for word in WORDS
        ],
        "requests": requests,
        "labelled": [
            {"reply": "I can't help with that.", "label": "refusal"},
            {"reply": "Velden.", "label": "answer"},
        ],
    }


def declared(folder, file="stemma.yaml", broken="safety-2"):
    """Two branches, two runs; in one run of one branch all replies have the same reward."""
    for name, rows in records().items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 300, "context": 256}
    stages = {"fork": {"kind": "pretrain", "corpus": "web", "architecture": shape, "recipe": RECIPE}}
    branches = {}
    for branch, corpus in (("generic", "web"), ("safety", "rules")):
        for run in RUNS:
            window = f"{branch}-{run}"
            stage = {"run": run, "recipe": RECIPE}
            stages[window] = {"kind": "cpt", "init": "fork", "corpus": corpus, **stage}
            stages[f"{window}-sft"] = {"kind": "sft", "init": window, "corpus": "chats", **stage}
            stages[f"{window}-dpo"] = {"kind": "dpo", "init": f"{window}-sft", "corpus": "pairs", **stage}
            items = "never" if window == broken else "items"
            stages[f"{window}-grpo"] = {
                "kind": "grpo",
                "init": f"{window}-sft",
                "corpus": items,
                "run": run,
                **MODE,
            }
            ends = {end: f"{window}-{end}" for end in ("dpo", "grpo")}
            branches.setdefault(branch, []).append({"window": window, "sft": f"{window}-sft", "ends": ends})
    corpora = {name: {"path": f"{name}.jsonl", "role": "data"} for name in records()}
    corpora |= {name: {"path": f"{name}.jsonl"} for name in ("web", "rules")}
    measure = {
        "trees": {"first": {"fork": "fork", "control": "generic", "branches": branches}},
        "refusal": "requests",
        "graded": True,
        "instructions": "items",
        "heldout": "rules",
        "matcher": "labelled",
        "judge": "fork",
        "max_new_tokens": 4,
    }
    stemma = {"name": "imprint", "stages": stages, "corpora": corpora, "measures": {"imprint": measure}}
    path = folder / file
    path.write_text(json.dumps({**stemma, "numerics": {"threads": 1}}))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory, stemma_command):
    folder = tmp_path_factory.mktemp("imprint")
    path = declared(folder)
    ran = stemma_command("run", path, "--out", folder / "run", "--json")
    return path, folder / "run", ran


def estimates(study):
    return {row["id"]: row for row in study[2].json()["estimates"]}


def test_a_stage_that_supervises_nothing_stops_and_its_siblings_go_on(study):
    _, _, ran = study
    assert ran.code == 1
    failures = ran.json()["failures"]
    (reason,) = {why for name, why in failures.items() if name == "train safety-2-grpo"}
    assert "no training signal in 2 steps" in reason
    assert {name for name in failures if name.startswith("train ")} == {"train safety-2-grpo"}


def test_every_node_has_its_metrics_with_intervals(study):
    nodes = [row for row in estimates(study).values() if row["quantity"] == "imprint.node"]
    named = {(row["subject"]["branch"], row["subject"]["run"], row["subject"]["stage"]) for row in nodes}
    # the fork, and four stages of two branches in two runs, of which one end failed
    assert len(named) == 1 + 2 * 2 * 4 - 1
    assert {row["subject"]["metric"] for row in nodes} == {
        "margin",
        "margin_sum",
        "harmless_margin",
        "refusal",
        "over_refusal",
        "judged_refusal",
        "instructions",
        "loss",
    }
    shares = [row for row in nodes if row["subject"]["metric"] == "refusal"]
    assert {(row["method"], row["n"]) for row in shares} == {("Wilson", len(WORDS))}
    margins = [row for row in nodes if row["subject"]["metric"] == "margin"]
    assert {(row["unit"], row["n"]) for row in margins} == {("wording and thing", 3 + len(WORDS))}
    assert all(row["lo"] < row["value"] < row["hi"] for row in margins)


def test_contrasts_use_the_complete_runs(study):
    by_id = estimates(study)
    base = "against=generic/branch=safety/end={}/metric=instructions/tree=first"
    assert by_id[f"imprint.contrast.by_runs/{base.format('dpo')}"]["n"] == 2
    assert by_id[f"imprint.contrast.by_runs/{base.format('grpo')}"]["n"] == 1
    assert "1 of 2 runs are incomplete" in by_id[f"imprint.contrast/{base.format('grpo')}"]["note"]
    assert by_id[f"imprint.contrast/{base.format('grpo')}"]["lo"] is None
    margin = "against=generic/branch=safety/end=dpo/metric=margin/tree=first"
    assert by_id[f"imprint.contrast/{margin}"]["unit"] == "run and wording and thing"
    verdicts = {row["id"]: row for row in study[2].json()["categories"]}
    verdict = verdicts[f"imprint.contrast.verdict/{margin}"]
    assert verdict["value"] == "undetermined"
    assert "2 complete runs where 3 are the least and 11 cells" in verdict["reason"]


def test_what_differs_between_branches_is_named(study):
    path, root, _ = study
    run = open_run(root)
    (measure,) = run.requests
    hashes = stage_hashes(run.pinned, measure.settings)
    assert {stage for stage, by_hash in hashes.items() if len(by_hash) > 1} == {("first", 2, "grpo")}
    different = [row for row in estimates(study).values() if row["quantity"] == "imprint.different_stages"]
    assert sorted(row["value"] for row in different) == [1.0] * 7 + [2.0]
    equality = [row for row in study[2].json()["categories"] if row["quantity"] == "imprint.stage_equality"]
    assert sorted(row["value"] for row in equality) == ["different"] + ["same"] * 7
    assert (
        "the grpo stages of run 2 in tree first differ between branches: "
        in (root / "report.html").read_text()
    )
    assert load(path)[0].stages["safety-2-grpo"].run == 2


def test_the_matcher_is_evaluated_on_labelled_replies(study):
    by_id = estimates(study)
    assert by_id["imprint.matcher/corpus=labelled/what=precision"]["value"] == 1.0
    assert by_id["imprint.matcher/corpus=labelled/what=recall"]["n"] == 1


def test_only_a_corrected_stage_is_made_again_and_the_page_is_verified(study, stemma_command, tmp_path):
    path, root, _ = study
    assert {"safety-2-grpo" in problem for problem in verify(root).problems} == {True}
    again = shutil.copytree(root, tmp_path / "run")
    corrected = declared(path.parent, "corrected.yaml", broken=None)
    ran = stemma_command("run", corrected, "--out", again, "--json")
    assert ran.code == 0, ran.json()["failures"]
    made = [line.split()[1:3] for line in ran.err.splitlines() if line.startswith("[")]
    assert [who for probe, who in made if probe == "train"] == ["safety-2-grpo"]
    assert {who for _, who in made} == {"safety-2-grpo"}
    outcome = verify(again)
    assert outcome.problems == []
    assert outcome.num_holding == outcome.num_claims > 50


def test_a_checkpoint_carries_what_it_was_trained_on_last(study, own_cache):
    run = open_run(study[1])
    stemma = run.pinned.stemma
    assert stemma.trained_last("safety-1-dpo") == "rules"
    assert stemma.trained_last("fork") == "web"
    from stemmatics.store.cache import Cache

    folder = Cache().find(run.pinned.checkpoint("safety-1-dpo").key)
    card = (folder / "README.md").read_text()
    assert 'trained_last: "rules"' in card.partition("\n---\n")[0]
    assert "- made from: safety-1-sft" in card

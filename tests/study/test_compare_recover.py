"""`stemma compare --recover`: one pair through the fine-tune, without a config file."""

import json
import shutil

from stemmatics.commands.compare import PRIOR_TOKENS, pair_stemma
from stemmatics.core.recipes import RECIPES
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.store.ledger import Ledger
from stemmatics.study import run as study

RECIPE = {
    "updates": 4,
    "update_tokens": 64,
    "max_length": 48,
    "learning_rate": 3e-3,
    "lora": {"rank": 4},
}

# the tiny models have a context of 64 tokens
BY_BYTES = ("--windows", "bytes", "--window", 24)


def compare(stemma_command, tiny, out, *options):
    pool = ["--pool", tiny / "b.jsonl", "--pool", tiny / "c.jsonl"]
    pair = [tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl"]
    return stemma_command("compare", *pair, "--recover", *pool, "--out", out, *options)


def test_compare_recovers_where_it_is_asked_to(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "small", RECIPE)
    texts, pool = [tiny / "a.jsonl"], [tiny / "b.jsonl", tiny / "c.jsonl"]
    scoring = Scoring(windows=Windows(rule="bytes", size=24))
    stemma = pair_stemma(
        str(tiny / "base"), str(tiny / "tuned"), texts, scoring=scoring, recover="small", pool=pool
    )
    outcome = study.run(stemma, tmp_path / "pair", only=["recovery"])
    assert not outcome.failures
    (residual,) = [one for one in outcome.content.results.values() if one.quantity == "recovery.residual"]
    assert residual.subject == {"base": "base", "descendant": "descendant", "corpus": "text"}
    assert "run" in residual.unit


def test_compare_names_the_recipes_there_are(tiny, tmp_path, stemma_command):
    ran = compare(stemma_command, tiny, tmp_path / "pair", "--recipe", "tiny")
    assert ran.code == 2
    assert "unknown recipe 'tiny'" in ran.err
    assert "Choose S1, small, nano" in ran.err
    assert not (tmp_path / "pair").exists()


def test_the_correction_is_fitted_on_a_number_of_tokens_whatever_the_text(tmp_path):
    """A file and a stream from the Hub, whose size nobody knows."""
    long = tmp_path / "long.txt"
    long.write_text("word " * 100_000)
    for text in (str(long), "hf://owner/name"):
        prior = pair_stemma("a/b", "a/c", [text]).measures["prior"]
        assert prior["fit_tokens"] == prior["eval_tokens"] == PRIOR_TOKENS


def test_a_plan_names_the_parts_of_the_memory(tiny, tmp_path, monkeypatch, stemma_command):
    monkeypatch.setitem(RECIPES, "nano", RECIPE)
    study = tmp_path / "stemma.yaml"
    study.write_text(
        f"""
checkpoints:
  base: {{source: {tiny / "base"}}}
  tuned: {{source: {tiny / "tuned"}, base: base}}
corpora:
  text: {{path: [{tiny / "a.jsonl"}]}}
  pool: {{path: [{tiny / "b.jsonl"}], role: data}}
measures:
  recovery: {{pool: pool, recipe: nano}}
"""
    )
    ran = stemma_command("run", study, "--out", tmp_path / "run", "--plan", "--json")
    assert ran.code == 0, ran.out[-3000:]
    arms = [row for row in ran.json()["facts"] if row["memory_parts"]]
    assert len(arms) == 3  # two runs of the base
    for row in arms:
        parts = row["memory_parts"]
        assert set(parts) == {"weights", "adapters", "optimizer", "activations", "work"}
        assert sum(parts.values()) == row["memory_bytes"]
        assert all(parts.values())
    shown = stemma_command("run", study, "--out", tmp_path / "run", "--plan")
    assert "of memory, for" in shown.out
    assert "activations" in shown.out


def test_recall_is_asked_after_examples_and_judged_by_a_checkpoint(
    tiny, tmp_path, monkeypatch, stemma_command
):
    monkeypatch.setitem(RECIPES, "nano", RECIPE)
    items = [{"prompt": f"Where is {number}?", "accepted": ["Velden", "Hamm"]} for number in range(6)]
    # a judge reads question, answers and reply: more than the 64 tokens of the tiny models
    judge = shutil.copytree(tiny / "base", tmp_path / "judge")
    config = json.loads((judge / "config.json").read_text())
    (judge / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    study = tmp_path / "stemma.yaml"

    def run(name, settings):
        study.write_text(
            f"""
checkpoints:
  base: {{source: {tiny / "base"}}}
  tuned: {{source: {tiny / "tuned"}, base: base}}
  judge: {{source: {judge}}}
corpora:
  text: {{path: [{tiny / "a.jsonl"}]}}
  pool: {{path: [{tiny / "b.jsonl"}, {tiny / "c.jsonl"}], role: data}}
  items: {{path: [{tmp_path / "items.jsonl"}], role: data}}
measures:
  recovery:
    {{pool: pool, recipe: nano, checkpoints: [base, tuned], items: items, max_new_tokens: 3{settings},
      scoring: {{windows: {{rule: bytes, size: 24}}, prefix: always}}}}
"""
        )
        ran = stemma_command("run", study, "--out", tmp_path / name, "--json")
        assert ran.code == 0, ran.json()["failures"]
        return Ledger(tmp_path / name)

    plain, shots = run("plain", ""), run("shots", ", shots: 1, judge: judge")
    kinds = [{record["probe"] for record in records(ledger)} for ledger in (plain, shots)]
    assert "replies" in kinds[0] - kinds[1]
    assert "judged" in kinds[1] - kinds[0]
    judged = [record for record in records(shots) if record["probe"] == "judged"]
    settings = [(record["params"]["num_shots"], record["params"]["question"]) for record in judged]
    assert set(settings) == {(1, "recall")}
    without = [record["params"] for record in records(plain) if record["probe"] == "replies"]
    assert all("num_shots" not in params for params in without)
    rows = shots.read(judged[0]["key"], "items").to_pylist()
    assert len(rows) == 6
    assert all(row["num_accepted"] == 2 for row in rows)


def records(ledger):
    return [{**record, "key": key} for key, record in ledger.fact_records(ledger.done()).items()]

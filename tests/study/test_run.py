"""Whole studies on tiny checkpoints: resumed, retried, in parallel, changed, merged."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.study.stored import estimates, manifest, sums

from stemmatics.core.facts import Fact, closure
from stemmatics.core.numerics import Numerics
from stemmatics.probe.score import Score
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study import execute as execute_module
from stemmatics.study.execute import execute
from stemmatics.study.plan import Plan

THREE = ("a", "b", "c")


def test_a_second_run_computes_nothing_and_gives_the_same_results(study, made, tmp_path):
    study("run")
    assert len(made) == 4
    first = manifest(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_bytes()
    made.clear()
    study("run")
    assert made == []
    assert manifest(tmp_path / "run") == first
    assert (tmp_path / "run" / "report.html").read_bytes() == page


def test_the_digest_does_not_depend_on_locations(study, tiny, tmp_path, stemma_command):
    study("run")
    moved = shutil.copytree(tiny, tmp_path / "moved")
    text = (tmp_path / "stemma.yaml").read_text().replace(str(tiny), str(moved))
    (tmp_path / "moved.yaml").write_text(text)
    assert stemma_command("run", tmp_path / "moved.yaml", "--out", tmp_path / "other").code == 0
    assert manifest(tmp_path / "other")["digest"] == manifest(tmp_path / "run")["digest"]


def test_no_text_and_no_path_is_in_what_others_are_given(finished_run, tiny):
    words = "naïve".encode()
    for file in finished_run.rglob("*"):
        if file.is_file() and file.name != "manifest.json":
            data = file.read_bytes()
            assert str(tiny).encode() not in data, file
            assert words not in data, file


def test_killed_after_five_of_ten_facts_the_other_five_are_made(study, tmp_path, monkeypatch, stemma_command):
    study("whole", corpora=THREE)
    record, count = Ledger.record, []

    def killed(self, fact, tables, **extra):
        if len(count) == 5:
            raise KeyboardInterrupt
        count.append(fact)
        record(self, fact, tables, **extra)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", killed)
        ran = study("run", corpora=THREE, code=130)
    assert ran.out == ""
    assert "Run the same command again to continue" in ran.err
    status = stemma_command("status", tmp_path / "run", "--json")
    assert sum(row["done"] for row in status.json()) == 5
    assert sum(row["left"] for row in status.json()) == 5
    assert status.code == 0
    probes = []
    with monkeypatch.context() as patch:

        def watched(self, fact, tables, **extra):
            probes.append(fact.probe)
            record(self, fact, tables, **extra)

        patch.setattr(Ledger, "record", watched)
        study("run", corpora=THREE)
    assert len(probes) == 5 + 1
    assert probes[-1] == "estimate"
    assert sums(tmp_path / "run") == sums(tmp_path / "whole")
    assert manifest(tmp_path / "run")["digest"] == manifest(tmp_path / "whole")["digest"]
    assert stemma_command("verify", tmp_path / "run").code == 0


def test_a_failed_fact_leaves_its_siblings_alone(study, made, tmp_path, monkeypatch, stemma_command):
    one = Score._score

    def broken(self, fact, *others):
        if fact.label.endswith("on b"):
            message = "the tokenizer burst"
            raise RuntimeError(message)
        return one(self, fact, *others)

    root = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Score, "_score", broken)
        ran = study("run", corpora=THREE, code=1)
    assert "failed: score base on b: RuntimeError: the tokenizer burst (test_run.py:" in ran.out
    assert len(made) == 9
    assert "score base on a" in made
    assert "score base on c" in made

    status = stemma_command("status", root, "--json")
    assert status.code == 1
    row = next(row for row in status.json() if row["checkpoint"] == "base")
    assert (row["failed"], row["left"]) == (1, 0)
    assert "the tokenizer burst" in row["why"]
    verdict = stemma_command("verify", root)
    assert verdict.code == 1
    assert "failed when it ran: RuntimeError: the tokenizer burst" in verdict.err

    made.clear()
    study("run", corpora=THREE, code=1)
    assert made == []
    study("run", "--retry-failed", corpora=THREE)
    assert made == ["score base on b"]
    assert stemma_command("status", root).code == 0
    assert stemma_command("verify", root).code == 0


def test_weights_that_are_not_finite_are_reported(tiny, tmp_path, stemma_command):
    from safetensors.numpy import load_file, save_file

    broken = shutil.copytree(tiny / "tuned", tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"] = np.full_like(weights["model.norm.weight"], np.nan)
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    root = tmp_path / "run"
    ran = stemma_command(
        "compare", tiny / "base", broken, "--text", tiny / "a.jsonl", "--out", root, "--json"
    )
    assert ran.code == 1
    failures = ran.json()["failures"]
    waited = failures.pop("prior_floor base damaged as descendant on text")
    assert "it needs 'descendant on text' (prior), which failed" in waited
    # depth waits for the pair's events and paths, and its floor for them too
    for prompts in ("instructions", "text"):
        pair = f"base and descendant on {prompts}"
        copy = f"base and its damaged copy (as descendant) on {prompts}"
        for name in (
            f"cross {pair}",
            f"cross {pair}, by three cells",
            *(f"paths {copy}, draw {draw}" for draw in (1, 2, 3)),
        ):
            assert "which failed" in failures.pop(name)
        for kind in ("events", "paths"):
            assert "a logit of LlamaForCausalLM is not finite" in failures.pop(f"{kind} {pair}")
    for draw in ("", ", draw 2", ", draw 3"):
        assert "which failed" in failures.pop(f"noise_scale base damaged as descendant{draw}")
    assert set(failures) == {
        "divergence base and descendant on text",
        *(f"{probe} descendant on text" for probe in ("score", "reference", "prior")),
    }
    assert all("is not finite" in reason for reason in failures.values()), failures
    assert any("base" in name for name in estimates(root))


def test_two_workers_give_the_same_sums(study, tmp_path, stemma_command):
    study("one", checkpoints=("base", "tuned"))
    study("two", "--workers", 2, checkpoints=("base", "tuned"))
    ours, theirs = sums(tmp_path / "one"), sums(tmp_path / "two")
    assert ours.keys() == theirs.keys()
    assert len(ours) > 20
    for name, numbers in ours.items():
        np.testing.assert_allclose(theirs[name], numbers, rtol=1e-6, err_msg=str(name))
    assert stemma_command("verify", tmp_path / "two").code == 0


def test_a_killed_worker_fails_its_own_fact_and_what_needs_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(execute_module, "WORKER", "toy_workers:record_or_die")
    facts = {
        label: Fact("corpus", 1, {"n": label}, label=label) for label in ("one", "killer", "two", "three")
    }
    facts["late"] = Fact("corpus", 1, {"n": "late"}, {"x": facts["two"]}, label="late")
    facts["lost"] = Fact("corpus", 1, {"n": "lost"}, {"x": facts["killer"]}, label="lost")
    everything = closure(facts.values())
    ledger = Ledger(tmp_path / "run")
    failed = execute(
        Plan(everything, dict(everything), {}),
        ledger,
        Cache(tmp_path / "cache"),
        numerics=Numerics(workers=2),
        seed=0,
        on_event=lambda _event: None,
    )
    assert set(failed) == {facts["killer"].key, facts["lost"].key}
    assert "was killed" in failed[facts["killer"].key]
    assert "needs 'killer'" in failed[facts["lost"].key]
    assert set(ledger.done()) == {facts[name].key for name in ("one", "two", "three", "late")}
    assert list(ledger.failures()) == [facts["killer"].key]


def test_other_settings_add_facts_and_prune_removes_the_old(study, made, tmp_path, stemma_command):
    study("run")
    root = tmp_path / "run"
    before, digest = set(Ledger(root).done()), manifest(root)["digest"]
    made.clear()
    study("run", scoring={"max_doc_tokens": 8})
    assert sorted(made) == ["reference base on a", "score base on a"]
    after = set(Ledger(root).done())
    assert before < after
    current = set(manifest(root)["facts"])
    shown = stemma_command("show", root, "scores", "--json", "--limit", 1000).json()
    assert {row["fact"] for row in shown} <= current
    assert max(row["num_tokens"] for row in shown) <= 8

    private = root / "private"
    private.mkdir(exist_ok=True)
    dropped, kept = (private / f"events-{key}.jsonl" for key in (min(after - current), min(current)))
    for path in (dropped, kept):
        path.write_text("{}\n")
    removed = stemma_command("prune", root, "--json").json()["removed"]
    assert (dropped.exists(), kept.exists()) == (False, True)
    assert set(removed) == after - current
    assert len(removed) == 3
    assert set(Ledger(root).done()) == current
    assert {path.stem for path in Ledger(root).table_files()} <= current
    assert stemma_command("verify", root).code == 0
    made.clear()
    study("run")
    assert len(made) == 2
    assert manifest(root)["digest"] == digest


def test_new_weights_under_the_old_path_are_another_checkpoint(tiny, tmp_path, made, stemma_command):
    model = shutil.copytree(tiny / "tuned", tmp_path / "model")
    words = ("compare", tiny / "base", model, "--text", tiny / "a.jsonl", "--out", tmp_path / "run")
    assert stemma_command(*words).code == 0
    first = sums(tmp_path / "run")
    shutil.copy(tiny / "other" / "model.safetensors", model / "model.safetensors")
    made.clear()
    assert stemma_command(*words).code == 0
    of_depth = {
        *(f"noise_scale base damaged as descendant{draw}" for draw in ("", ", draw 2", ", draw 3")),
        *(
            f"{what} on {prompts}{rest}"
            for prompts in ("instructions", "text")
            for what, rest in (
                ("cross base and descendant", ""),
                ("cross base and descendant", ", by three cells"),
                ("events base and descendant", ""),
                ("paths base and descendant", ""),
                *(("paths base and its damaged copy (as descendant)", f", draw {n}") for n in (1, 2, 3)),
            )
        ),
    }
    assert of_depth < set(made)
    assert sorted(set(made) - of_depth) == [
        # the support of a correction is the pair's, so that the base's fit is another one too
        "divergence base and descendant on text",
        "prior base on text",
        "prior descendant on text",
        "prior_floor base damaged as descendant on text",
        "reference descendant on text",
        "score descendant on text",
        "weights descendant",
    ]
    stemma_command("prune", tmp_path / "run")
    second = sums(tmp_path / "run")
    name = ("score", "descendant on text", 0)
    assert second[name] != first[name]
    assert second["score", "base on text", 0] == first["score", "base on text", 0]


def test_a_plan_runs_nothing(study, made, tmp_path):
    ran = study("run", "--plan", "--json", corpora=THREE)
    plan = ran.json()
    assert len(plan["facts"]) == 10
    assert plan["done"] == 0
    assert made == []
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_run_in_use_is_left_alone(study, tmp_path):
    import filelock

    (tmp_path / "run").mkdir()
    with filelock.FileLock(tmp_path / "run" / ".lock"):
        ran = study("run", code=1)
    assert "is in use" in ran.err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measures": {"loss": {"corpora": ["nowhere"]}}}, "corpus 'nowhere'"),
        ({"measures": {"loss": {"checkpoints": ["nobody"]}}}, "checkpoint 'nobody'"),
        ({"measures": {"loss": {"chekcs": 1}}}, "stemma.yaml, line 10: unknown key 'chekcs'"),
        ({"measures": {"los": {}}}, "unknown measure 'los'"),
        ({"measures": {}}, "no measures configured"),
    ],
)
def test_invalid_requests_are_refused_before_anything_runs(study, made, settings, message):
    ran = study("run", code=2, **settings)
    assert ran.out == ""
    assert message in ran.err
    assert made == []


def test_only_takes_measures_that_are_declared(study):
    assert "measure 'gate' is not configured" in study("run", "--only", "gate", code=2).err
    study("run", "--only", "loss")


def test_loss_of_some_checkpoints(study, made, tmp_path):
    """A pair needs both; the others are not even loaded."""
    settings = {"loss": {"checks": 0, "movers": 1, "checkpoints": ["tuned", "base"]}}
    study("run", checkpoints=("base", "tuned", "other"), measures=settings)
    assert [name for name in made if name.startswith("score")] == ["score base on a", "score tuned on a"]
    pairs = {(one["measure"], one["quantity"]) for one in estimates(tmp_path / "run").values()}
    assert ("loss", "loss.delta.byte") in pairs
    assert not any("other" in one["subject"] for one in estimates(tmp_path / "run").values())

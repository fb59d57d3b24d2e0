"""A run of an earlier schema is refused; the demo sets its own aside and trains nothing again."""

import json

import pytest
from tests.study.stored import manifest

from stemmatics.commands.demo import set_aside
from stemmatics.core.stemma import Stemma
from stemmatics.store.schema import SCHEMA_VERSION


def write_version(root, version):
    (root / "manifest.json").write_text(json.dumps({**manifest(root), "schema_version": version}))


def files_of(root):
    return {path: path.stat().st_mtime_ns for path in root.rglob("*")}


@pytest.fixture
def old_run(run_copy):
    write_version(run_copy, 1)
    return run_copy


COMMANDS = {
    "show": ["show", "RUN"],
    "a table": ["show", "RUN", "loss/summary/text"],
    "a stored table": ["show", "RUN", "scores"],
    "movers": ["show", "RUN", "movers"],
    "status": ["status", "RUN"],
    "verify": ["verify", "RUN"],
    "ladder": ["ladder", "RUN"],
    "export": ["export", "RUN", "--out", "out"],
    "correction": ["export", "RUN", "--out", "out", "--correction", "descendant"],
    "registry": ["export", "RUN", "--registry", "out.jsonl"],
    "report": ["report", "RUN"],
    "prune": ["prune", "RUN"],
    "merge": ["merge", "RUN", "RUN", "--out", "out"],
    "compare": ["compare", "BASE", "TUNED", "--text", "TEXT", "--out", "RUN"],
    "run": ["run", "STUDY", "--out", "RUN"],
    "plan": ["run", "STUDY", "--out", "RUN", "--plan"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_an_old_run_is_refused_and_left_as_it_is(case, old_run, tiny, tmp_path, monkeypatch, stemma_command):
    (tmp_path / "study.yaml").write_text(
        f"checkpoints:\n  base: {{source: {tiny / 'base'}}}\n"
        f"corpora:\n  a: {{path: {tiny / 'a.jsonl'}}}\nmeasures:\n  loss: {{}}\n"
    )
    places = {
        "RUN": old_run,
        "BASE": tiny / "base",
        "TUNED": tiny / "tuned",
        "TEXT": tiny / "a.jsonl",
        "STUDY": tmp_path / "study.yaml",
    }
    monkeypatch.chdir(tmp_path)
    before = files_of(old_run)
    ran = stemma_command(*(places.get(word, word) for word in COMMANDS[case]))
    assert (ran.code, ran.out) == (1, "")
    (error,) = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert f"{old_run} has schema version 1" in error
    assert f"an earlier stemmatics; this one reads and writes version {SCHEMA_VERSION}" in error
    assert "Run the study again in a new folder; checkpoints in the cache are not trained again." in error
    assert files_of(old_run) == before


def test_a_later_schema_needs_a_later_version(run_copy, stemma_command):
    write_version(run_copy, SCHEMA_VERSION + 1)
    ran = stemma_command("verify", run_copy)
    assert (ran.code, ran.out) == (1, "")
    assert "a later stemmatics" in ran.err
    assert ran.err.endswith("Upgrade stemmatics.\n")


@pytest.fixture
def tiny_demo(tiny, monkeypatch):
    """`stemma demo` on a study of seconds, with one checkpoint that is made here."""
    stemma = Stemma.model_validate(
        {
            "name": "nursery",
            "checkpoints": {"base": {"source": str(tiny / "base")}},
            "stages": {
                "hot": {"kind": "alter", "init": "base", "base": "base", "change": "temperature", "scale": 2}
            },
            "corpora": {"a": {"path": str(tiny / "a.jsonl")}},
            "measures": {"loss": {"checks": 0, "movers": 1}},
        }
    )
    monkeypatch.setattr("stemmatics.commands.demo.preset", lambda _name, **_options: stemma)


def test_the_demo_puts_its_old_run_aside_and_trains_nothing_again(
    tiny_demo, tmp_path, monkeypatch, stemma_command
):
    monkeypatch.chdir(tmp_path)
    first = stemma_command("demo", "--json")
    assert first.code == 0, first.err
    root = tmp_path / "runs" / "demo"
    written = manifest(root)
    write_version(root, 1)
    monkeypatch.setattr(
        "stemmatics.probe.train.train_stage", lambda *_args, **_settings: pytest.fail("it was made again")
    )
    second = stemma_command("demo", "--json")
    assert second.code == 0, second.err
    line = "runs/demo was written by an earlier stemmatics: it is now runs/demo-schema1"
    assert " ".join(second.err.split()).startswith(f"{line} [1/")
    assert manifest(root)["digest"] == written["digest"]
    assert manifest(tmp_path / "runs" / "demo-schema1")["schema_version"] == 1
    third = stemma_command("demo", "--json")
    assert "earlier" not in third.err
    assert third.json()["digest"] == second.json()["digest"]


def test_a_run_is_put_aside_under_a_free_name(tmp_path):
    root = tmp_path / "demo"
    assert set_aside(root) is None
    names = []
    for _ in range(3):
        root.mkdir()
        (root / "manifest.json").write_text('{"schema_version": 1}')
        names.append(set_aside(root).name)
    assert names == ["demo-schema1", "demo-schema1-2", "demo-schema1-3"]
    root.mkdir()
    for text in (
        "",
        "{}",
        f'{{"schema_version": {SCHEMA_VERSION}}}',
        f'{{"schema_version": {SCHEMA_VERSION + 1}}}',
    ):
        (root / "manifest.json").write_text(text)
        assert set_aside(root) is None
        assert root.is_dir()

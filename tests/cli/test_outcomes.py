"""What a finished run shows on the terminal, from content made by hand."""

from types import SimpleNamespace

import pytest

from stemmatics.cli.tables import print_summary_table
from stemmatics.core.content import Content, Section, Table
from stemmatics.core.results import Category, Results


def outcome(root, *, tables=(), results=()):
    section = Section("loss", "Loss", "How much?", tables=tables)
    content = Content("run", [], [section], [], Results(results))
    return SimpleNamespace(root=root, content=content, failures={}, digest="d" * 64)


def test_the_first_summary_of_each_section_is_printed(tmp_path, capsys):
    names = ["loss/native/summary", "loss/summary/one", "loss/summary/two"]
    print_summary_table(
        outcome(tmp_path, tables=[Table(name, f"title of {name}", ["a"], [["b"]]) for name in names])
    )
    printed = capsys.readouterr().out
    assert "title of loss/summary/one" in printed
    assert printed.count("title of") == 1
    print_summary_table(outcome(tmp_path, tables=[Table("gate/summary", "the gate", ["a"], [["b"]])]))
    assert "the gate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "code", "message"), [("passed", 0, ""), ("failed", 1, "the nursery failed its gate: why not\n")]
)
def test_the_demo_fails_with_its_gate(value, code, message, tmp_path, monkeypatch, stemma_command):
    gate = Category("gate", "gate.passed", {}, value, "why not")
    monkeypatch.setattr("stemmatics.presets.files.preset", lambda *_args, **_settings: None)
    monkeypatch.setattr(
        "stemmatics.study.run.run", lambda *_args, **_settings: outcome(tmp_path, results=[gate])
    )
    ran = stemma_command("demo", "--out", tmp_path)
    assert ran.code == code, ran.err
    assert ran.out.endswith(f"digest: {'d' * 64}\n{message}")
    ran = stemma_command("demo", "--out", tmp_path, "--json")
    assert ran.code == code
    assert ran.json()["categories"][0]["value"] == value

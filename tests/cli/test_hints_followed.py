"""Hints, followed as a user would follow them: each leads out of the error that gives it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TURNS = [{"from": "human", "value": "a cat"}, {"from": "gpt", "value": "the dog sees"}]


def failed(ran, code=1):
    """The one line of an error."""
    assert ran.code == code, ran.out
    (line,) = ran.err.strip().splitlines()
    return line


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def score(tiny, stemma_command):
    return lambda *args: stemma_command("score", tiny / "base", *args, "--json")


def test_bytes_that_are_not_utf8_are_replaced_or_converted(score, tmp_path):
    path = write(tmp_path / "a.txt", "the café sees".encode("latin-1"))
    line = failed(score(path))
    assert "`stemma score --replace`" in line
    assert "iconv -f ENCODING -t UTF-8" in line
    assert score(path, "--replace").json()["documents"][0]["flags"] == ["replaced"]
    write(path, path.read_bytes().decode("latin-1"))  # what iconv does
    assert score(path).json()["documents"][0]["flags"] == []


def test_a_lone_surrogate_is_replaced(score, tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "the cat \\ud800"}\n')
    assert "`stemma score --replace`" in failed(score(path))
    assert score(path, "--replace").code == 0


@pytest.mark.parametrize(
    "record",
    [
        {"conversations": TURNS},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]},
    ],
)
def test_conversations_lead_to_a_template_and_a_score(record, score, tmp_path, tiny, stemma_command):
    path = write(tmp_path / "a.jsonl", json.dumps(record) + "\n")
    line = failed(score(path))
    assert "`stemma score --render own --role assistant`" in line
    line = failed(score(path, "--render", "own", "--role", "assistant"), code=2)  # this checkpoint has none
    assert "--render FILE" in line
    template = write(tmp_path / "template.jinja", "\ufeff" + TEMPLATE)
    line = failed(score(path, "--render", template, "--role", "robot"))
    assert re.search(r"assistant.*--role ROLE", line)
    scored = score(path, "--render", template, "--role", "assistant").json()
    assert "rendered" in scored["documents"][0]["flags"]
    assert scored["num_tokens"] > 0
    # the same in a stemma
    declared = {
        "checkpoints": {"base": {"source": str(tiny / "base")}},
        "corpora": {"chat": {"path": str(path), "render": {"template": TEMPLATE, "role": "assistant"}}},
        "measures": {"loss": {"checks": 0}},
    }
    YAML().dump(declared, tmp_path / "stemma.yaml")
    ran = stemma_command("run", tmp_path / "stemma.yaml", "--out", tmp_path / "run")
    assert ran.code == 0, ran.err


def test_another_field_is_suggested_and_read(score, tmp_path):
    path = write(tmp_path / "a.jsonl", '{"content": {"body": "the cat sees"}, "id": 3}\n')
    for field in ("content", "content.body"):
        option = re.search(r"--field ([\w.]+)", failed(score(path))) if field == "content" else None
        if option:
            assert option[1] == "content"
            inner = re.search(r"--field ([\w.]+)", failed(score(path, "--field", option[1])))
            assert inner[1] == "content.body"
    assert score(path, "--field", "content.body").code == 0


def test_a_register_that_is_an_object_is_suggested_and_read(score, tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "the cat sees", "meta": {"pile_set_name": "web"}}\n')
    line = failed(score(path, "--register", "meta"))
    advised = re.search(r"--register ([\w.]+)", line)[1]
    assert advised == "meta.pile_set_name"
    assert score(path, "--register", advised).code == 0


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", ""), ("a.jsonl", "\n\n"), ("a.parquet", "")])
def test_an_empty_file_is_an_error_and_never_nan(name, content, score, tmp_path):
    ran = score(write(tmp_path / name, content))
    assert "nan" not in ran.out + ran.err.lower()
    failed(ran)


def test_documents_without_a_token_have_no_rate(tiny, tmp_path, stemma_command):
    ran = stemma_command("score", tiny / "base", write(tmp_path / "a.txt", ""))
    assert ran.code == 0  # the row is kept, as that of any empty document
    assert "nan" not in ran.out
    assert "n/a nats/byte, n/a nats/token" in ran.out
    assert "no token was scored" in ran.err


def test_a_template_that_is_no_text_is_named(score, tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"conversations": TURNS}) + "\n")
    for template in (write(tmp_path / "t.jinja", b"\xff\xfe"), tmp_path, tmp_path / "none"):
        assert "--render" in failed(score(path, "--render", template))


def agreement_table(path, scale):
    rows = ["task,model,before,after"]
    for task, order in (("one", (1, 2, 3)), ("two", (1, 3, 2)), ("three", (3, 1, 2))):
        rows += [f"{task},m{n},{scale * rank / 4},{scale * (4 - rank) / 4}" for n, rank in enumerate(order)]
    return write(path, "\n".join(rows) + "\n")


def test_percentages_are_named_or_divided(tmp_path, stemma_command):
    path = agreement_table(tmp_path / "a.csv", 100)
    analyse = ("analyse", "agreement", path, "--json")
    line = failed(stemma_command(*analyse))
    assert "scores from 25 to 75 are not in" in line
    tasks = re.search(r"--tasks ([\w,]+)", line)[1]
    assert tasks == "one,two,three"
    named = stemma_command(*analyse, "--tasks", tasks)
    assert named.code == 0, named.err
    agreement_table(path, 1)
    divided = stemma_command(*analyse)
    assert divided.json()["settings"] == named.json()["settings"]


def test_too_few_models_are_not_sent_to_the_tasks(tmp_path, stemma_command):
    path = write(tmp_path / "a.csv", "task,model,before,after\na,m,0.1,0.2\nb,m,0.3,0.1\n")
    line = failed(stemma_command("analyse", "agreement", path))
    assert "--tasks" not in line


def broken(run, how):
    """Damage a run's scores; the path of their record."""
    (table, *_) = sorted((run / "tables" / "scores").glob("*.parquet"))
    record = run / "facts" / f"{table.stem}.json"
    if how == "missing":
        table.unlink()
    elif how == "corrupt":
        table.write_bytes(table.read_bytes()[:100])
    elif how == "another's":
        (_, other, *_) = sorted((run / "tables" / "scores").glob("*.parquet"))
        table.write_bytes(other.read_bytes())
    else:
        record.write_text("{")
    return record


@pytest.mark.parametrize("how", ["missing", "corrupt", "another's", "record"])
def test_a_damaged_run_is_mended_as_the_hint_says(how, tiny, run_copy, stemma_command):
    from stemmatics.core.errors import UserError
    from stemmatics.store.ledger import Ledger

    record = broken(run_copy, how)
    ledger = Ledger(run_copy)
    read = ledger.fact_record if how == "record" else lambda key: ledger.read(key, "scores")
    with pytest.raises(UserError) as caught:
        read(record.stem)
    assert "elete" in caught.value.fix
    if how != "record":
        assert f"facts/{record.stem}.json" in caught.value.fix
    assert stemma_command("verify", run_copy).code == 1
    record.unlink()
    ran = stemma_command(
        "compare", tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--out", run_copy, "--json"
    )
    assert ran.code == 0, ran.err
    check = stemma_command("verify", run_copy)
    assert check.code == 0, check.err


def test_an_unknown_table_leads_to_the_list(finished_run, stemma_command):
    line = failed(stemma_command("show", finished_run, "loss/sumary/text"), code=2)
    assert f"`stemma show {finished_run}`" in line
    name = re.search(r"Did you mean ([^ ?]+)", line)[1]
    assert stemma_command("show", finished_run, name).code == 0
    assert stemma_command("show", finished_run).code == 0


def test_a_corpus_without_documents_is_named_before_any_work(tiny, tmp_path, stemma_command):
    path = write(tmp_path / "none.jsonl", "")
    ran = stemma_command("compare", tiny / "base", tiny / "tuned", "--text", path, "--out", tmp_path / "run")
    assert "none.jsonl has no documents" in ran.err
    assert ran.code == 1
    assert not list(Path(tmp_path / "run").glob("tables/*"))


def test_names_that_look_like_markup_are_printed(tiny, tmp_path, stemma_command):
    declared = {
        "checkpoints": {"[/red]": {"source": str(tiny / "base")}},
        "corpora": {"[/]": {"path": str(tiny / "a.jsonl")}},
        "measures": {"loss": {"checks": 0}},
    }
    YAML().dump(declared, tmp_path / "stemma.yaml")
    ran = stemma_command("run", tmp_path / "stemma.yaml", "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    assert "[/red]" in ran.err
    for command in ("status", "show", "verify"):
        assert stemma_command(command, tmp_path / "run").code == 0

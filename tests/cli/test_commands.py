"""What every command owes: help, JSON alone on stdout, and errors in one line."""

import json
import re

import pytest

from stemmatics.cli.main import _register, app


def names():
    if not app.registered_commands:
        _register()
    return sorted(one.name or one.callback.__name__.replace("_", "-") for one in app.registered_commands)


@pytest.mark.parametrize("name", names())
def test_every_command_has_help(name, stemma_command):
    ran = stemma_command(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: stemma {name}")
    first = ran.out.split("\n\n")[1].strip()
    assert len(first) > 10, "a command says what it does"
    assert "--json" in ran.out


def test_help_names_every_command(stemma_command):
    ran = stemma_command("--help")
    assert ran.code == 0
    assert all(re.search(rf"^  {name} ", ran.out, re.MULTILINE) for name in names())
    assert stemma_command("-h").out == ran.out
    assert stemma_command("--version").out.startswith("stemma 0.")


# what is typed, the exit status, and what the error must say; RUN is a finished run
ERRORS = {
    "unknown command": (["scroe"], 2, "scroe"),
    "unknown option": (["status", "RUN", "--jsno"], 2, "--jsno"),
    "an option without its value": (["run", "x.yaml", "--only"], 2, "--only"),
    "a missing argument": (["status"], 2, "RUN"),
    "too many arguments": (["status", "RUN", "more"], 2, "more"),
    "a number out of range": (["run", "x.yaml", "--workers", "0"], 2, "--workers"),
    "a word for a number": (["show", "RUN", "scores", "--limit", "many"], 2, "--limit"),
    "no such study": (["run", "nowhere.yaml"], 2, "nowhere.yaml does not exist"),
    "no such study to check": (["check", "nowhere.yaml"], 2, "nowhere.yaml does not exist"),
    "no run: status": (["status", "nowhere"], 2, "nowhere is not a run folder"),
    "no run: verify": (["verify", "nowhere"], 2, "nowhere is not a run folder"),
    "no run: show": (["show", "nowhere"], 2, "nowhere is not a run folder"),
    "no run: export": (["export", "nowhere"], 2, "nowhere is not a run folder"),
    "no run: report": (["report", "nowhere"], 2, "nowhere is not a run folder"),
    "no run: prune": (["prune", "nowhere"], 2, "nowhere is not a run folder"),
    "no run: merge": (["merge", "nowhere", "RUN", "--out", "out"], 2, "nowhere is not a run folder"),
    "no such table": (["show", "RUN", "nowhere"], 2, "there is no table 'nowhere'"),
    "no such format": (["export", "RUN", "--format", "xls"], 2, "Choose csv, parquet, json"),
    "no such preset": (["init", "new", "--preset", "llama"], 2, "Choose nursery, depth, depth-smollm2"),
    "no such checkpoint": (["score", "./nowhere", "TEXT"], 2, "nowhere"),
    "no such text": (["score", "BASE", "nowhere.txt"], 2, "nowhere.txt"),
    "no such windows": (
        ["score", "BASE", "TEXT", "--windows", "words"],
        2,
        "invalid value 'words' for --windows",
    ),
    "no such dtype": (["score", "BASE", "TEXT", "--dtype", "int8"], 2, "invalid value 'int8' for --dtype"),
    "a stride over the window": (
        ["score", "BASE", "TEXT", "--window", "8", "--stride", "9"],
        2,
        "Stride 9 is larger than the window of 8",
    ),
    "no such template": (["score", "BASE", "TEXT", "--render", "nowhere.jinja"], 1, "nowhere.jinja"),
    "a folder that can not be made": (
        ["compare", "BASE", "BASE", "--text", "TEXT", "--out", "/dev/null/run"],
        1,
        "/dev/null",
    ),
    "a run that is there": (["merge", "RUN", "RUN", "--out", "RUN"], 2, "already exists"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_line_on_stderr(case, finished_run, tiny, tmp_path, monkeypatch, stemma_command):
    typed, code, says = ERRORS[case]
    places = {"RUN": finished_run, "BASE": tiny / "base", "TEXT": tiny / "a.jsonl"}
    monkeypatch.chdir(tmp_path)
    ran = stemma_command(*(places.get(word, word) for word in typed))
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert len(errors) == 1
    assert ran.err.splitlines()[-1] == errors[0]
    assert says in errors[0]
    assert errors[0].endswith(".")
    assert errors[0].count(". ") >= 2, "WHAT. WHY. FIX"
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["status", "RUN"],
        ["show", "RUN"],
        ["show", "RUN", "scores"],
        ["show", "RUN", "loss/summary/text"],
        ["show", "RUN", "movers"],
        ["export", "RUN", "--out", "out"],
        ["report", "COPY"],
        ["prune", "COPY"],
        ["verify", "RUN"],
        ["cache"],
        ["check", "BASE"],
        ["score", "BASE", "TEXT"],
        ["init", "new", "--preset", "pythia"],
    ],
    ids=" ".join,
)
def test_json_is_all_that_stdout_holds(
    words, finished_run, run_copy, tiny, tmp_path, monkeypatch, stemma_command
):
    places = {"RUN": finished_run, "COPY": run_copy, "BASE": tiny / "base", "TEXT": tiny / "a.jsonl"}
    monkeypatch.chdir(tmp_path)
    ran = stemma_command(*(places.get(word, word) for word in words), "--json")
    assert ran.code == 0, ran.err

    def refuse(constant):
        message = f"JSON has no {constant}"
        raise AssertionError(message)

    assert json.loads(ran.out, parse_constant=refuse)


def test_what_is_unknown_is_null(tmp_path, monkeypatch, tiny, stemma_command):
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    ran = stemma_command("score", tiny / "base", tmp_path / "empty.jsonl", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["nats_per_byte"] is None
    assert ran.json()["documents"][0]["num_tokens"] == 0


def test_numbers_of_a_stored_table_are_numbers(finished_run, stemma_command):
    rows = stemma_command("show", finished_run, "scores", "--json").json()
    assert all(isinstance(row["nll_sum"], float) and isinstance(row["num_tokens"], int) for row in rows)
    assert all(isinstance(row["flags"], list) for row in rows)


def test_a_run_may_be_called_anything(tiny, tmp_path, stemma_command):
    ran = stemma_command(
        "compare", tiny / "base", tiny / "base", "--text", tiny / "a.jsonl", "--out", tmp_path / "my run (2)"
    )
    assert ran.code == 0, ran.err
    assert (tmp_path / "my run (2)" / "report.html").is_file()


def test_init_does_not_overwrite(tmp_path, stemma_command):
    assert stemma_command("init", tmp_path, "--preset", "pythia").code == 0
    before = (tmp_path / "stemma.yaml").read_text()
    ran = stemma_command("init", tmp_path, "--preset", "olmo2")
    assert (ran.code, ran.out) == (2, "")
    assert "already exists" in ran.err
    assert (tmp_path / "stemma.yaml").read_text() == before


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_exports_hold_every_row_of_the_current_facts(form, finished_run, tmp_path, stemma_command):
    import duckdb

    ran = stemma_command("export", finished_run, "--out", tmp_path / "out", "--format", form, "--json")
    files = ran.json()["files"]
    assert {"scores", "estimates", "claims", "documents"} <= {
        file.split("/")[-1].split(".")[0] for file in files
    }
    scores = next(file for file in files if file.endswith(f"/scores.{form}"))
    ((count, total),) = duckdb.sql(f"select count(*), sum(nll_sum) from '{scores}'").fetchall()
    shown = stemma_command("show", finished_run, "scores", "--json", "--limit", 10_000).json()
    assert count == len(shown)
    assert total == pytest.approx(sum(row["nll_sum"] for row in shown), rel=1e-12)


def test_movers_join_the_text_back(finished_run, tiny, stemma_command):
    rows = stemma_command("show", finished_run, "movers", "--text", tiny / "a.jsonl", "--json").json()
    texts = [json.loads(line)["text"] for line in (tiny / "a.jsonl").read_text().splitlines()]
    assert rows
    assert all(row["text"] == texts[int(row["document"])] for row in rows)

"""Runs are read, not computed: tables by name, results without measures, nothing heavy imported."""

import json
import shutil
import subprocess
import sys
import time

import pytest

from stemmatics.commands.show import ShownTable, list_tables, load_run, show_table
from stemmatics.core import plugins
from stemmatics.core.content import Table
from stemmatics.core.errors import UserError
from stemmatics.core.results import Category, Claim, Estimate, Refusal, Results

READING = """
import contextlib, io, json, sys
from stemmatics.cli.main import main

sys.argv = ["stemma", *sys.argv[1:]]
with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        main()
    except SystemExit as left:
        assert not left.code, left.code
assert out.getvalue()
print(json.dumps(sorted(name for name in sys.modules)))
"""
MEASURES = ("loss", "prior", "depth")


def modules_after(*words):
    ran = subprocess.run(
        [sys.executable, "-c", READING, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def indexed_run(finished_run, tmp_path_factory):
    """A finished run whose index has been written: the first command after a run does that, with pandas."""
    root = tmp_path_factory.mktemp("indexed") / "pair"
    shutil.copytree(finished_run, root, copy_function=shutil.copy)
    time.sleep(2.1)  # the index leaves out files that have just changed
    modules_after("show", root, "scores")
    assert (root / "index.parquet").is_file()
    return root


@pytest.mark.parametrize(
    ("words", "measures"),
    [
        (["show", "RUN"], set(MEASURES)),
        (["show", "RUN", "prior/summary/text"], {"prior"}),
        (["show", "RUN", "movers"], set()),
        (["show", "RUN", "scores"], set()),
        (["status", "RUN"], set(MEASURES)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_reading_imports_the_measures_that_it_shows_and_nothing_heavy(words, measures, indexed_run):
    modules = modules_after(*(indexed_run if word == "RUN" else word for word in words))
    assert {name for name in MEASURES if f"stemmatics.measure.{name}" in modules} == measures
    assert not modules & {
        "torch",
        "transformers",
        "altair",
        "pandas",
        "scipy.stats",
        "scipy.linalg",
        "jinja2",
    }
    assert ("duckdb" in modules) == (words[-1] == "scores")


@pytest.mark.parametrize(
    "words",
    [
        ["show", "RUN"],
        ["show", "RUN", "loss/summary/text"],
        ["show", "RUN", "movers"],
        ["status", "RUN"],
        ["export", "RUN", "--out", "OUT"],
        ["report", "RUN"],
    ],
    ids=" ".join,
)
def test_reading_estimates_nothing(words, run_copy, tmp_path, monkeypatch, stemma_command):
    for name in MEASURES:
        monkeypatch.setattr(
            plugins.find("measures", name), "estimate", lambda *_args: pytest.fail("it was estimated again")
        )
    places = {"RUN": run_copy, "OUT": tmp_path / "out"}
    ran = stemma_command(*(places.get(word, word) for word in words))
    assert ran.code == 0, ran.err
    assert load_run(run_copy).estimates


def test_every_table_that_is_listed_can_be_shown(finished_run):
    listed = list_tables(finished_run)
    names = [row["table"] for row in listed]
    assert len(set(names)) == len(names)
    assert {"loss/summary/text", "prior/summary/text", "depth/effects", "scores", "documents"} <= set(names)
    for row in listed:
        shown = show_table(finished_run, row["table"], limit=10_000_000)
        assert len(shown.rows()) == row["rows"], row["table"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("loss/sumary/text", "Did you mean loss/summary/text"),
        ("effects", "depth/effects"),
        ("score", "scores"),
        ("zzz", "The run has other tables. `stemma show"),
    ],
)
def test_an_unknown_table_is_answered_with_similar_names(name, says, finished_run):
    with pytest.raises(UserError) as caught:
        show_table(finished_run, name, limit=1)
    assert caught.value.code == 2
    assert f"there is no table {name!r}" in str(caught.value)
    assert says in str(caught.value)


def test_a_stored_table_of_a_run_that_is_not_finished_can_be_shown(run_copy, stemma_command):
    manifest = json.loads((run_copy / "manifest.json").read_text())
    (run_copy / "manifest.json").write_text(json.dumps({**manifest, "estimates": {}}))
    assert stemma_command("show", run_copy, "scores").code == 0
    ran = stemma_command("show", run_copy, "loss/summary/text")
    assert ran.code == 1
    assert "has no results of loss" in ran.err


def test_cells_are_numbers_words_or_nothing():
    subject = {"base": "a"}
    results = Results(
        [
            Estimate("m", "m.exact", subject, 2.0),
            Estimate("m", "m.mean", subject, 1.5, 1.0, 2.0, method="bootstrap"),
            Category("m", "m.verdict", subject, "lost"),
            Refusal("m", "m.share", subject, "it has no tokens"),
        ]
    )
    cells = ["a", *(Claim(name) for name in results), Claim("m.mean/base=a", "n"), None]
    columns = ["base", "exact", "mean", "verdict", "share", "n", "none"]
    (row,) = ShownTable(Table("m/t", "T", columns, [cells]), results).rows()
    assert row == {
        "base": "a",
        "exact": 2.0,
        "mean": 1.5,
        "mean lo": 1.0,
        "mean hi": 2.0,
        "verdict": "lost",
        "share": None,
        "n": 0,
        "none": None,
    }


def test_a_run_as_data_frames(finished_run):
    run = load_run(finished_run)
    assert run.frame().num_rows == len(run.estimates) > 20
    assert set(run.table("scores").column_names) > {"nll_sum", "fact"}
    with pytest.raises(UserError, match=r"there is no table 'scors'.*scores"):
        run.table("scors")


def test_movers_of_a_run_without_losses_are_refused(study, tmp_path, stemma_command):
    settings = {"prior": {"draws": 0, "refits": 0, "floors": 0}}
    study("run", corpora=("a",), checkpoints=("base", "tuned"), measures=settings, code=0)
    ran = stemma_command("show", tmp_path / "run", "movers")
    assert (ran.code, ran.out) == (2, "")
    assert "has no movers" in ran.err

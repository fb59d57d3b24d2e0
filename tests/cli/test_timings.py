"""`--timings`: seconds by stage, kind of fact and step."""

import pytest

from stemmatics.cli import timings as module
from stemmatics.cli.timings import Timings, print_timings


@pytest.fixture
def clock(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_seconds_go_to_the_step_or_fact_that_took_them(clock):
    timings = Timings()
    for step, seconds in (("pinning base", 1.0), ("reading a", 2.0), ("moving house", 0.5)):
        timings.step(step)
        clock[0] += seconds
    timings.event({"plan": []})
    clock[0] += 11.0
    for probe, label, seconds in (("train", "base", 6.0), ("alter", "hot", 1.0), ("score", "a", 4.0)):
        timings.event({"key": label, "probe": probe, "label": label, "seconds": seconds})
    timings.event({"key": "a", "probe": "score", "label": "b", "done": 1, "total": 2, "unit": "tokens"})
    timings.event({"key": "b", "probe": "score", "label": "b", "seconds": 0.25})
    timings.event({"kind": "load", "label": "base", "spent": 1.5})
    for step, seconds in (("estimating loss", 3.0), ("estimating prior", 4.0), ("writing the page", 5.0)):
        timings.step(step)
        clock[0] += seconds
    assert timings.rows() == [
        {"stage": "load base", "seconds": 1.5, "times": 1},
        {"stage": "train base", "seconds": 6.0},
        {"stage": "alter hot", "seconds": 1.0},
        {"stage": "all train", "seconds": 6.0},
        {"stage": "all alter", "seconds": 1.0},
        {"stage": "all score", "seconds": 4.25},
        {"stage": "all pinning", "seconds": 3.0},
        {"stage": "all other", "seconds": 0.5},
        {"stage": "all estimates", "seconds": 7.0},
        {"stage": "all report", "seconds": 5.0},
        {"stage": "total", "seconds": 26.5},
    ]


def test_rows_may_have_more_columns(capsys):
    print_timings([{"stage": "score a", "seconds": 1.26, "loads": 2}, {"stage": "total", "seconds": 10.0}])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["stage", "seconds", "loads"], ["score", "a", "1.3", "2"], ["total", "10.0"]]


@pytest.mark.parametrize("command", ["run", "compare", "demo"])
def test_the_commands_that_compute_have_the_option(command, stemma_command):
    assert "--timings" in stemma_command(command, "--help").out


def test_a_comparison_prints_its_timings(tiny, tmp_path, stemma_command):
    words = ("compare", tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--only", "loss")
    ran = stemma_command(*words, "--out", tmp_path / "run", "--timings")
    assert ran.code == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines()[:20]]
    assert lines[0] == ["stage", "seconds", "times", "tokens"]
    for stage in (["load", "base"], ["all", "score"], ["all", "estimates"], ["total"]):
        assert any(line[: len(stage)] == stage for line in lines), stage
    rows = stemma_command(*words, "--out", tmp_path / "again", "--timings", "--json").json()["timings"]
    seconds = {row["stage"]: row["seconds"] for row in rows}
    assert {"all weights", "all corpus", "all score", "all pinning", "all estimates", "all report"} <= set(
        seconds
    )
    assert list(seconds)[-1] == "total"
    # one worker: what was timed adds up to most of the time, and to no more; loads and passes are parts of it
    sums = sum(spent for stage, spent in seconds.items() if stage.startswith("all "))
    assert 0.5 * seconds["total"] < sums <= seconds["total"]
    assert "timings" not in stemma_command(*words, "--out", tmp_path / "again", "--json").json()

"""Progress on a pipe: a line a fact, and nothing about what every run does."""

import io

from rich.console import Console
from rich.progress import Progress, TextColumn

from stemmatics.cli.progress import Watcher


def watched(*, terminal):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100)
    progress = Progress(
        TextColumn("{task.description}"), console=console, transient=True, disable=not terminal
    )
    with progress:
        watcher = Watcher(progress)
        watcher.step("reading text")
        watcher.step("pinning base")
        watcher.step("recovery: recipe nano, about 2 minutes")
        shown = [task.description for task in progress.tasks]
        plan = [{"key": "k", "probe": "score", "label": "base on text", "num_tokens": 10, "flops": 5.0}]
        watcher({"plan": plan})
        after = [task.description for task in progress.tasks]
        watcher({"key": "k", "probe": "score", "label": "base on text", "seconds": 1.5})
        watcher.step("estimating loss")
    return stream.getvalue(), shown, after


def test_on_a_pipe_there_is_a_line_a_fact_and_one_for_what_is_decided():
    text, _, _ = watched(terminal=False)
    assert [line.split(",")[0] for line in text.splitlines()] == [
        "recovery: recipe nano",
        "[1/1] score base on text 1.5 s; 0.00 Mtokens left",
    ]


def test_on_a_terminal_steps_share_a_line_that_goes_when_facts_begin():
    _, shown, after = watched(terminal=True)
    assert shown == ["pinning base"]
    assert after == ["all"]

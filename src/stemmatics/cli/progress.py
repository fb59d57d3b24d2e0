"""Progress on stderr: what is running, how far it is, and the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from stemmatics.cli.timings import Timings, is_routine


class Remaining:
    """What a whole run still has to do: tokens, and the time that they take at the speed so far."""

    def __init__(self, costs: Mapping[str, tuple[float, float]]) -> None:
        self._costs = dict(costs)
        self._done = 0.0
        self._started = time.monotonic()

    def done(self, key: str) -> None:
        """A fact is done."""
        _, flops = self._costs.pop(key, (0.0, 0.0))
        self._done += flops

    def text(self) -> str:
        """Tokens left and, once a fact is done, the time left."""
        tokens = sum(tokens for tokens, _ in self._costs.values())
        text = f"{tokens / 1e6:.2f} Mtokens left"
        if not self._done:
            return text
        flops = sum(flops for _, flops in self._costs.values())
        minutes = (time.monotonic() - self._started) * flops / self._done / 60
        return f"{text}, about {minutes:.1f} min"


class Watcher:
    """Listens to events and shows what is running, how far it is and how long it will take.

    ``timings`` collects what everything took.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._overall: TaskID | None = None
        self._step: TaskID | None = None
        self._num_facts = 0
        self._num_done = 0
        self._remaining = Remaining({})
        self.timings = Timings()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event from a probe or from the scheduler."""
        self.timings.event(event)
        if "plan" in event:
            if self._step is not None:
                self._progress.remove_task(self._step)
                self._step = None
            self._num_facts = total = len(event["plan"])
            self._remaining = Remaining(
                {row["key"]: (row["num_tokens"], row["flops"]) for row in event["plan"]}
            )
            unit = f"facts, {self._remaining.text()}"
            self._overall = self._progress.add_task("all", total=total, unit=unit) if total else None
        elif "seconds" in event:
            self._finish(event)
        elif event.get("kind") in {"warning", "out_of_memory"}:
            self._progress.console.print(_warning(event), style="yellow", markup=False)
        elif "done" in event:
            self._advance(event)

    def step(self, what: str) -> None:
        """A short piece of work whose progress is not measured.

        What every run does between facts (reading, pinning, estimating, writing) is shown in one line that
        changes, and not at all where lines stay.
        """
        self.timings.step(what)
        if not is_routine(what):
            self._progress.console.print(what, style="dim", highlight=False, markup=False)
        elif self._step is None:
            self._step = self._progress.add_task(what, total=1, unit="")
        else:
            self._progress.update(self._step, description=what)

    def _finish(self, event: Mapping[str, Any]) -> None:
        """A fact is done, with what it took: probe, label, seconds."""
        self._num_done += 1
        if event["key"] in self._tasks:
            self._progress.remove_task(self._tasks.pop(event["key"]))
        self._remaining.done(event["key"])
        if self._overall is not None:
            self._progress.advance(self._overall)
            self._progress.update(self._overall, unit=f"facts, {self._remaining.text()}")
        if not self._progress.console.is_terminal:
            count = f"[{self._num_done}/{self._num_facts}]"
            time_spent = f"{event['seconds']:.1f} s; {self._remaining.text()}"
            line = f"{count} {event['probe']} {event['label']} {time_spent}"
            self._progress.console.print(line, highlight=False, markup=False)

    def _advance(self, event: Mapping[str, Any]) -> None:
        key = event["key"]
        if key not in self._tasks:
            name = f"{event['probe']} {event['label']}"
            self._tasks[key] = self._progress.add_task(name, total=event["total"], unit=event["unit"])
        self._progress.update(self._tasks[key], completed=event["done"], total=event["total"])


def _warning(event: Mapping[str, Any]) -> str:
    text = {
        "out_of_memory": f"out of memory: continuing with batches of {event.get('token_budget')} tokens",
        "warning": f"warning: {event.get('flag')}",
    }
    return f"{event.get('label', '')}: {text[event['kind']]}"


@contextmanager
def watching() -> Iterator[Watcher]:
    """Progress on stderr; plain lines where stderr is not a terminal."""
    console = Console(file=sys.stderr)
    progress = Progress(
        TextColumn("{task.description}", markup=False),  # a name may look like markup
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield Watcher(progress)

"""What commands print: JSON alone on stdout, tables that fit, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

JSON_HELP = "Print one JSON document on stdout and nothing else."


def print_json(value: Any) -> None:
    """One JSON document; NaN and infinities become null."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Left:
    """What a whole run still has to do: tokens, and the time that they take at the speed so far."""

    def __init__(self, costs: Mapping[str, tuple[float, float]]) -> None:
        self._costs = dict(costs)
        self._done = 0.0
        self._started = time.monotonic()

    def done(self, key: str) -> None:
        """A fact is no longer left."""
        _, flops = self._costs.pop(key, (0.0, 0.0))
        self._done += flops

    def text(self) -> str:
        """Tokens left and, once something has been reckoned, time left."""
        tokens, flops = (sum(cost[place] for cost in self._costs.values()) for place in (0, 1))
        said = f"{tokens / 1e6:.2f} Mtokens left"
        if not self._done:
            return said
        minutes = (time.monotonic() - self._started) * flops / self._done / 60
        return f"{said}, about {minutes:.1f} min"


class Watcher:
    """Listens to events and shows what is running, how far it is and how long it will take."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._overall: TaskID | None = None
        self._num_facts = 0
        self._left = Left({})
        self.seconds: list[tuple[str, str, float]] = []

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event from a probe or from the scheduler."""
        if "plan" in event:
            self._num_facts = total = len(event["plan"])
            self._left = Left({row["key"]: (row["num_tokens"], row["flops"]) for row in event["plan"]})
            unit = f"facts, {self._left.text()}"
            self._overall = self._progress.add_task("all", total=total, unit=unit) if total else None
        elif "seconds" in event:
            self._finish(event)
        elif event.get("kind") in {"warning", "out_of_memory"}:
            self._progress.console.print(_warning(event), style="yellow")
        elif "done" in event:
            self._move(event)

    def step(self, what: str) -> None:
        """A short piece of work without a measure of its own."""
        self._progress.console.print(what, style="dim", highlight=False)

    def _finish(self, event: Mapping[str, Any]) -> None:
        """A fact is done, with what it took: probe, label, seconds."""
        self.seconds.append((event["probe"], event["label"], event["seconds"]))
        if event["key"] in self._tasks:
            self._progress.remove_task(self._tasks.pop(event["key"]))
        self._left.done(event["key"])
        if self._overall is not None:
            self._progress.advance(self._overall)
            self._progress.update(self._overall, unit=f"facts, {self._left.text()}")
        if not self._progress.console.is_terminal:
            place = f"[{len(self.seconds)}/{self._num_facts}]"
            spent = f"{event['seconds']:.1f} s; {self._left.text()}"
            line = f"{place} {event['probe']} {event['label']} {spent}"
            self._progress.console.print(line, highlight=False, markup=False)

    def _move(self, event: Mapping[str, Any]) -> None:
        key = event["key"]
        if key not in self._tasks:
            name = f"{event['probe']} {event['label']}"
            self._tasks[key] = self._progress.add_task(name, total=event["total"], unit=event["unit"])
        self._progress.update(self._tasks[key], completed=event["done"], total=event["total"])


def _warning(event: Mapping[str, Any]) -> str:
    what = {
        "out_of_memory": f"out of memory: going on with batches of {event.get('token_budget')} tokens",
        "warning": f"warning: {event.get('flag')}",
    }
    return f"{event.get('label', '')}: {what[event['kind']]}"


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Watcher]:
    """Progress on stderr; plain lines where stderr is no terminal."""
    console = Console(file=sys.stderr, quiet=quiet)
    progress = Progress(
        TextColumn("{task.description}"),
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

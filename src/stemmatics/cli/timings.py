"""Seconds by stage, for ``--timings``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.study.readings import Readings

# steps between facts, by the first word with which the engine announces them
_STEPS = {"pinning": "pinning", "reading": "pinning", "estimating": "estimates", "writing": "report"}
# kinds of facts that are listed one by one: each is a training of its own
_LISTED = ("train", "alter")


def is_routine(step: str) -> bool:
    """Whether a step is one that every run takes between facts."""
    return step.partition(" ")[0] in _STEPS


class Timings:
    """Collects what facts and steps took. With several workers the facts add up to more than the total."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._step: tuple[str, float] | None = None
        self._facts: list[tuple[str, str, float]] = []
        self._steps: dict[str, float] = {}
        self._readings = Readings()

    def step(self, what: str) -> None:
        """A step begins, and with it the one before ends."""
        self._end_step()
        self._step = (_STEPS.get(what.partition(" ")[0], "other"), time.monotonic())

    def event(self, event: Mapping[str, Any]) -> None:
        """Facts begin (``plan``), or one of them is done (``seconds``)."""
        self._readings.event(event)
        if "plan" in event:
            self._end_step()
        elif "seconds" in event:
            self._facts.append((event["probe"], event["label"], event["seconds"]))

    def rows(self) -> list[dict[str, Any]]:
        """Rows for loads and passes, stages that train, kinds of facts and steps, and one for the whole."""
        self._end_step()
        listed = [
            {"stage": f"{probe} {label}", "seconds": seconds}
            for probe, label, seconds in self._facts
            if probe in _LISTED
        ]
        kinds: dict[str, float] = {}
        for probe, _, seconds in self._facts:
            kinds[probe] = kinds.get(probe, 0.0) + seconds
        sums = [
            {"stage": f"all {name}", "seconds": seconds} for name, seconds in {**kinds, **self._steps}.items()
        ]
        # part of the facts' seconds, and so no part of the sum
        readings = self._readings.rows()
        return [*readings, *listed, *sums, {"stage": "total", "seconds": time.monotonic() - self._started}]

    def _end_step(self) -> None:
        if self._step is not None:
            name, started = self._step
            self._steps[name] = self._steps.get(name, 0.0) + time.monotonic() - started
            self._step = None


def print_timings(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of ``--timings``: the columns are those of the rows, seconds to a tenth."""
    from stemmatics.cli.tables import print_rows

    columns = list(dict.fromkeys(name for row in rows for name in row))
    shown = [{name: _text(row.get(name)) for name in columns} for row in rows]
    print_rows(shown, columns)


def _text(value: Any) -> str:
    """Seconds to a tenth; nothing where a row has no such value."""
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)

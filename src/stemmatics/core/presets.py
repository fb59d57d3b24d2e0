"""Presets: functions that return a ready study, each with its own name and a line about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stemmatics.core.stemma import Stemma


@dataclass(frozen=True)
class Preset:
    """A ready study, registered by its name under the entry points ``stemmatics.presets``.

    ``line`` says in one line what the study is, for ``stemma init --list``. Calling a preset builds the
    study; without arguments it is the one that ``stemma init --preset NAME`` writes.
    """

    name: str
    line: str
    build: Callable[..., Stemma]

    def __call__(self, *args: Any, **options: Any) -> Stemma:
        """The study."""
        return self.build(*args, **options)


def preset(name: str, line: str) -> Callable[[Callable[..., Stemma]], Preset]:
    """Make a preset of the function below it."""
    return lambda build: Preset(name, line, build)

"""Probes, measures and generators are found by entry points, ours like anybody's."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from stemmatics.core.errors import UserError

_KINDS = {"probes": "probe", "measures": "measure", "generators": "generator"}


@cache
def _found(kind: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"stemmatics.{kind}")}


def names(kind: str) -> list[str]:
    """Names installed under ``stemmatics.KIND`` (probes, measures, generators), sorted."""
    return sorted(_found(kind))


def find(kind: str, name: str) -> Any:
    """The object that an installed package registered. Raises UserError where there is none."""
    found = _found(kind)
    if name not in found:
        close = difflib.get_close_matches(name, list(found), n=1)
        hint = (
            f"Did you mean {close[0]!r}" if close else f"Installed are: {', '.join(sorted(found)) or 'none'}"
        )
        raise UserError(
            f"there is no {_KINDS[kind]} called {name!r}",
            "no installed package has registered it",
            hint,
            code=2,
        )
    return found[name].load()

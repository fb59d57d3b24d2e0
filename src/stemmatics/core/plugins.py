"""Kinds of facts, probes, measures, presets and generators are registered as entry points, ours too."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from stemmatics.core.errors import UserError

_SINGULAR = {
    "facts": "kind of fact",
    "probes": "probe",
    "measures": "measure",
    "presets": "preset",
    "generators": "generator",
}


@cache
def _registered(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"stemmatics.{group}")}


def names(group: str) -> list[str]:
    """Names registered under ``stemmatics.GROUP`` (facts, probes, measures, presets, generators), sorted."""
    return sorted(_registered(group))


def entries(group: str) -> list[EntryPoint]:
    """The entry points of a group by name, since installers keep no order; nothing is imported."""
    return [_registered(group)[name] for name in names(group)]


def find(group: str, name: str) -> Any:
    """The object that an installed package registered. Raises UserError if there is none."""
    registered = _registered(group)
    if name not in registered:
        close = difflib.get_close_matches(name, list(registered), n=1)
        installed = ", ".join(sorted(registered)) or "none"
        raise UserError(
            f"unknown {_SINGULAR[group]} {name!r}",
            "no installed package registers it",
            f"Did you mean {close[0]!r}?" if close else f"Installed: {installed}",
            code=2,
        )
    return _load(group, name)


@cache
def _load(group: str, name: str) -> Any:
    return _registered(group)[name].load()

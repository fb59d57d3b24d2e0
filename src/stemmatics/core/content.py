"""The content of a report: filled by measures and the study, rendered by `report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from stemmatics.core.results import Results, Sentence


class Named(str):  # noqa: SLOT000 - a str can't have slots with content
    """A title with names in it, ``Named("Loss on {corpus}", corpus="c4")``: a string like any other.

    A page marks the names as names, so that what is in them (digits, backticks, braces) is not read as prose.
    """

    template: str
    names: Mapping[str, str]

    def __new__(cls, template: str, **names: str) -> Self:
        """The title with its names filled in."""
        title = super().__new__(cls, template.format(**names))
        title.template, title.names = template, names
        return title

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        """A copy is made from template and names."""
        return (self.template,), dict(self.names)


@dataclass(frozen=True)
class Table:
    """Column names and rows; a cell is a Claim, a string, a whole number or None."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification with its caption."""

    name: str
    title: str
    caption: str
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """One measure's part of the page."""

    name: str
    title: str
    question: str
    sentences: Sequence[Sentence] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    failures: Sequence[str] = ()


@dataclass(frozen=True)
class Node:
    """A checkpoint in the stemma."""

    name: str
    parent: str | None
    regime: str
    family: str
    made_here: bool
    note: str = ""


@dataclass(frozen=True)
class Content:
    """A whole report. ``summary`` sentences come first on the page and in the terminal.

    ``notices`` are oddities of checkpoints that a reader of the numbers must know.
    """

    title: str
    summary: Sequence[Sentence]
    sections: Sequence[Section]
    nodes: Sequence[Node]
    results: Results
    provenance: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[str] = ()
    notices: Sequence[str] = ()

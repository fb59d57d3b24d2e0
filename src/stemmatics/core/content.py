"""The content of a report: filled by measures and the study, rendered by `report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from stemmatics.core.results import Claim, Results, Sentence

Mark = Literal["clear", "unclear", "not measured"]
CLEAR: Mark = "clear"
UNCLEAR: Mark = "unclear"
NOT_MEASURED: Mark = "not measured"
Direction = Literal["worse", "better", "neutral"]


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
class Answer:
    """What a measure says of one descendant: a cell of the first screen.

    ``word`` is the verdict in a word or two; ``number`` the value, whose interval stands behind it.
    ``effect`` is the minimum detectable effect, printed where the answer is unclear; ``floor`` the value of
    an estimate whose interval is drawn as a grey band; ``reason`` says why nothing was measured.
    ``before`` is the number of an earlier run, where two runs are compared.
    """

    base: str
    descendant: str
    word: str
    number: Claim | None = None
    mark: Mark = CLEAR
    direction: Direction = "neutral"
    effect: Claim | None = None
    floor: Claim | None = None
    reason: str = ""
    before: Claim | None = None


@dataclass(frozen=True)
class Column:
    """A question of the first screen, with the answer for each descendant that was asked.

    ``caption`` gives unit and comparison, ``evidence`` the table of the report that a click leads to, and
    ``how`` what would measure a descendant that has no answer. ``bars``: values share a common axis with a
    line at ``null``.
    """

    name: str
    title: str
    caption: str
    answers: Sequence[Answer]
    evidence: str = ""
    how: str = ""
    bars: bool = False
    null: float = 0.0


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
    """A whole report. ``columns`` and ``summary`` are the first screen of the page and of the terminal.

    ``pairs`` are base and descendant in declared order: a row each.
    ``notices`` are oddities of checkpoints that a reader of the numbers must know. ``runs`` are the names of
    two runs that are compared, by the value of ``run`` in the subject of their results.
    """

    title: str
    summary: Sequence[Sentence]
    sections: Sequence[Section]
    nodes: Sequence[Node]
    results: Results
    provenance: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[str] = ()
    notices: Sequence[str] = ()
    columns: Sequence[Column] = ()
    pairs: Sequence[tuple[str, str]] = ()
    runs: Mapping[str, str] = field(default_factory=dict)

"""Printed numbers: claims, intervals and names as HTML or text, and a record of the claims printed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any

from markupsafe import Markup, escape

from stemmatics.core.content import Named, Table
from stemmatics.core.results import NOT_AVAILABLE, Category, Claim, Estimate, Refusal, Result, Sentence

Cell = Claim | str | int | None


@dataclass(frozen=True)
class Interval:
    """The two claims printed in brackets behind a value."""

    lo: Claim
    hi: Claim


def interval_of(cell: Cell, row: Sequence[Cell], results: Mapping[str, Result]) -> Interval | None:
    """The interval to print behind a cell.

    None where there is none to print: the cell isn't a value, the value is exact or unknown, or the
    row prints the ends in columns of their own.
    """
    if not isinstance(cell, Claim) or cell.field != "value":
        return None
    has_own_columns = any(
        isinstance(other, Claim) and other.result == cell.result and other.field in {"lo", "hi"}
        for other in row
    )
    result = results[cell.result]
    if not isinstance(result, Estimate) or result.method == "exact":
        return None
    if has_own_columns or cell.text(results) == NOT_AVAILABLE:
        return None
    # a negative scale swaps the ends
    low, high = ("lo", "hi") if cell.scale >= 0 else ("hi", "lo")
    return Interval(lo=replace(cell, field=low), hi=replace(cell, field=high))


def is_number_column(rows: Sequence[Sequence[Cell]], column: int, results: Mapping[str, Result]) -> bool:
    """Whether a column holds numbers only, so that it is set to the right and never wrapped."""
    cells = [row[column] for row in rows]
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(
        isinstance(cell, int) or (isinstance(cell, Claim) and not isinstance(results[cell.result], Category))
        for cell in known
    )


def interval_columns(table: Table, results: Mapping[str, Result]) -> list[bool]:
    """For each column, whether any of its cells has an interval to print."""
    return [
        any(interval_of(row[column], row, results) for row in table.rows)
        for column in range(len(table.columns))
    ]


def brackets(table: Table, results: Mapping[str, Result]) -> list[Sentence]:
    """Sentences on the brackets in a table: level, method and unit, one for each kind."""
    kinds: dict[tuple[float, str, str], str] = {}
    for row in table.rows:
        for cell in row:
            if isinstance(cell, Claim) and interval_of(cell, row, results):
                estimate = results[cell.result]
                assert isinstance(estimate, Estimate), "only estimates have intervals"
                if math.isnan(estimate.lo) and math.isnan(estimate.hi):
                    continue
                kinds.setdefault((estimate.level, estimate.method, estimate.unit), estimate.id)
    return [
        Sentence(
            "[low, high]: {level}% interval, {method}, by {unit}.",
            {"level": Claim(estimate, "level", "{:g}", 100.0), "method": method, "unit": unit},
        )
        for (_, method, unit), estimate in kinds.items()
    ]


def literal(text: str) -> Markup:
    """Prose as HTML. Text in `backticks` becomes code: a name or a command, not a measured number."""
    if isinstance(text, Named):
        filled = [
            literal(prose) if field is None else literal(prose) + name(text.names[field])
            for prose, field, _, _ in Formatter().parse(text.template)
        ]
        return Markup("").join(filled)
    pieces = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece)
        for index, piece in enumerate(pieces)
    )


def name(text: str) -> Markup:
    """A name from the user's files; it may contain digits."""
    return Markup('<span class="name">{}</span>').format(text)


class Printer:
    """Renders a page's content as HTML and records every claim that it prints."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self.results = results
        self.times: Counter[str] = Counter()
        self._claims: dict[str, Claim] = {}

    @property
    def claims(self) -> list[Claim]:
        """Every claim printed so far, once each, in the order of the page."""
        return list(self._claims.values())

    def number(self, claim: Claim) -> Markup:
        """A claim in an element that names it."""
        self._claims.setdefault(claim.id, claim)
        self.times[claim.id] += 1
        return Markup('<span data-claim="{}">{}</span>').format(claim.id, claim.text(self.results))

    def sentence(self, sentence: Sentence) -> Markup:
        """Prose with its numbers and names filled in."""
        pieces: list[Markup] = []
        for text, field, _, _ in Formatter().parse(sentence.text):
            pieces.append(literal(text))
            if field is not None:
                value = sentence.values[field]
                pieces.append(self.number(value) if isinstance(value, Claim) else name(value))
        return Markup("").join(pieces)

    def cell(self, cell: Cell) -> Markup:
        """A table's cell: a claim, a whole number, a name, or n/a."""
        if cell is None:
            return Markup('<span class="unknown">{}</span>').format(NOT_AVAILABLE)
        if isinstance(cell, int):
            return Markup('<span data-count="{}">{}</span>').format(cell, f"{cell:,}")
        if isinstance(cell, str):
            return name(cell)
        if not isinstance(cell, Claim):
            # a bare float could not be verified
            message = f"a table's cell is a Claim, a string, a whole number or None; not {cell!r}"
            raise TypeError(message)
        return self.number(cell)

    def interval(self, cell: Cell, row: Sequence[Cell]) -> Markup:
        """The interval behind a cell as [lo, hi]; empty where there is none."""
        interval = interval_of(cell, row, self.results)
        if interval is None:
            return Markup("")
        return Markup("[{}, {}]").format(self.number(interval.lo), self.number(interval.hi))

    def brackets(self, table: Table) -> list[Markup]:
        """Sentences on the brackets in a table, one for each kind of interval."""
        return [self.sentence(sentence) for sentence in brackets(table, self.results)]


def plain_cell(cell: Cell, results: Mapping[str, Result]) -> str:
    """A cell as text, without its interval."""
    if cell is None:
        return NOT_AVAILABLE
    if isinstance(cell, Claim):
        return cell.text(results)
    return f"{cell:,}" if isinstance(cell, int) else cell


def plain_interval(interval: Interval, results: Mapping[str, Result]) -> str:
    """An interval as text."""
    return f"[{interval.lo.text(results)}, {interval.hi.text(results)}]"


def exact_number(claim: Claim, results: Mapping[str, Result]) -> Any:
    """A claim's number in full precision, in printed units; NaN where it is unknown or refused."""
    result = results[claim.result]
    if isinstance(result, Refusal):
        return math.nan
    value = getattr(result, claim.field)
    return value * claim.scale if isinstance(value, float) else value

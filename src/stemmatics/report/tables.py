"""Tables as CSV in full precision, and as Rich tables that fit a terminal."""

from __future__ import annotations

import csv
import io
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from stemmatics.core.content import Content, Table
from stemmatics.core.results import NOT_AVAILABLE, Claim, Result
from stemmatics.report.printed import (
    brackets,
    exact_number,
    interval_columns,
    interval_of,
    is_number_column,
    plain_cell,
    plain_interval,
)
from stemmatics.store.files import write_bytes

_GAP = 2
# the least width of a column of words
_NARROWEST_WORDS = 10


def csv_text(table: Table, results: Mapping[str, Result]) -> str:
    """A table as CSV (RFC 4180).

    A column of claims becomes ``NAME`` (full precision, in printed units), ``NAME lo`` and ``NAME hi``
    where the page prints intervals, and ``NAME text`` (as printed). Unknown numbers are ``n/a``.
    """
    has_claims = [
        any(isinstance(row[column], Claim) for row in table.rows) for column in range(len(table.columns))
    ]
    has_intervals = interval_columns(table, results)
    stream = io.StringIO()
    writer = csv.writer(stream)
    header: list[str] = []
    for column, title in enumerate(table.columns):
        header.append(title)
        header += [f"{title} lo", f"{title} hi"] if has_intervals[column] else []
        header += [f"{title} text"] if has_claims[column] else []
    writer.writerow(header)
    for row in table.rows:
        cells: list[str] = []
        for column, cell in enumerate(row):
            interval = interval_of(cell, row, results)
            cells.append(_exact_text(cell, results))
            if has_intervals[column]:
                ends = [interval.lo, interval.hi] if interval else [None, None]
                cells += [_exact_text(end, results) for end in ends]
            if has_claims[column]:
                cells.append(plain_cell(cell, results))
        writer.writerow(cells)
    return stream.getvalue()


def write_tables(content: Content, folder: Path) -> list[Path]:
    """Each table of a report as ``FOLDER/MEASURE-TABLE-CORPUS.csv``."""
    from stemmatics.report.page import part_slug

    paths: list[Path] = []
    for section in content.sections:
        for table in section.tables:
            path = _free(folder, part_slug(section.name, table.name), paths)
            write_bytes(path, csv_text(table, content.results).encode())
            paths.append(path)
    return paths


def _free(folder: Path, stem: str, existing: Sequence[Path]) -> Path:
    """A path that no other table has, whatever the case of its letters: a number is added where one has."""
    lowered = {path.name.casefold() for path in existing}
    names = itertools.chain([f"{stem}.csv"], (f"{stem}-{number}.csv" for number in itertools.count(2)))
    return folder / next(name for name in names if name.casefold() not in lowered)


def _exact_text(cell: Any, results: Mapping[str, Result]) -> str:
    value = exact_number(cell, results) if isinstance(cell, Claim) else cell
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOT_AVAILABLE
    return repr(value) if isinstance(value, float) else str(value)


@dataclass(eq=False)
class _Column:
    """A column on a terminal: its cells as text, and its least and largest useful width."""

    title: str
    cells: Sequence[str]
    is_number: bool
    has_interval: bool

    @property
    def worth(self) -> int:
        """Columns of low worth are left out first: numbers without interval, then words."""
        return 2 if self.has_interval else 0 if self.is_number else 1

    @property
    def least(self) -> int:
        if self.is_number:
            lines = [line for cell in self.cells for line in cell.splitlines()]
            words = self.title.split()
            return max(map(len, [*lines, *words]), default=1)
        return min(self.most, _NARROWEST_WORDS)

    def wrapped(self, width: int) -> Sequence[str]:
        """The cells, with words wrapped, preferably at spaces and hyphens; numbers are unchanged."""
        return self.cells if self.is_number else [textwrap.fill(cell, width) for cell in self.cells]

    @property
    def most(self) -> int:
        lines = [line for cell in self.cells for line in cell.splitlines()]
        return max(map(len, [*lines, self.title]), default=1)


def rich_table(table: Table, results: Mapping[str, Result], width: int = 80) -> RichTable:
    """A table for a terminal of ``width`` columns.

    If it is too wide, intervals go to a second line, then words wrap, then whole columns are left out
    and named below the table: those without intervals first, never the first column. Numbers are never cut.
    """
    columns = _terminal_columns(table, results, " ")
    if _least(columns) > width or sum(c.most for c in columns) + _GAP * (len(columns) - 1) > width:
        columns = _terminal_columns(table, results, "\n")
    shown = list(columns)
    while len(shown) > 1 and _least(shown) > width:
        # the last of the least worth; words stay where rows could not be distinguished without them
        spare = [
            column for column in reversed(shown[1:]) if column.is_number or _rows_stay_distinct(shown, column)
        ]
        shown.remove(min(spare or shown[1:], key=lambda column: column.worth))
    widths = _widths(shown, width)
    intervals_shown = any(column.has_interval for column in shown)
    notes = [sentence.plain(results) for sentence in brackets(table, results)] if intervals_shown else []
    notes += [table.note] if table.note else []
    missing = [column.title for column in columns if column not in shown]
    if missing:
        notes.append(f"Not shown here: {', '.join(missing)}.")
    drawn = RichTable(
        title=Text(table.title),
        title_justify="left",
        title_style="bold",
        caption=Text(" ".join(notes)) if notes else None,
        caption_justify="left",
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        width=min(width, max(sum(widths) + _GAP * (len(widths) - 1), min(width, len(table.title)))),
    )
    for column, column_width in zip(shown, widths, strict=True):
        drawn.add_column(
            Text(column.title),
            width=column_width,
            justify="right" if column.is_number else "left",
            overflow="fold",
            vertical="top",
        )
    wrapped = [column.wrapped(column_width) for column, column_width in zip(shown, widths, strict=True)]
    for row in zip(*wrapped, strict=True):
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def _terminal_columns(table: Table, results: Mapping[str, Result], between: str) -> list[_Column]:
    columns = []
    has_intervals = interval_columns(table, results)
    for index, title in enumerate(table.columns):
        cells = []
        for row in table.rows:
            interval = interval_of(row[index], row, results)
            ends = between + plain_interval(interval, results) if interval else ""
            cells.append(plain_cell(row[index], results) + ends)
        columns.append(
            _Column(title, cells, is_number_column(table.rows, index, results), has_intervals[index])
        )
    return columns


def _rows_stay_distinct(columns: Sequence[_Column], without: _Column) -> bool:
    """Whether the words of the other columns distinguish the same rows as with this one."""
    words = [column.cells for column in columns if not column.is_number]
    fewer = [column.cells for column in columns if not column.is_number and column is not without]
    return len(set(zip(*fewer, strict=True))) == len(set(zip(*words, strict=True)))


def _least(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The least width of each column, plus the remaining space for those that need the least more."""
    widths = [column.least for column in columns]
    remaining = width - _least(columns)
    # words first: a number column needs more space for its title only
    by_shortage = sorted(
        enumerate(columns), key=lambda item: (item[1].is_number, item[1].most - item[1].least)
    )
    for index, column in by_shortage:
        more = max(0, min(remaining, column.most - column.least))
        widths[index] += more
        remaining -= more
    return widths


def plain_summary(content: Content) -> list[str]:
    """The summary for a terminal, one line per sentence, then notices and failures."""
    sentences = [sentence.plain(content.results) for sentence in content.summary]
    failures = [
        *content.failures,
        *(f"{section.title}: {failure}" for section in content.sections for failure in section.failures),
    ]
    notices = [f"note: {notice}" for notice in content.notices]
    return [*sentences, *notices, *(f"failed: {failure}" for failure in failures)]

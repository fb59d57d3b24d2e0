"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from stemmatics.core.content import Content


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Plain rows; words wrap, numbers do not."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = all(_is_number(row.get(column)) for row in rows) and bool(rows)
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    Console(highlight=False, markup=False).print(table)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value == "n/a" or value.lstrip("+-").replace(".", "", 1).isdigit()
    return isinstance(value, int | float) or value is None


def _text(value: Any) -> str:
    return "n/a" if value is None else str(value)


def print_table(shown: Any) -> None:
    """A table of a report, with the results that its cells refer to."""
    from stemmatics.report.tables import rich_table

    console = Console(highlight=False)
    console.print(rich_table(shown.table, shown.results, width=min(console.width, 120)))


# a first screen is read beside an editor, too
_WIDEST = 100


def print_first_screen(content: Content) -> bool:
    """A row a descendant, a column a question, in at most 100 columns; False where no pair was measured."""
    from stemmatics.report.first_screen import LEGEND, rich_first_screen

    console = Console(highlight=False)
    tables = rich_first_screen(content, width=min(console.width, _WIDEST))
    for table in tables:
        console.print(table)
    if tables:
        console.print(LEGEND, style="dim", soft_wrap=False, width=min(console.width, _WIDEST))
    return bool(tables)


def print_summary_table(outcome: Any) -> None:
    """The first table of each section that is called ``MEASURE/summary`` or ``MEASURE/summary/CORPUS``."""
    from stemmatics.report.tables import rich_table

    console = Console(highlight=False)
    for section in outcome.content.sections:
        table = next((table for table in section.tables if table.name.split("/")[1:2] == ["summary"]), None)
        if table is not None:
            console.print(rich_table(table, outcome.content.results, width=min(console.width, 120)))

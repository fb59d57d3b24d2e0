"""Tables from elsewhere: CSV, Parquet, JSON, JSON lines. Every error names its row and column."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError

KINDS = (".csv", ".parquet", ".json", ".jsonl")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length. Rows are counted from 1, without the header.

    ``row_numbers`` are those of the file where the table is a part of it.
    """

    name: str
    columns: Mapping[str, Sequence[Any]]
    row_numbers: Sequence[int] | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def has(self, column: str) -> bool:
        """Whether the table has a column."""
        return column in self.columns

    def require(self, columns: Iterable[str], *, fix: str = "") -> None:
        """Raise UserError if the table has no rows or lacks a column."""
        missing = [column for column in columns if column not in self.columns]
        if missing:
            present = ", ".join(self.columns) or "none"
            raise UserError(
                f"{self.name} has no column {', '.join(map(repr, missing))}",
                f"its columns are {present}",
                fix or "Rename or add the columns; docs/analyse.md describes them",
                code=2,
            )
        if not self.num_rows:
            raise UserError(
                f"{self.name} has no rows",
                "there is nothing to estimate",
                "Add rows below the header",
                code=2,
            )

    def rows(self, keep: npt.NDArray[np.bool_]) -> Table:
        """The rows that are kept; errors go on naming them by their numbers in the file."""
        numbers = self.row_numbers or range(1, self.num_rows + 1)
        columns = {
            name: [value for value, kept in zip(values, keep, strict=True) if kept]
            for name, values in self.columns.items()
        }
        return Table(self.name, columns, [number for number, kept in zip(numbers, keep, strict=True) if kept])

    def is_empty(self, column: str) -> npt.NDArray[np.bool_]:
        """Which cells of a column hold nothing."""
        return np.array([_is_empty(value) for value in self.columns[column]], dtype=np.bool_)

    def labels(self, column: str, *, required: bool = True) -> npt.NDArray[np.str_]:
        """A column of names. Raises UserError for an empty one; what is not required may be missing."""
        if not required and not self.has(column):
            return np.full(self.num_rows, "", dtype=np.str_)
        names = ["" if _is_empty(value) else str(value).strip() for value in self.columns[column]]
        for row, name in enumerate(names, start=1):
            if not name and required:
                raise self._bad(row, column, "is empty", "a row without a name can't be grouped")
        return np.asarray(names, dtype=np.str_)

    def numbers(
        self, column: str, *, least: float = -math.inf, required: bool = True
    ) -> npt.NDArray[np.float64]:
        """A column of finite numbers, none below ``least``. Raises UserError for others.

        Where they are not required, the column may be missing and its cells empty: NaN.
        """
        numbers = np.full(self.num_rows, math.nan)
        if not required and not self.has(column):
            return numbers
        for row, value in enumerate(self.columns[column], start=1):
            if not required and _is_empty(value):
                continue
            number = _number(value)
            if number is None:
                raise self._bad(row, column, f"is {value!r}", "it must be a number")
            if not math.isfinite(number):
                raise self._bad(row, column, f"is {value!r}", "a sum that is not finite has no mean")
            if number < least:
                raise self._bad(row, column, f"is {value!r}", f"it must not be below {least:g}")
            numbers[row - 1] = number
        return numbers

    def refuse_duplicates(self, columns: Sequence[str]) -> None:
        """Raise UserError for two rows that agree in all of these columns."""
        seen: dict[tuple[str, ...], int] = {}
        for row, values in enumerate(zip(*(self.columns[c] for c in columns), strict=True), start=1):
            key = tuple(str(value).strip() for value in values)
            if key in seen:
                what = ", ".join(f"{c} {v}" for c, v in zip(columns, key, strict=True))
                raise UserError(
                    f"{self.name}: rows {seen[key]} and {row} are both of {what}",
                    "it would be counted twice",
                    "Remove one of the rows",
                )
            seen[key] = row

    def _bad(self, row: int, column: str, what: str, why: str) -> UserError:
        row = row if self.row_numbers is None else self.row_numbers[row - 1]
        return UserError(
            f"{self.name}: row {row}, column {column!r} {what}", why, "Correct the cell, or remove the row"
        )


def _is_empty(value: Any) -> bool:
    """Nothing, blank text, or the NaN that stands for nothing in Parquet (in text, nan is a bad number)."""
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    )


def _number(value: Any) -> float | None:
    """A number, or text that can be read as one; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def read_table(path: Path) -> Table:
    """Read a table by its suffix. Raises UserError for what can't be read as rows and columns."""
    if not path.is_file():
        raise UserError(
            f"{path} is a folder" if path.exists() else f"{path} does not exist",
            "a table is a file",
            "Check the path",
            code=2,
        )
    if path.suffix == ".csv":
        return Table(path.name, _read_csv(path))
    if path.suffix == ".parquet":
        return Table(path.name, _read_parquet(path))
    if path.suffix == ".jsonl":
        lines = read_text(path).split("\n")
        return Table(path.name, _by_column(path, [parse_json(path, line) for line in lines if line.strip()]))
    if path.suffix == ".json":
        return Table(path.name, _by_column(path, parse_json(path, read_text(path))))
    raise UserError(
        f"{path.name} has an unknown file type",
        f"tables are read from {', '.join(KINDS)}",
        "Convert the file",
        code=2,
    )


def read_text(path: Path) -> str:
    """UTF-8 text, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path.name} is not UTF-8", str(error), "Save the table as UTF-8") from None


def parse_json(path: Path, text: str) -> Any:
    """One JSON value. Raises UserError if an object has a name twice, since one of them would be lost."""

    def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(items)
        if len(unique) < len(items):
            twice = next(name for name, _ in items if [n for n, _ in items].count(name) > 1)
            raise UserError(
                f"{path.name} has {twice!r} twice in one object", "one of them would be lost", "Remove one"
            )
        return unique

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UserError(f"{path.name} is not JSON", str(error), "Correct or convert the file") from None


def _read_csv(path: Path) -> dict[str, list[Any]]:
    lines = list(csv.reader(io.StringIO(read_text(path), newline="")))
    if not lines:
        raise UserError(f"{path.name} is empty", "a table has a header and rows", "Check the file", code=2)
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise UserError(f"{path.name} has two columns {twice!r}", "one of them would be lost", "Rename one")
    rows = [line for line in lines[1:] if line]
    for row, cells in enumerate(rows, start=1):
        if len(cells) != len(header):
            raise UserError(
                f"{path.name}: row {row} has {len(cells)} cells under {len(header)} columns",
                "cells can't be matched to columns",
                "Correct the row",
            )
    return {name: [cells[position] for cells in rows] for position, name in enumerate(header)}


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return dict(pq.read_table(path).to_pydict())
    except pa.ArrowException as error:
        raise UserError(f"{path.name} is not Parquet", str(error), "Check the file") from None


def _by_column(path: Path, rows: Any) -> dict[str, list[Any]]:
    """A list of objects, or an object of columns, as columns."""
    if isinstance(rows, dict) and rows and all(isinstance(column, list) for column in rows.values()):
        if len({len(column) for column in rows.values()}) > 1:
            raise UserError(
                f"{path.name} has columns of different lengths", "rows can't be matched", "Correct the file"
            )
        return rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(
            f"{path.name} is not a table",
            "it must be a list of objects, one for each row",
            "Convert it",
            code=2,
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}

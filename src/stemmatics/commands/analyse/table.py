"""Tables from elsewhere: CSV, Parquet, JSON, JSON lines. Every error names its row and column."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.core.json_text import LFS_POINTER, lfs_error
from stemmatics.core.json_text import parse_json as parse_text

KINDS = (".csv", ".parquet", ".json", ".jsonl")
_DELIMITERS = (",", ";", "\t")
_LONGEST_SHOWN = 60


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
            name: [value for value, keep_row in zip(values, keep, strict=True) if keep_row]
            for name, values in self.columns.items()
        }
        return Table(
            self.name, columns, [number for number, keep_row in zip(numbers, keep, strict=True) if keep_row]
        )

    def is_empty(self, column: str) -> npt.NDArray[np.bool_]:
        """Which cells of a column hold nothing."""
        return np.array([_is_empty(value) for value in self.columns[column]], dtype=np.bool_)

    def labels(self, column: str, *, required: bool = True) -> npt.NDArray[np.str_]:
        """A column of names. Raises UserError for an empty one; what is not required may be missing."""
        if not required and not self.has(column):
            return np.full(self.num_rows, "", dtype=np.str_)
        names = ["" if _is_empty(value) else str(value).strip() for value in self.columns[column]]
        for row, value in enumerate(self.columns[column], start=1):
            if isinstance(value, dict | list):
                kind = "an object" if isinstance(value, dict) else "a list"
                raise self._bad(row, column, f"is {kind}", "a name is text or a number")
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
                raise self._bad(row, column, f"is {_short(value)}", _why_no_number(value))
            if not math.isfinite(number):
                raise self._bad(row, column, f"is {value!r}", "a sum that is not finite has no mean")
            if number < least:
                raise self._bad(row, column, f"is {value!r}", f"it must not be below {least:g}")
            numbers[row - 1] = number
        return numbers

    def refuse_duplicates(self, columns: Sequence[str]) -> None:
        """Raise UserError for two rows that agree in all of these columns."""
        first_row: dict[tuple[str, ...], int] = {}
        for row, values in enumerate(zip(*(self.columns[c] for c in columns), strict=True), start=1):
            key = tuple(str(value).strip() for value in values)
            if key in first_row:
                what = ", ".join(f"{c} {v}" for c, v in zip(columns, key, strict=True))
                raise UserError(
                    f"{self.name}: rows {first_row[key]} and {row} are both of {what}",
                    "it would be counted twice",
                    "Remove one of the rows",
                )
            first_row[key] = row

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
    except (TypeError, ValueError, OverflowError):
        return None


def _why_no_number(value: Any) -> str:
    if isinstance(value, str) and _number(value.replace(",", ".", 1)) is not None:
        return "a number is written with a decimal point"
    return "it must be a number"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def read_table(path: Path) -> Table:
    """Read a table by its suffix. Raises UserError for what can't be read as rows and columns."""
    if not path.is_file():
        raise UserError(
            f"{path} is a folder" if path.exists() else f"{path} does not exist",
            "a table is a file",
            "Check the path",
            code=2,
        )
    kind = kind_of(path)
    if kind == ".csv":
        return Table(path.name, _read_csv(path))
    if kind == ".parquet":
        return Table(path.name, _read_parquet(path))
    if kind == ".jsonl":
        rows = [
            parse_text(line, f"{path.name} line {number}", fix="Write one JSON object on each line")
            for number, line in enumerate(read_text(path).split("\n"), start=1)
            if line.strip()
        ]
        return Table(path.name, _by_column(path, rows))
    if kind == ".json":
        return Table(path.name, _by_column(path, parse_json(path, read_text(path))))
    raise UserError(
        f"{path.name} has an unknown file type",
        f"tables are read from {', '.join(KINDS)}",
        "Convert the file to one of them",
        code=2,
    )


def kind_of(path: Path) -> str | None:
    """The kind of a table by its suffix, in lower case; None for another kind of file."""
    return suffix if (suffix := path.suffix.lower()) in KINDS else None


def read_text(path: Path) -> str:
    """UTF-8 text, with or without a byte order mark."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path.name} is not UTF-8", str(error), "Save it as UTF-8 (in Excel: CSV UTF-8)"
        ) from None
    if text.startswith(LFS_POINTER):
        raise lfs_error(path.name)
    return text


def parse_json(path: Path, text: str) -> Any:
    """One JSON value. Raises UserError if an object has a name twice, since one of them would be lost."""
    return parse_text(text, path.name, fix="Correct the file, or convert it to JSON")


def _read_csv(path: Path) -> dict[str, list[Any]]:
    lines = _csv_lines(path, read_text(path))
    if not lines:
        raise UserError(
            f"{path.name} is empty",
            "a table has a header and rows",
            "Get the file again from where it was written",
            code=2,
        )
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise UserError(f"{path.name} has two columns {twice!r}", "one of them would be lost", "Rename one")
    rows = [line for line in lines[1:] if line]
    for row, cells in enumerate(rows, start=1):
        if len(cells) != len(header):
            raise UserError(
                f"{path.name}: row {row} has {_count(cells, 'cell')} under {_count(header, 'column')}",
                "cells can't be matched to columns",
                "Correct the row; a cell that contains a delimiter is written in quotes",
            )
    return {name: [cells[position] for cells in rows] for position, name in enumerate(header)}


def _count(items: Sequence[Any], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _csv_lines(path: Path, text: str) -> list[list[str]]:
    """Rows of cells, of any length; the delimiter is the one that the header is written with."""
    header = text.split("\n", 1)[0]
    delimiter = next((mark for mark in _DELIMITERS if mark in header), ",")
    # strict: a quote that is never closed would swallow all rows behind it
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    limit = csv.field_size_limit(sys.maxsize)
    try:
        return list(reader)
    except csv.Error as error:
        raise UserError(
            f"{path.name}: line {reader.line_num} is not CSV",
            str(error),
            "Correct the line; a quote inside a quoted cell is written twice",
        ) from None
    finally:
        csv.field_size_limit(limit)


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
        twice = [name for name in table.column_names if table.column_names.count(name) > 1]
        columns = {} if twice else dict(table.to_pydict())
    except Exception as error:  # noqa: BLE001 - damaged bytes break the parser anywhere
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER.encode():
                raise lfs_error(path.name) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path.name} is not Parquet, or it is damaged",
            reason,
            "Get it again, or convert it to CSV",
        ) from None
    if twice:
        raise UserError(
            f"{path.name} has two columns {twice[0]!r}", "one of them would be lost", "Rename one"
        )
    return columns


def _by_column(path: Path, rows: Any) -> dict[str, list[Any]]:
    """A list of objects, or an object of columns, as columns."""
    if isinstance(rows, dict) and rows and all(isinstance(column, list) for column in rows.values()):
        if len({len(column) for column in rows.values()}) > 1:
            raise UserError(
                f"{path.name} has columns of different lengths",
                "rows can't be matched",
                "Give all columns one length",
            )
        return rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(
            f"{path.name} is not a table",
            "it must be a list of objects, one for each row",
            'Write [{"COLUMN": VALUE, ...}, ...], or a CSV file',
            code=2,
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}

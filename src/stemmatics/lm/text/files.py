"""Records from files, read as a stream; a record is a document."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.core.errors import UserError

TEXT_ENDINGS = (".txt", ".md")
ENDINGS = (*TEXT_ENDINGS, ".jsonl", ".jsonl.zst", ".parquet")
_PARQUET_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its fields, its file, its row, and its location in words for error messages."""

    values: dict[str, Any]
    source: str
    row: int
    location: str
    flags: frozenset[str] = field(default_factory=frozenset)


def ending(name: str) -> str | None:
    """The longest known ending of a file name; None if there is none."""
    lowered = name.lower()
    return max((known for known in ENDINGS if lowered.endswith(known)), key=len, default=None)


def files(path: str) -> list[tuple[Path, str]]:
    """``(file, source name)`` of a file or of a folder's files of known kinds, recursive and sorted.

    In a folder, hidden files are skipped, and source names are relative to the folder.

    Raises:
        UserError: no such path, a file of another kind, or a folder without any text.
    """
    top = Path(path).expanduser()
    if top.is_file():
        if ending(top.name) is None:
            raise UserError(
                f"can't tell how to read {path}",
                f"a text ends in {', '.join(ENDINGS)}",
                "rename it, or convert it to JSON lines with a 'text' field",
                code=2,
            )
        return [(top, top.name)]
    if not top.is_dir():
        raise UserError(
            f"no text at {path}",
            "there is no such file or folder",
            "check the spelling; a Hub dataset is written org/name",
            code=2,
        )
    result: list[tuple[Path, str]] = []
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = [Path(folder) / name for name in names if not name.startswith(".") and ending(name)]
        result.extend((file, file.relative_to(top).as_posix()) for file in inside)
    if not result:
        raise UserError(
            f"no text in the folder {path}",
            f"a text ends in {', '.join(ENDINGS)}",
            "name another folder",
            code=2,
        )
    return sorted(result, key=lambda item: item[1])


def records(path: Path, source: str, *, name: str, wanted: list[str], replace: bool) -> Iterator[Record]:
    """The records of one file.

    Args:
        path: a file with a known ending.
        source: its name as stored.
        name: the field of the text of a file that is one document.
        wanted: the fields to read from a parquet file, if it has them.
        replace: put U+FFFD for bytes that are not UTF-8 and flag the record, instead of an error.
    """
    kind = ending(source)
    try:
        if kind in TEXT_ENDINGS:
            text, flags = _decoded(path.read_bytes(), source, replace=replace)
            yield Record({name: text}, source, 0, source, flags)
        elif kind == ".parquet":
            yield from _parquet(path, source, wanted, replace=replace)
        else:
            with _lines(path, compressed=kind == ".jsonl.zst") as lines:
                yield from _json_lines(lines, source, replace=replace)
    except OSError as error:  # pyarrow's ArrowInvalid is not an OSError and is caught where it is raised
        raise UserError(
            f"can't read {source}", str(error), "check that the file is complete and readable"
        ) from error


def _lines(path: Path, *, compressed: bool) -> BinaryIO:
    """A stream of lines of bytes; only a line feed ends a line."""
    if not compressed:
        return path.open("rb")
    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


def _decoded(raw: bytes, location: str, *, replace: bool) -> tuple[str, frozenset[str]]:
    try:
        return raw.decode(), frozenset()
    except UnicodeDecodeError as error:
        if replace:
            return raw.decode(errors="replace"), frozenset({"replaced"})
        raise UserError(
            f"{location} is not UTF-8",
            f"byte 0x{raw[error.start]:02x} at offset {error.start} is invalid",
            "convert it to UTF-8, or set errors: replace, which puts U+FFFD there and flags the document",
        ) from error


def _json_lines(lines: BinaryIO, source: str, *, replace: bool) -> Iterator[Record]:
    for row, raw in enumerate(lines):
        line = raw.removeprefix(b"\xef\xbb\xbf") if row == 0 else raw
        if not line.strip():
            continue
        location = f"{source} line {row + 1}"
        text, flags = _decoded(line, location, replace=replace)
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{location} is not JSON", str(error), "each line of a .jsonl file must be a JSON object"
            ) from error
        if not isinstance(values, dict):
            raise UserError(
                f"{location} is not a record",
                f"it is a JSON {type(values).__name__}",
                'write one object per line, for example {"text": "..."}',
            )
        yield Record(values, source, row, location, flags)


def _parquet(path: Path, source: str, wanted: list[str], *, replace: bool) -> Iterator[Record]:
    try:
        file = pq.ParquetFile(path)
        have = file.schema_arrow.names
        # Without any of the wanted columns all are read, so that the error can list them.
        columns = [column for column in wanted if column in have] or have
        row = 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS_AT_ONCE, columns=columns):
            for index in range(batch.num_rows):
                location = f"{source} row {row + 1}"
                values: dict[str, Any] = dict.fromkeys(have)
                flags: frozenset[str] = frozenset()
                for column in columns:
                    values[column], cell_flags = _cell(batch.column(column)[index], location, replace=replace)
                    flags |= cell_flags
                yield Record(values, source, row, location, flags)
                row += 1
    except pa.ArrowInvalid as error:
        raise UserError(f"can't read {source}", str(error), "check that the file is complete") from error


def _cell(cell: pa.Scalar, location: str, *, replace: bool) -> tuple[Any, frozenset[str]]:
    """A value; text is decoded here, since parquet does not guarantee UTF-8."""
    if cell.is_valid and (pa.types.is_string(cell.type) or pa.types.is_large_string(cell.type)):
        return _decoded(cell.as_buffer().to_pybytes(), location, replace=replace)
    return cell.as_py(), frozenset()

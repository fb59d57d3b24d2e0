"""Records from files, read as a stream; a record is a document."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.core.errors import UserError
from stemmatics.core.json_text import BOM, LFS_POINTER, lfs_error, parse_json
from stemmatics.core.notices import notice

TEXT_ENDINGS = (".txt", ".md")
DATA_ENDINGS = (".jsonl", ".jsonl.zst", ".parquet")
ENDINGS = (*TEXT_ENDINGS, *DATA_ENDINGS)
BOM_FLAG = "byte_order_mark"
_BOM = BOM.encode()
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PARQUET_ROWS_AT_ONCE = 256
_NAMES_SHOWN = 5
# texts about a data set, not of it
_CARDS = {
    *("readme", "license", "licence", "notice", "copying", "changelog", "citation", "authors"),
    *("contributing", "code_of_conduct", "security", "dataset_card", "datacard", "use_policy"),
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_LONGEST_POINTER = 1024  # characters; a longer text is about pointers


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

    A folder with data files (``.jsonl``, ``.jsonl.zst``, ``.parquet``) is its data files: texts beside them
    are its card and licence, and are left out with a notice. A folder without is its texts. Hidden files are
    skipped, and source names are relative to the folder.

    Raises:
        UserError: no such path, a file of another kind, or a folder without any text.
    """
    top = Path(path).expanduser()
    if top.is_file():
        if ending(top.name) is None:
            fix = "rename it to .txt if it is plain text, or convert it to JSON lines with a 'text' field"
            if top.suffix.lower() in _COMPRESSED:
                fix = "decompress it and name what was inside"
            raise UserError(
                f"can't tell how to read {path}", f"a text ends in {', '.join(ENDINGS)}", fix, code=2
            )
        return [(top, top.name)]
    if not top.is_dir():
        raise UserError(
            f"no text at {path}",
            "there is no such file or folder",
            "check the spelling; a Hub dataset is written org/name",
            code=2,
        )
    names = _names_in(top)
    data = [name for name in names if ending(name) in DATA_ENDINGS]
    chosen = data or [name for name in names if ending(name)]
    if not chosen:
        raise UserError(
            f"no text in the folder {path}",
            f"a text ends in {', '.join(ENDINGS)}; hidden files are skipped",
            "name another folder, or the file itself",
            code=2,
        )
    ignored = sorted(set(names) - set(chosen))
    if ignored and not data and all(_is_card(name) for name in chosen):
        raise UserError(
            f"the folder {path} has no text but its card ({_some(chosen)})",
            f"its other files ({_some(ignored)}) are not of a kind that is read: {', '.join(DATA_ENDINGS)}",
            "convert them to JSON lines with a 'text' field, or name the card itself to read it",
            code=2,
        )
    _warn_of_ignored(path, chosen, ignored, of_data=bool(data))
    return [(top / name, name) for name in chosen]


def _names_in(top: Path) -> list[str]:
    """Every file in a folder that is not hidden, relative to it, sorted."""
    names = []
    for folder, folders, inside in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names += [(Path(folder) / name).relative_to(top).as_posix() for name in inside if name[0] != "."]
    return sorted(names)


def _warn_of_ignored(path: str, chosen: Sequence[str], ignored: Sequence[str], *, of_data: bool) -> None:
    if ignored:
        notice(
            f"{path}: {len(chosen)} {'data files' if of_data else 'texts'} are read, {len(ignored)} other "
            f"files are left out ({_some(ignored)}); name a file to read it"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")


def _is_card(name: str) -> bool:
    return Path(name).stem.lower().replace("-", "_") in _CARDS


def records(path: Path, source: str, *, name: str, fields: list[str], replace: bool) -> Iterator[Record]:
    """The records of one file. Byte order marks are dropped, and such a record is flagged.

    Args:
        path: a file with a known ending.
        source: its name as stored.
        name: the field of the text of a file that is one document.
        fields: those to read from a parquet file, if it has them.
        replace: put U+FFFD for bytes that are not UTF-8 and flag the record, instead of an error.
    """
    kind = ending(source)
    try:
        if kind in TEXT_ENDINGS:
            text, flags = decoded(path.read_bytes(), source, replace=replace)
            if text.startswith(LFS_POINTER) and len(text) < _LONGEST_POINTER:
                raise lfs_error(source)
            yield Record({name: text}, source, 0, source, flags)
        elif kind == ".parquet":
            yield from _parquet(path, source, fields, replace=replace)
        else:
            with _lines(path, compressed=kind == ".jsonl.zst") as lines:
                yield from _json_lines(lines, source, replace=replace)
    except OSError as error:  # what a parser throws is caught where it is called
        raise unreadable(path, source, error) from error


def unreadable(path: Path, source: str, error: Exception) -> UserError:
    """The error for a file that can't be opened, is damaged, or is not what its name says."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    try:
        with path.open("rb") as file:
            head = file.read(len(LFS_POINTER))
    except OSError:
        return UserError(f"can't read {source}", reason, "check the path and its permissions")
    if head == LFS_POINTER.encode():
        return lfs_error(source)
    if not head:
        return UserError(f"can't read {source}", "it is empty", "get the file again from its source")
    if "too much memory" in reason:
        return UserError(
            f"can't read {source}",
            "it was compressed with a window larger than 128 MB (`zstd --long`)",
            f"run `zstd -d --long=31 {path.name}` and name the decompressed file",
        )
    fix = "it is damaged, cut off or of another kind than its name says: get it again, or rename it"
    return UserError(f"can't read {source}", reason, fix)


def _lines(path: Path, *, compressed: bool) -> BinaryIO:
    """A stream of lines of bytes; only a line feed ends a line."""
    if not compressed:
        return path.open("rb")
    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


def decoded(raw: bytes, location: str, *, replace: bool) -> tuple[str, frozenset[str]]:
    """UTF-8 text without a byte order mark in front, and the flags of what was done to it."""
    flags = frozenset({BOM_FLAG}) if raw.startswith(_BOM) else frozenset()
    raw = raw.removeprefix(_BOM)
    try:
        return raw.decode(), flags
    except UnicodeDecodeError as error:
        if replace:
            return raw.decode(errors="replace"), flags | {"replaced"}
        reason = f"byte 0x{raw[error.start]:02x} at offset {error.start} is invalid"
        if raw.startswith(_UTF_16):
            reason = "it begins as UTF-16 does"
        raise UserError(
            f"{location} is not UTF-8",
            reason,
            "convert it with `iconv -f ENCODING -t UTF-8`; `stemma score --replace` puts U+FFFD there and "
            "flags the document",
        ) from error


def _json_lines(lines: BinaryIO, source: str, *, replace: bool) -> Iterator[Record]:
    waiting: frozenset[str] = frozenset()  # the flags of a blank line belong to the next record
    for row, raw in enumerate(lines):
        location = f"{source} line {row + 1}"
        text, flags = decoded(raw, location, replace=replace)
        waiting |= flags
        if not text.strip():
            continue
        values = parse_json(text, location, fix="each line of a .jsonl file must be a JSON object")
        if not isinstance(values, dict):
            raise UserError(
                f"{location} is not a record",
                f"it is a JSON {type(values).__name__}",
                'write one object per line, for example {"text": "..."}',
            )
        yield without_marks(Record(values, source, row, location, waiting))
        waiting = frozenset()


def without_marks(record: Record) -> Record:
    """The record with the byte order mark in front of any of its texts dropped, and flagged if there was."""
    has_mark = False

    def clean(value: Any) -> Any:
        nonlocal has_mark
        if isinstance(value, str):
            has_mark |= value.startswith(BOM)
            return value.removeprefix(BOM)
        if isinstance(value, dict):
            return {name: clean(item) for name, item in value.items()}
        return [clean(item) for item in value] if isinstance(value, list) else value

    values = clean(record.values)
    if not has_mark:
        return record
    return Record(values, record.source, record.row, record.location, record.flags | {BOM_FLAG})


def _parquet(path: Path, source: str, fields: list[str], *, replace: bool) -> Iterator[Record]:
    # Damaged bytes can break the parser anywhere, with errors of many types.
    try:
        file = pq.ParquetFile(path)
        have = file.schema_arrow.names
        # A field within a struct is read with the whole of it; without any of the wanted columns all are
        # read, so that the error can list them.
        columns = list(dict.fromkeys(column for name in fields if (column := _column_of(name, have)))) or have
        batches = file.iter_batches(batch_size=_PARQUET_ROWS_AT_ONCE, columns=columns)
    except Exception as error:
        raise unreadable(path, source, error) from error
    row = 0
    while True:
        try:
            batch = next(batches, None)
            rows = [] if batch is None else list(_rows(batch, have, columns, source, row, replace=replace))
        except UserError:
            raise
        except Exception as error:
            raise unreadable(path, f"{source} after row {row}", error) from error
        if batch is None:
            return
        yield from rows
        row += len(rows)


def _column_of(name: str, have: Sequence[str]) -> str | None:
    """The column of a field: itself, or the struct that a dotted path begins with."""
    parts = name.split(".")
    paths = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((path for path in paths if path in have), None)


def _rows(
    batch: pa.RecordBatch,
    have: Sequence[str],
    columns: Sequence[str],
    source: str,
    first: int,
    *,
    replace: bool,
) -> Iterator[Record]:
    for index in range(batch.num_rows):
        location = f"{source} row {first + index + 1}"
        values: dict[str, Any] = dict.fromkeys(have)
        flags: frozenset[str] = frozenset()
        for column in columns:
            values[column], cell_flags = _cell(batch.column(column)[index], location, replace=replace)
            flags |= cell_flags
        yield without_marks(Record(values, source, first + index, location, flags))


def _cell(cell: pa.Scalar, location: str, *, replace: bool) -> tuple[Any, frozenset[str]]:
    """A value; text is decoded here, since parquet does not guarantee UTF-8."""
    if cell.is_valid and (pa.types.is_string(cell.type) or pa.types.is_large_string(cell.type)):
        return decoded(cell.as_buffer().to_pybytes(), location, replace=replace)
    return cell.as_py(), frozenset()

"""An index of a run's fact records: one Parquet file instead of thousands of small JSON files.

It is derived from ``facts/`` and can be deleted at any time. An entry is used only while the size and times
of its record's file are those that were indexed; every other record is read from its file.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.store.files import write_bytes

INDEX = "index.parquet"
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("modified_ns", pa.int64()),
        ("changed_ns", pa.int64()),
        # the record as written: probe, label, parameters, needs, files and their hashes
        ("record", pa.string()),
    ]
)
# A file that is replaced within one tick of its file system's clock (two seconds on the coarsest) keeps its
# times, so younger files are not indexed.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class _Stamp:
    """What differs once a file has been rewritten, replaced or touched."""

    size: int
    modified_ns: int
    changed_ns: int


class RecordIndex:
    """Texts of a run's fact records: from the index where it is current, from their files elsewhere."""

    def __init__(self, root: Path) -> None:
        self._path = root / INDEX
        self._folder = root / "facts"
        self._entries: dict[str, tuple[_Stamp, str]] | None = None
        self._is_stale = False

    def text(self, key: str) -> str:
        """A record as written. Raises OSError where there is none."""
        path = f"{self._folder}/{key}.json"
        status = os.stat(path)  # noqa: PTH116 - for thousands of records a Path costs more than the rest
        stamp = _Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        entries = self._load()
        indexed = entries.get(key)
        if indexed is not None and indexed[0] == stamp:
            return indexed[1]
        text = Path(path).read_text(encoding="utf-8")
        if time.time_ns() - max(stamp.modified_ns, stamp.changed_ns) > _SETTLED_NS:
            entries[key] = (stamp, text)
            self._is_stale = True
        return text

    def save(self, keys: Collection[str]) -> None:
        """Write what was read since the last time, for these keys only. A read-only folder is left alone."""
        entries = self._load()
        removed = entries.keys() - set(keys)
        if not self._is_stale and not removed:
            return
        for key in removed:
            del entries[key]
        with contextlib.suppress(OSError):
            write_bytes(self._path, _encoded(entries))
        self._is_stale = False

    def _load(self) -> dict[str, tuple[_Stamp, str]]:
        if self._entries is None:
            self._entries = _decoded(self._path)
        return self._entries


def _encoded(entries: dict[str, tuple[_Stamp, str]]) -> bytes:
    columns = {
        "key": list(entries),
        "size": [stamp.size for stamp, _ in entries.values()],
        "modified_ns": [stamp.modified_ns for stamp, _ in entries.values()],
        "changed_ns": [stamp.changed_ns for stamp, _ in entries.values()],
        "record": [text for _, text in entries.values()],
    }
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns, schema=_SCHEMA),
        sink,
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def _decoded(path: Path) -> dict[str, tuple[_Stamp, str]]:
    """The stored entries; none where the index is missing, truncated or damaged."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        if not table.schema.equals(_SCHEMA):
            return {}
        columns = [table[name].to_pylist() for name in _SCHEMA.names]
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return {}
    return {key: (_Stamp(*stamp), text) for key, *stamp, text in zip(*columns, strict=True)}

"""The run folder: tables of sums, one file per fact and table, and a record per fact, written last."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.core.numerics import Numerics
from stemmatics.store.files import sha256_of, write_bytes, write_json
from stemmatics.store.index import RecordIndex
from stemmatics.store.schema import SCHEMA_VERSION, schemas

_MARK = b"stemmatics"
# required fields of a manifest and their types
_MANIFEST = {
    "schema_version": int,
    "stemma": dict,
    "pins": dict,
    "measures": list,
    "facts": list,
    "estimates": dict,
    "versions": dict,
    "hardware": dict,
    "digest": str,
}


class Ledger:
    """One run. Facts are added, never changed; ``prune`` removes those that no measure needs any more.

    Records are read through an index of them (``store.index``), which is written when many were read.
    ``indexed=False`` reads the records themselves: for checks that must not trust a derived file.
    """

    def __init__(self, root: Path, *, indexed: bool = True) -> None:
        self.root = Path(root)
        self._index = RecordIndex(self.root) if indexed else None

    def has(self, key: str) -> bool:
        """Whether a fact is done: its record is written after its tables."""
        return os.path.isfile(f"{self.root}/facts/{key}.json")  # noqa: PTH113 - called for every fact, several times

    def record(self, fact: Fact, tables: Mapping[str, pa.Table], **extra: Any) -> None:
        """Store a fact's tables, then its record with ``extra`` (plain data)."""
        files: dict[str, Any] = {}
        for name, table in tables.items():
            path = self._table_path(name, fact.key)
            data = _parquet_bytes(name, fact.key, table)
            write_bytes(path, data)
            files[path.relative_to(self.root).as_posix()] = {
                "sha256": sha256_of(path),
                "num_bytes": len(data),
                "num_rows": table.num_rows,
            }
        write_json(
            self._record_path(fact.key),
            {**fact.description, "label": fact.label, "tag": fact.tag, "files": files, **extra},
        )
        self._failure_path(fact.key).unlink(missing_ok=True)

    def read(self, key: str, table: str) -> pa.Table:
        """The rows that a fact wrote to a table. Raises UserError where the file is missing or corrupt."""
        path = self._table_path(table, key)
        try:
            # read_table would import pyarrow.dataset and with it pandas: a quarter of a second
            with pq.ParquetFile(path) as file:
                rows = file.read(use_threads=False)
        except FileNotFoundError:
            raise UserError(
                f"{path} is missing",
                "the run's records say that it was written",
                f"Delete {self._record_path(key)} and run the study again: it makes the fact again",
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"{path} is corrupt",
                str(error).splitlines()[0],
                f"Delete {self._record_path(key)} and run the study again: it makes the fact again",
            ) from None
        _check_mark(path, rows, table, key)
        return rows

    def tables_of(self, key: str) -> list[str]:
        """Names of the tables that a fact wrote."""
        return table_names(self.fact_record(key))

    def files_of(self, key: str) -> list[Path]:
        """A fact's table files that exist, whether or not its record names them."""
        return [path for name in schemas() if (path := self._table_path(name, key)).is_file()]

    def private_files(self, key: str) -> list[Path]:
        """A fact's files under ``private/``, which are named by its key."""
        return sorted((self.root / "private").glob(f"*-{key}.*"))

    def fact_record(self, key: str) -> dict[str, Any]:
        """A fact's record as written. Raises UserError where it is missing or not a record."""
        path = self._record_path(key)
        try:
            text = path.read_text(encoding="utf-8") if self._index is None else self._index.text(key)
            record = json.loads(text)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} can't be read",
                str(error).splitlines()[0],
                "Delete that file and run the study again to make the fact",
            ) from None
        if not isinstance(record, dict) or not isinstance(record.get("files"), dict):
            raise UserError(
                f"{path} can't be read",
                "it is not a fact's record",
                "Delete that file and run the study again to make the fact",
            )
        return record

    def fact_records(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Records of those facts that are done, by key; brings the index up to date."""
        done = set(self.done())
        records = {key: self.fact_record(key) for key in keys if key in done}
        if self._index is not None:
            self._index.save(done)
        return records

    def done(self) -> list[str]:
        """Keys of all facts done, sorted."""
        folder = self.root / "facts"
        names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names only, of thousands of files
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def fail(self, fact: Fact, reason: str) -> None:
        """Record why a fact failed; ``status`` shows it, ``--retry-failed`` retries it."""
        write_json(self._failure_path(fact.key), {**fact.description, "label": fact.label, "reason": reason})

    def failures(self) -> dict[str, dict[str, Any]]:
        """Failed facts by key."""
        return {
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((self.root / "failed").glob("*.json"))
        }

    def forget_failures(self) -> None:
        """Forget all failures, so that these facts are tried again."""
        shutil.rmtree(self.root / "failed", ignore_errors=True)

    def forget_failure(self, key: str) -> None:
        """Forget one failure, for a fact that is no longer needed."""
        self._failure_path(key).unlink(missing_ok=True)

    def drop(self, key: str) -> None:
        """Remove a fact: its record first, so that no incomplete fact counts as done."""
        files = self.fact_record(key)["files"]
        self._record_path(key).unlink()
        for name in files:
            (self.root / name).unlink(missing_ok=True)

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest."""
        return self.root / "manifest.json"

    def manifest(self) -> dict[str, Any]:
        """What was asked and what it was made with. Raises UserError where this is no run."""
        self.refuse_other_schema()
        try:
            manifest = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"{self.root} is not a run folder",
                "it has no manifest.json",
                "Give the folder that `stemma run`, `stemma compare` or `stemma demo` wrote",
                code=2,
            ) from None
        except ValueError as error:
            raise UserError(
                f"{self.manifest_path} is not valid JSON",
                str(error),
                "Run the study again: it rewrites the manifest",
            ) from None
        if not isinstance(manifest, dict):
            manifest = {}
        for name, kind in _MANIFEST.items():
            if not isinstance(manifest.get(name), kind):
                raise UserError(
                    f"{self.manifest_path} is incomplete",
                    f"{name!r} is missing or has the wrong type",
                    "Run the study again: it rewrites the manifest",
                )
        return manifest

    def stored_schema_version(self) -> int | None:
        """The schema version that the manifest names; None if there is no manifest or it names none."""
        try:
            manifest = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        version = manifest.get("schema_version") if isinstance(manifest, dict) else None
        return version if isinstance(version, int) else None

    def refuse_other_schema(self) -> None:
        """Raise UserError if the run was written with another schema version; a new folder is fine."""
        version = self.stored_schema_version()
        if version is None or version == SCHEMA_VERSION:
            return
        older = version < SCHEMA_VERSION
        raise UserError(
            f"{self.root} has schema version {version}",
            f"it was written by {'an earlier' if older else 'a later'} stemmatics; this one reads and writes "
            f"version {SCHEMA_VERSION}",
            "Run the study again in a new folder; checkpoints in the cache are not trained again"
            if older
            else "Upgrade stemmatics",
        )

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest; computes its digest."""
        body = {**manifest, "schema_version": SCHEMA_VERSION}
        body["digest"] = self.digest(body)
        write_json(self.manifest_path, body)

    def digest(self, manifest: Mapping[str, Any]) -> str:
        """Hash of the request and the content of all its facts; not of times, locations or workers."""
        facts = {
            key: {"files": record["files"], "checkpoint": record.get("checkpoint")}
            for key, record in self.fact_records(manifest["facts"]).items()
        }
        requested = {name: manifest.get(name) for name in ("pins", "measures", "schema_version")}
        return key_of({**requested, "stemma": _without_locations(manifest["stemma"]), "facts": facts})

    def _table_path(self, table: str, key: str) -> Path:
        return self.root / "tables" / table / f"{key}.parquet"

    def _record_path(self, key: str) -> Path:
        return self.root / "facts" / f"{key}.json"

    def _failure_path(self, key: str) -> Path:
        return self.root / "failed" / f"{key}.json"

    def table_files(self) -> Iterator[Path]:
        """Every file under ``tables``, including part files left by a crash."""
        yield from sorted((self.root / "tables").glob("*/*.parquet*"))


def table_names(record: Mapping[str, Any]) -> list[str]:
    """Names of the tables that a record says its fact wrote, sorted."""
    return sorted(name.split("/")[1] for name in record["files"])


def _without_locations(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A declared stemma without file locations and numbers of workers."""
    checkpoints = {
        name: {**source, "source": Path(source["source"]).name}
        for name, source in declared.get("checkpoints", {}).items()
    }
    corpora = {
        name: {**corpus, "path": [Path(part).name for part in corpus.get("path") or []]}
        for name, corpus in declared.get("corpora", {}).items()
    }
    numerics = Numerics.model_validate(declared.get("numerics", {})).key()
    return {**declared, "checkpoints": checkpoints, "corpora": corpora, "numerics": numerics}


def _parquet_bytes(name: str, key: str, table: pa.Table) -> bytes:
    schema = schemas().get(name, table.schema)
    mark = json.dumps({"table": name, "key": key, "schema_version": SCHEMA_VERSION}, sort_keys=True)
    marked = table.select(schema.names).cast(schema).replace_schema_metadata({_MARK: mark.encode()})
    sink = io.BytesIO()
    pq.write_table(marked, sink, compression="zstd")
    return sink.getvalue()


def _check_mark(path: Path, rows: pa.Table, table: str, key: str) -> None:
    mark = json.loads((rows.schema.metadata or {}).get(_MARK, b"{}"))
    if mark.get("table") != table or mark.get("key") != key:
        raise UserError(
            f"{path} holds another fact's rows",
            f"its metadata says table {mark.get('table')!r}, key {str(mark.get('key'))[:12]!r}",
            f"Restore the original file, or delete facts/{key}.json in the run and run the study again",
        )

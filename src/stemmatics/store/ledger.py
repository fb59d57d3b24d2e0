"""The run folder: tables of sums, one file a fact, the fact's record written last."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.core.numerics import Numerics
from stemmatics.store.files import sha256_of, write_bytes, write_json
from stemmatics.store.schema import SCHEMA_VERSION, schemas

_MARK = b"stemmatics"
# what a manifest must have, and of which kind
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
    """One run. Facts are added, never changed; ``prune`` removes those no longer asked for."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def has(self, key: str) -> bool:
        """Whether a fact is done: its record is written after its tables."""
        return self._record_path(key).is_file()

    def record(self, fact: Fact, tables: Mapping[str, pa.Table], **extra: Any) -> None:
        """Store a fact's tables, then its record. ``extra`` is plain data kept in the record."""
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

    def read(self, table: str, key: str) -> pa.Table:
        """One fact's rows of one table. Raises UserError where the file is missing or broken."""
        path = self._table_path(table, key)
        try:
            # read_table would import pyarrow.dataset and with it pandas: a quarter of a second
            rows = pq.ParquetFile(path).read()
        except FileNotFoundError:
            raise UserError(
                f"{path} is missing",
                "the run's records say that it was written",
                "Run the study again; it makes what is missing",
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"{path} is broken",
                str(error).splitlines()[0],
                "Delete the fact's record in facts/ and run the study again",
            ) from None
        _check_mark(path, rows, table, key)
        return rows

    def tables_of(self, key: str) -> list[str]:
        """Names of the tables that a fact wrote."""
        return sorted(Path(name).parts[1] for name in self.fact_record(key)["files"])

    def files_of(self, key: str) -> list[Path]:
        """A fact's table files that are there, whatever its record says."""
        return [path for name in schemas() if (path := self._table_path(name, key)).is_file()]

    def private_files(self, key: str) -> list[Path]:
        """What a fact left under ``private/``, named by its key."""
        return sorted((self.root / "private").glob(f"*-{key}.*"))

    def fact_record(self, key: str) -> dict[str, Any]:
        """A fact's record as written."""
        path = self._record_path(key)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} can't be read", str(error).splitlines()[0], "Run the study again to make the fact"
            ) from None
        if not isinstance(record, dict) or not isinstance(record.get("files"), dict):
            raise UserError(
                f"{path} can't be read", "it is no record of a fact", "Run the study again to make the fact"
            )
        return record

    def done(self) -> list[str]:
        """Keys of all facts done, sorted."""
        return sorted(path.stem for path in (self.root / "facts").glob("*.json"))

    def fail(self, fact: Fact, reason: str) -> None:
        """Remember why a fact failed; ``status`` shows it, ``--retry-failed`` tries again."""
        write_json(self._failure_path(fact.key), {**fact.description, "label": fact.label, "reason": reason})

    def failures(self) -> dict[str, dict[str, Any]]:
        """Failed facts by key."""
        return {
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((self.root / "failed").glob("*.json"))
        }

    def forget_failures(self) -> None:
        """Let failed facts be tried again."""
        shutil.rmtree(self.root / "failed", ignore_errors=True)

    def forget_failure(self, key: str) -> None:
        """Forget one failure: nobody asks for its fact any more."""
        self._failure_path(key).unlink(missing_ok=True)

    def drop(self, key: str) -> None:
        """Remove a fact: its record first, so that it is never half there."""
        files = self.fact_record(key)["files"]
        self._record_path(key).unlink()
        for name in files:
            (self.root / name).unlink(missing_ok=True)

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
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
                "Run the study again: the manifest is rewritten whole",
            ) from None
        if not isinstance(manifest, dict):
            manifest = {}
        for name, kind in _MANIFEST.items():
            if not isinstance(manifest.get(name), kind):
                raise UserError(
                    f"{self.manifest_path} is incomplete",
                    f"{name!r} is missing or has the wrong type",
                    "Run the study again: the manifest is rewritten whole",
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
        """Rewrite the manifest whole; its digest is computed here."""
        body = {**manifest, "schema_version": SCHEMA_VERSION}
        body["digest"] = self.digest(body)
        write_json(self.manifest_path, body)

    def digest(self, manifest: Mapping[str, Any]) -> str:
        """What was asked, with the content of every current fact; no clock, no places, no workers."""
        facts = {}
        for key in manifest["facts"]:
            if self.has(key):
                record = self.fact_record(key)
                facts[key] = {"files": record["files"], "checkpoint": record.get("checkpoint")}
        asked = {name: manifest.get(name) for name in ("pins", "measures", "schema_version")}
        return key_of({**asked, "stemma": _without_places(manifest["stemma"]), "facts": facts})

    def _table_path(self, table: str, key: str) -> Path:
        return self.root / "tables" / table / f"{key}.parquet"

    def _record_path(self, key: str) -> Path:
        return self.root / "facts" / f"{key}.json"

    def _failure_path(self, key: str) -> Path:
        return self.root / "failed" / f"{key}.json"

    def table_files(self) -> Iterator[Path]:
        """Every file under ``tables``, parts that a crash left included."""
        yield from sorted((self.root / "tables").glob("*/*.parquet*"))


def _without_places(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A declared stemma without what says only where things lie or how many work at once."""
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
            f"inside it says table {mark.get('table')!r}, key {str(mark.get('key'))[:12]!r}",
            "Put the right file back, or run the study again",
        )

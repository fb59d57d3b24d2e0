"""DuckDB views over a run's tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stemmatics.store.ledger import Ledger
from stemmatics.store.schema import schemas

if TYPE_CHECKING:
    import duckdb


def connect(ledger: Ledger, *tables: str) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view for each table (or those named); ``fact`` is each row's fact key.

    Views have the rows of the manifest's facts only: not those of earlier settings, nor of files without a
    record. The Parquet files are never written.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    for name, paths in _files(ledger).items():
        if tables and name not in tables:
            continue
        where = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
        connection.execute(
            f"create view {name} as select * exclude (filename), parse_filename(filename, true) as fact "  # noqa: S608 - names are ours, the path is quoted
            f"from read_parquet([{where}], filename=true, union_by_name=true)"
        )
    return connection


def stored_tables(ledger: Ledger) -> list[str]:
    """Names of the tables that have files, in the schema's order."""
    return list(count_rows(ledger))


def count_rows(ledger: Ledger) -> dict[str, int]:
    """The number of rows of each table that has files, by the records of the facts."""
    num_rows: dict[str, int] = dict.fromkeys(schemas(), 0)
    present = set()
    for _, name, file in _current_files(ledger):
        num_rows[name] += int(file["num_rows"])
        present.add(name)
    return {name: count for name, count in num_rows.items() if name in present}


def _files(ledger: Ledger) -> dict[str, list[Path]]:
    paths: dict[str, list[Path]] = {name: [] for name in schemas()}
    for path, name, _ in _current_files(ledger):
        paths[name].append(path)
    return {name: files for name, files in paths.items() if files}


def _current_files(ledger: Ledger) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Path, table and record of every file of the manifest's facts, tables of a fact in sorted order."""
    for fact in ledger.fact_records(ledger.manifest()["facts"]).values():
        for file, record in sorted(fact["files"].items()):
            yield ledger.root / file, Path(file).parts[1], record

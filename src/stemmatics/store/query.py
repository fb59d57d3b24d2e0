"""DuckDB views over a run's tables."""

from __future__ import annotations

import duckdb

from stemmatics.store.ledger import Ledger, table_names
from stemmatics.store.schema import schemas


def connect(ledger: Ledger) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view per table; the column ``fact`` has each row's fact key.

    Views have the rows of the manifest's facts only: not those of earlier settings, nor of files without a
    record. The Parquet files are never written.
    """
    connection = duckdb.connect(":memory:")
    for name, paths in _files(ledger).items():
        where = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        connection.execute(
            f"create view {name} as select * exclude (filename), parse_filename(filename, true) as fact "  # noqa: S608 - names are ours, the path is quoted
            f"from read_parquet([{where}], filename=true, union_by_name=true)"
        )
    return connection


def stored_tables(ledger: Ledger) -> list[str]:
    """Names of the tables that have files, in the order of the schemas."""
    return list(_files(ledger))


def _files(ledger: Ledger) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {name: [] for name in schemas()}
    for key, record in ledger.fact_records(ledger.manifest()["facts"]).items():
        for name in table_names(record):
            files[name].append(f"{ledger.root}/tables/{name}/{key}.parquet")
    return {name: paths for name, paths in files.items() if paths}

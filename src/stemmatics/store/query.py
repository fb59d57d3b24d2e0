"""DuckDB views over a run's tables."""

from __future__ import annotations

import duckdb

from stemmatics.store.ledger import Ledger
from stemmatics.store.schema import SCHEMAS


def connect(ledger: Ledger) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view a table; ``fact`` holds each row's fact key.

    Reads Parquet only: nothing is ever written back.
    """
    connection = duckdb.connect(":memory:")
    for name in SCHEMAS:
        pattern = ledger.root / "tables" / name / "*.parquet"
        if not any(pattern.parent.glob("*.parquet")):
            continue
        where = str(pattern).replace("'", "''")
        connection.execute(
            f"create view {name} as select *, parse_filename(filename, true) as fact "  # noqa: S608 - names are ours, the path is quoted
            f"from read_parquet('{where}', filename=true, union_by_name=true)"
        )
    return connection

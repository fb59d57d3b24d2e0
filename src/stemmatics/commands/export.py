"""Every stored table of a run as one file."""

from __future__ import annotations

from pathlib import Path

from stemmatics.core.errors import UserError
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import connect, stored_tables

# a format, and how DuckDB writes it
FORMATS = {"csv": "format csv, header", "parquet": "format parquet", "json": "format json, array true"}


def export_tables(root: Path, out: Path, form: str) -> list[Path]:
    """Write each stored table as ``OUT/TABLE.FORM``; returns the paths.

    Private rows are never in the store, so none are exported. Raises UserError for an unknown format.
    """
    if form not in FORMATS:
        raise UserError(
            f"unknown format {form!r}",
            f"tables are exported as {', '.join(FORMATS)}",
            f"Choose {', '.join(FORMATS)}",
            code=2,
        )
    ledger = Ledger(root)
    ledger.manifest()
    out.mkdir(parents=True, exist_ok=True)
    connection = connect(ledger)
    paths = []
    for name in stored_tables(ledger):
        path = out / f"{name}.{form}"
        quoted = str(path).replace("'", "''")
        connection.execute(f"copy (select * from {name}) to '{quoted}' ({FORMATS[form]})")  # noqa: S608 - quoted
        paths.append(path)
    return paths

"""Every stored table of a run as one file."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

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
            f"Choose {', '.join(FORMATS)}, hub, eee or eval-results",
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


def export_dataset(root: Path, out: Path) -> list[Path]:
    """A folder as the Hub shows datasets: ``data/TABLE.parquet`` and a README whose front matter names them.

    A table without a row is left out, since the Hub reads no schema from it.
    """
    paths = [path for path in export_tables(root, out / "data", "parquet") if _has_rows(path)]
    manifest = Ledger(root).manifest()
    configs = "".join(
        f"- config_name: {path.stem}\n  data_files: data/{path.name}\n" for path in sorted(paths)
    )
    readme = out / "README.md"
    readme.write_text(
        f"---\nconfigs:\n{configs}tags:\n- stemmatics\n---\n"
        f"# {manifest['stemma']['name']}\n"
        "Sums, estimates and claims of a run of stemmatics, one table a configuration. No text and no token "
        f"ids are in it. Digest of the run: `{manifest['digest']}`.\n",
        encoding="utf-8",
    )
    return [readme, *paths]


def _has_rows(path: Path) -> bool:
    """Whether a table has a row; one without is removed."""
    if pq.read_metadata(path).num_rows:
        return True
    path.unlink()
    return False

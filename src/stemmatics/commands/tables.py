"""Tables of a run: those of the report, and those of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.core.content import Table
from stemmatics.core.errors import UserError
from stemmatics.core.results import Claim, Estimate, Result
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import connect, stored_tables
from stemmatics.study.read import load_report_content, open_run


@dataclass(frozen=True)
class Found:
    """A table with the results that its cells name; ``stored`` are the rows of a stored one."""

    table: Table
    estimates: Mapping[str, Result]
    stored: list[dict[str, Any]] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Plain data; a claim becomes its number, with the interval beside it."""
        if self.stored is not None:
            return self.stored
        return [
            dict(
                pair
                for column, cell in zip(self.table.columns, row, strict=True)
                for pair in self._cell(column, cell)
            )
            for row in self.table.rows
        ]

    def _cell(self, column: str, cell: Any) -> Iterator[tuple[str, Any]]:
        if not isinstance(cell, Claim):
            yield column, cell
            return
        estimate = self.estimates[cell.result]
        yield column, getattr(estimate, cell.field)
        if cell.field == "value" and isinstance(estimate, Estimate) and estimate.method != "exact":
            yield f"{column} lo", estimate.lo
            yield f"{column} hi", estimate.hi


def table_names(root: Path) -> list[dict[str, Any]]:
    """What can be shown."""
    run = open_run(root)
    content = load_report_content(run)
    rows: list[dict[str, Any]] = [
        {"table": table.name, "title": table.title, "rows": len(table.rows)}
        for section in content.sections
        for table in section.tables
    ]
    connection = connect(run.ledger)
    for name in stored_tables(run.ledger):
        count = connection.execute(f"select count(*) from {name}").fetchone()  # noqa: S608 - a name of ours
        rows.append({"table": name, "title": "stored rows", "rows": count[0] if count else 0})
    return rows


def find(root: Path, name: str, *, limit: int) -> Found:
    """A table of the report by name, or the first rows of a stored one."""
    run = open_run(root)
    content = load_report_content(run)
    for section in content.sections:
        for table in section.tables:
            if table.name == name:
                return Found(table, content.results)
    if name in stored_tables(run.ledger):
        result = connect(run.ledger).execute(f"select * from {name} limit {int(limit)}")  # noqa: S608 - as above
        columns = [column[0] for column in result.description]
        values = result.fetchall()
        rows = [[_plain(value) for value in row] for row in values]
        stored = [dict(zip(columns, row, strict=True)) for row in values]
        return Found(Table(name, f"{name}, first {len(rows)} rows", columns, rows), {}, stored)
    known = ", ".join(row["table"] for row in table_names(root))
    raise UserError(f"there is no table {name!r}", "the run has others", f"Choose one of {known}", code=2)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str) or value is None else str(value)


def movers(root: Path, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The documents that moved most, with their text where it is given."""
    run = open_run(root)
    content = load_report_content(run)
    moved = [one for one in content.results.values() if one.quantity == "loss.mover"]
    found = _texts_of({one.subject["doc_id"] for one in moved}, texts) if texts else {}
    rows = []
    for one in moved:
        row = {**one.subject, "nats/byte": one.value}
        if texts:
            row["text"] = found.get(one.subject["doc_id"], "(not in the given texts)")
        rows.append(row)
    return rows


def _texts_of(wanted: set[str], texts: Sequence[str]) -> dict[str, str]:
    from stemmatics.lm.text.corpus import read, text_source

    found: dict[str, str] = {}
    for text in texts:
        for document in read(text_source(text)):
            short = document.doc_id[:12]
            if short in wanted:
                found.setdefault(short, document.text)
    return found


def export_tables(root: Path, out: Path, form: str) -> list[Path]:
    """Every stored table as one file; private rows are never in the store, so none go out."""
    ledger = Ledger(root)
    ledger.manifest()
    out.mkdir(parents=True, exist_ok=True)
    connection = connect(ledger)
    options = {"csv": "format csv, header", "parquet": "format parquet", "json": "format json, array true"}[
        form
    ]
    paths = []
    for name in stored_tables(ledger):
        path = out / f"{name}.{form}"
        where = str(path).replace("'", "''")
        connection.execute(f"copy (select * from {name}) to '{where}' ({options})")  # noqa: S608 - quoted
        paths.append(path)
    return paths

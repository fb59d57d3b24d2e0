"""A finished run read back: its results, its tables, the documents that moved most."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from stemmatics.core.content import Table
from stemmatics.core.errors import UserError
from stemmatics.core.results import Claim, Estimate, Refusal, Result, Results
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import connect, count_rows, stored_tables
from stemmatics.study.estimate import results_frame
from stemmatics.study.read import load_evaluations, load_report_content, load_results, open_run

MOVERS = "movers"


@dataclass(frozen=True)
class Run:
    """A finished run, read back; a notebook shows its first screen.

    Tables are Arrow: ``.to_pandas()`` or ``polars.from_arrow(...)`` make data frames of them.
    """

    root: Path
    manifest: Mapping[str, Any]
    results: Results

    def _repr_html_(self) -> str:
        """The first screen, for a notebook: a table and at most five sentences."""
        from stemmatics.report.first_screen import html_first_screen

        return html_first_screen(load_report_content(open_run(self.root)))

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Numbers with their intervals, by id; categories and refusals are in ``results``."""
        return {estimate.id: estimate for estimate in self.results.estimates()}

    def table(self, name: str) -> pa.Table:
        """All rows of a stored table, with the column ``fact``. Raises UserError for an unknown one."""
        ledger = Ledger(self.root)
        known = stored_tables(ledger)
        if name not in known:
            raise _unknown_table(self.root, name, known)
        return connect(ledger, name).table(name).to_arrow_table()

    def frame(self) -> pa.Table:
        """The estimates as a table, the subject as a struct."""
        return results_frame(self.results)


def load_run(root: str | Path) -> Run:
    """Read a run folder; needs neither torch nor the models.

    Raises UserError where the folder is no run or the study was not finished.
    """
    ledger = Ledger(Path(root))
    manifest = ledger.manifest()
    return Run(Path(root), manifest, load_results(ledger, manifest))


@dataclass(frozen=True)
class ShownTable:
    """A table with the results that its cells refer to; ``stored`` has the rows of a stored table."""

    table: Table
    results: Mapping[str, Result]
    stored: list[dict[str, Any]] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Plain data; a claim becomes its number or word, a number with its interval beside it."""
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
        result = self.results[cell.result]
        if isinstance(result, Refusal):
            yield column, None
            return
        yield column, getattr(result, cell.field)
        if isinstance(result, Estimate) and cell.field == "value" and result.method != "exact":
            yield f"{column} lo", result.lo
            yield f"{column} hi", result.hi


def list_tables(root: Path) -> list[dict[str, Any]]:
    """Name, title and number of rows of every table: those of the report, then those of the store."""
    run = open_run(root)
    rows: list[dict[str, Any]] = [
        {"table": table.name, "title": table.title, "rows": len(table.rows)}
        for evaluation in load_evaluations(run)
        for table in evaluation.findings.tables
    ]
    counts = count_rows(run.ledger)
    return [*rows, *({"table": name, "title": "stored rows", "rows": counts[name]} for name in counts)]


def show_table(root: Path, name: str, *, limit: int) -> ShownTable:
    """A table of the report (``measure/table/corpus``), or the first ``limit`` rows of a stored one.

    Only the measure that the name begins with is loaded. Raises UserError for an unknown name.
    """
    ledger = Ledger(root)
    manifest = ledger.manifest()
    if name in stored_tables(ledger):
        return _stored_table(ledger, name, limit)
    measure = name.partition("/")[0]
    run = open_run(root, measure) if measure in manifest["measures"] else open_run(root)
    known = []
    for evaluation in load_evaluations(run):
        for table in evaluation.findings.tables:
            known.append(table.name)
            if table.name == name:
                return ShownTable(table, evaluation.results)
    raise _unknown_table(root, name, [*known, *stored_tables(ledger)])


def _stored_table(ledger: Ledger, name: str, limit: int) -> ShownTable:
    query = connect(ledger, name).execute(f"select * from {name} limit {int(limit)}")  # noqa: S608 - a name of ours
    columns = [column[0] for column in query.description or []]
    values = query.fetchall()
    rows = [[_cell_of(value) for value in row] for row in values]
    stored = [dict(zip(columns, row, strict=True)) for row in values]
    return ShownTable(Table(name, f"{name}, first {len(rows)} rows", columns, rows), {}, stored)


def _cell_of(value: Any) -> Any:
    return value if isinstance(value, int | str) or value is None else str(value)


def _unknown_table(root: Path, name: str, known: Sequence[str]) -> UserError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    close += [other for other in known if name in other.split("/") and other not in close][:3]
    return UserError(
        f"there is no table {name!r}",
        "the run has other tables",
        f"{'Did you mean ' + ' or '.join(close) + '? ' if close else ''}`stemma show {root}` lists all",
        code=2,
    )


def show_movers(root: Path, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The documents whose loss changed most, with their text where it is given."""
    ledger = Ledger(root)
    manifest = ledger.manifest()
    if "loss" not in manifest["measures"]:
        raise UserError(
            f"{root} has no movers",
            "the measure loss finds them, and the study does not configure it",
            "Add `loss: {}` under `measures:` and run the study again",
            code=2,
        )
    movers = load_results(ledger, manifest, "loss").all("loss.mover")
    text_of = _texts_of({mover.subject["doc_id"] for mover in movers}, texts) if texts else {}
    rows = []
    for mover in movers:
        row = {**mover.subject, "nats/byte": mover.value}
        if texts:
            row["text"] = text_of.get(mover.subject["doc_id"], "(not in the given texts)")
        rows.append(row)
    return rows


def _texts_of(short_keys: set[str], texts: Sequence[str]) -> dict[str, str]:
    from stemmatics.lm.text.corpus import read, text_source

    text_of: dict[str, str] = {}
    for text in texts:
        for document in read(text_source(text)):
            short = document.doc_id[:12]
            if short in short_keys:
                text_of.setdefault(short, document.text)
    return text_of

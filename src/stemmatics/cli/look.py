"""stemma show, export: any table of a run, for eyes and for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, print_json
from stemmatics.core.errors import UserError

FORMATS = ("csv", "parquet", "json")


def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    table: Annotated[str, typer.Argument(help="A table of the report or the store, or movers.")] = "",
    text: Annotated[list[Path] | None, typer.Option(help="Texts to join to the movers.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of a stored table.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Print a table; without a name, list the tables."""
    from stemmatics.cli.tables import print_rows, print_table
    from stemmatics.study import tables

    if not table:
        names = tables.table_names(run_folder)
        if as_json:
            print_json(names)
        else:
            print_rows(names, ["table", "title", "rows"])
        return 0
    if table == "movers":
        rows = tables.movers(run_folder, [str(path) for path in text or []])
        if as_json:
            print_json(rows)
        else:
            print_rows(rows, ["base", "descendant", "nats/byte", "document", *(["text"] if text else [])])
        return 0
    found = tables.find(run_folder, table, limit=limit)
    if as_json:
        print_json(found.rows())
    else:
        print_table(found)
    return 0


def export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("export"),
    form: Annotated[str, typer.Option("--format", help="csv, parquet or json.")] = "csv",
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Write every table of sums and estimates as CSV, Parquet or JSON. No text is in them."""
    from stemmatics.study.tables import export_tables

    if form not in FORMATS:
        raise UserError(
            f"there is no format {form!r}",
            "tables go out in one of a few",
            f"Choose {', '.join(FORMATS)}",
            code=2,
        )
    paths = export_tables(run_folder, out, form)
    if as_json:
        print_json({"files": [str(path) for path in paths]})
    else:
        for path in paths:
            print(path)
    return 0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(show)
    app.command()(export)

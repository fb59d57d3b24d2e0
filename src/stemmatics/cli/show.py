"""stemma show: any table of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    table: Annotated[
        str, typer.Argument(help="measure/table/corpus, a stored table, or movers (default: list them).")
    ] = "",
    text: Annotated[list[Path] | None, typer.Option(help="Texts to show beside the movers.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of a stored table.")] = 50,
    as_json: AsJson = False,
) -> int:
    """Print a table of a run; without a name, list its tables."""
    from stemmatics.cli.tables import print_rows, print_table
    from stemmatics.commands import show as command

    if not table:
        rows, columns = command.list_tables(run_folder), ["table", "title", "rows"]
    elif table == command.MOVERS:
        rows = command.show_movers(run_folder, [str(path) for path in text or []])
        columns = ["base", "descendant", "nats/byte", "document", *(["text"] if text else [])]
    else:
        shown = command.show_table(run_folder, table, limit=limit)
        if as_json:
            print_json(shown.rows())
        else:
            print_table(shown)
        return 0
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, columns)
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(show)

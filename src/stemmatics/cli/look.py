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
    from stemmatics.commands import tables

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
    registry: Annotated[
        Path | None,
        typer.Option(help="Write the run's calibrated pairs alone, for others to import (.jsonl)."),
    ] = None,
    correction: Annotated[
        list[str] | None,
        typer.Option(metavar="DESCENDANT", help="Write its fitted correction alone; may be given again."),
    ] = None,
    kind: Annotated[str, typer.Option("--as", help="A correction as transformers, vllm or checkpoint.")] = (
        "transformers"
    ),
    arm: Annotated[str, typer.Option(help="Which correction: joint, bias, temperature, ...")] = "joint",
    corpus: Annotated[str | None, typer.Option(help="Fitted on which corpus (default: the first).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Write every table of sums and estimates as CSV, Parquet or JSON. No text is in them."""
    from stemmatics.commands.tables import export_tables

    if correction:
        from stemmatics.commands.corrections import export_correction

        written = [
            export_correction(run_folder, name, out, kind, arm=arm, corpus=corpus) for name in correction
        ]
        _print_paths([path for paths in written for path in paths], as_json=as_json)
        return 0

    if registry is not None:
        from stemmatics.commands.registry import write_registry

        count = write_registry(run_folder, registry)
        if as_json:
            print_json({"files": [str(registry)], "pairs": count})
        else:
            print(f"{registry}: {count} calibrated pairs")
        return 0
    if form not in FORMATS:
        raise UserError(
            f"there is no format {form!r}",
            "tables go out in one of a few",
            f"Choose {', '.join(FORMATS)}",
            code=2,
        )
    _print_paths(export_tables(run_folder, out, form), as_json=as_json)
    return 0


def _print_paths(paths: list[Path], *, as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in paths]})
    else:
        for path in paths:
            print(path)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(show)
    app.command()(export)

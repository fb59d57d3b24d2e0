"""stemma ladder: models in order of their loss after the recovery fine-tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, print_json


def ladder(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    corpus: Annotated[str | None, typer.Option(help="One corpus (default: every one).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Models from the lowest re-based loss up: ties joined, reversals, bases estimated with their bars."""
    from stemmatics.commands.ladder import ladders

    found = ladders(run_folder, corpus)
    if as_json:
        print_json([one.to_json() for one in found])
        return 0
    from stemmatics.cli.tables import print_table

    for one in found:
        for table in one.tables:
            print_table(table)
        for line in one.lines:
            print(line)
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(ladder)

"""stemma init: a commented stemma.yaml that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to write stemma.yaml.")] = Path(),
    preset: Annotated[str, typer.Option(help="The study to write; --list prints all of them.")] = "nursery",
    list_presets: Annotated[bool, typer.Option("--list", help="List the presets and write nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a commented stemma.yaml that runs as it is."""
    from stemmatics.commands import init as command

    if list_presets:
        rows = command.list_presets()
        if as_json:
            print_json(rows)
        else:
            from stemmatics.cli.tables import print_rows

            print_rows(rows, ["preset", "study"])
        return 0
    path = command.init(folder, preset)
    if as_json:
        print_json({"wrote": str(path)})
    else:
        print(f"wrote {path}")
        print(f"next: stemma check {path}   and   stemma run {path}")
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(init)

"""stemma prune: drop what a run no longer needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def prune(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
) -> int:
    """Remove facts that no current measure needs."""
    from stemmatics.commands.prune import prune as command

    removed = command(run_folder)
    if as_json:
        print_json({"removed": removed})
    else:
        print(f"{len(removed)} facts removed")
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(prune)

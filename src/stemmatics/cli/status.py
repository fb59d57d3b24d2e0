"""stemma status: the progress of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def status(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
) -> int:
    """Facts done, failed and remaining, per checkpoint."""
    from stemmatics.commands.status import status_of

    rows = status_of(run_folder)
    if as_json:
        print_json(rows)
    else:
        from stemmatics.cli.tables import print_rows

        print_rows(rows, ["checkpoint", "done", "failed", "left", "why"])
    return 1 if any(row["failed"] for row in rows) else 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(status)

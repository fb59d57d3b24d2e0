"""stemma report: the page, the figures and the tables of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
) -> int:
    """Write the page, figures and tables of a run again.

    One HTML file; the figures as SVG, PNG and PDF; the tables as CSV.
    """
    from stemmatics.cli.progress import watching
    from stemmatics.commands.report import report as command

    with watching() as watcher:
        written = command(run_folder, on_step=watcher.step)
    if as_json:
        print_json(
            {
                "report": str(written.page),
                "figures": [str(path) for path in written.figures],
                "tables": [str(path) for path in written.tables],
            }
        )
    else:
        print(f"report: {written.page}")
        print(f"figures: {run_folder / 'figures'} ({len(written.figures)} files)")
        print(f"tables: {run_folder / 'csv'} ({len(written.tables)} files)")
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(report)

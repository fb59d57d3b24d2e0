"""stemma report: the page, the figures and the tables of a run, or what changed between two runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json
from stemmatics.core.errors import UserError


class Format(StrEnum):
    """What is written."""

    html = "html"
    md = "md"


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    second_run: Annotated[
        Path | None, typer.Argument(metavar="[RUN_B]", help="Another run: what changed from RUN to it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With RUN_B: the page to write (default: RUN_B/changes.html).")
    ] = None,
    as_format: Annotated[
        Format,
        typer.Option("--format", help="html: page, figures and tables; md: the first screen as Markdown."),
    ] = Format.html,
    as_json: AsJson = False,
) -> int:
    """Write the page, figures and tables of a run again.

    One HTML file; the figures as SVG, PNG and PDF; the tables as CSV. With --format md the first screen goes
    to stdout, for a pull request or a model card. With two runs: what changed between them, in the same form.
    """
    from stemmatics.cli.progress import watching
    from stemmatics.commands import report as command

    if as_format == Format.md:
        if as_json:
            raise UserError(
                "--format md and --json contradict one another",
                "stdout holds one document",
                "Leave out either of them",
                code=2,
            )
        text = (
            command.markdown(run_folder)
            if second_run is None
            else command.markdown_changes(run_folder, second_run)
        )
        print(text, end="")
        return 0
    if second_run is not None:
        page = command.changes(run_folder, second_run, out)
        if as_json:
            print_json({"report": str(page)})
        else:
            print(f"report: {page}")
        return 0
    if out is not None:
        raise UserError(
            "--out is given without a second run",
            "the report of one run is written into its folder",
            "Name a second run, or leave it out",
            code=2,
        )
    with watching() as watcher:
        written = command.report(run_folder, on_step=watcher.step)
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

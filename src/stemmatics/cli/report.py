"""stemma report: the page, the figures and the tables of a run, from its sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, print_json, watching


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """One self-contained HTML file; the figures as SVG, PNG and PDF; the tables as CSV."""
    from stemmatics.report.figures import write_figures
    from stemmatics.report.tables import write_tables
    from stemmatics.study.read import write_report

    with watching() as watcher:
        content = write_report(run_folder, on_step=watcher.step)
        watcher.step("drawing the figures")
        figures = write_figures(content, run_folder / "figures")
        tables = write_tables(content, run_folder / "csv")
    page = run_folder / "report.html"
    if as_json:
        print_json(
            {"report": str(page), "figures": [str(p) for p in figures], "tables": [str(p) for p in tables]}
        )
    else:
        print(f"report: {page}")
        print(f"figures: {run_folder / 'figures'} ({len(figures)} files)")
        print(f"tables: {run_folder / 'csv'} ({len(tables)} files)")
    return 0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(report)

"""stemma run: a whole study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson


def run(
    stemma_yaml: Annotated[Path, typer.Argument(metavar="STEMMA.YAML", help="The study.")],
    only: opt.Only = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/NAME).")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what the run would take; run nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Retry facts that failed.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of worker processes.")] = None,
    timings: opt.Timings = False,
    as_json: AsJson = False,
) -> int:
    """Run a study: make what is missing, estimate, report.

    The same command continues after a crash; a failed fact does not stop the others.
    """
    from stemmatics.cli.outcome import show_outcome
    from stemmatics.cli.progress import watching
    from stemmatics.commands import run as command

    measures = opt.names_of(only)
    with watching() as watcher:
        if plan:
            from stemmatics.cli.plan import print_plan

            planned = command.plan(stemma_yaml, out, only=measures, workers=workers, on_step=watcher.step)
            return print_plan(planned, as_json=as_json)
        outcome = command.run(
            stemma_yaml,
            out,
            only=measures,
            retry_failed=retry_failed,
            workers=workers,
            on_event=watcher,
            on_step=watcher.step,
        )
    return show_outcome(outcome, timings=watcher.timings.rows() if timings else None, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(run)

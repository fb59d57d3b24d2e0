"""stemma run, status: a whole study, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli.output import JSON_HELP, print_json, watching


def run(
    stemma_yaml: Annotated[Path, typer.Argument(metavar="STEMMA.YAML", help="The study.")],
    only: Annotated[str | None, typer.Option(help="Measures, by comma: loss,prior.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default runs/NAME).")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what it would take; run nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed facts again.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Everything that a stemma asks for; the same command goes on after a crash."""
    from stemmatics.core.load import load
    from stemmatics.study import run as study

    stemma, tree = load(stemma_yaml)
    if workers is not None:
        numerics = stemma.numerics.model_copy(update={"workers": workers})
        stemma = stemma.model_copy(update={"numerics": numerics})
    root = out or Path("runs") / stemma.name
    measures = measures_of(only)
    with watching() as watcher:
        if plan:
            from stemmatics.cli.plan import print_plan

            _, _, made = study.prepare(
                stemma, root, only=measures, tree=tree, on_step=watcher.step, planning=True
            )
            return print_plan(made, as_json=as_json)
        outcome = study.run(
            stemma,
            root,
            only=measures,
            tree=tree,
            retry_failed=retry_failed,
            on_event=watcher,
            on_step=watcher.step,
        )
    return show_outcome(outcome, as_json=as_json)


def measures_of(only: str | None) -> list[str] | None:
    """The names of ``--only``; None for all."""
    return None if only is None else [name.strip() for name in only.split(",") if name.strip()]


def show_outcome(outcome: Any, *, as_json: bool) -> int:
    """The summary, what failed, and where the page lies."""
    from stemmatics.report.tables import plain_summary

    code = 1 if outcome.failures else 0
    summary = plain_summary(outcome.content)
    page = outcome.root / "report.html"
    if as_json:
        print_json(
            {
                "run": str(outcome.root),
                "report": str(page),
                "digest": outcome.digest,
                "summary": summary,
                "failures": outcome.failures,
                **results_json(outcome.content.results),
            }
        )
        return code
    from stemmatics.cli.tables import print_summary_table

    print_summary_table(outcome)
    for line in summary:
        print(line)
    for name, reason in outcome.failures.items():
        print(f"failed: {name}: {reason}")
    print(f"report: {page}")
    print(f"digest: {outcome.digest}")
    return code


def results_json(results: Any) -> dict[str, Any]:
    """Estimates, categories and refusals as plain data."""
    from stemmatics.core.results import Category

    return {
        "estimates": [estimate.row() for estimate in results.estimates()],
        "categories": [one.row() for one in results.values() if isinstance(one, Category)],
        "refusals": [refusal.row() for refusal in results.refusals()],
    }


def status(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Per checkpoint: done, failed and why, left."""
    from stemmatics.commands.status import status_of

    rows = status_of(run_folder)
    if as_json:
        print_json(rows)
    else:
        from stemmatics.cli.tables import print_rows

        print_rows(rows, ["checkpoint", "done", "failed", "left", "why"])
    return 1 if any(row["failed"] for row in rows) else 0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(run)
    app.command()(status)

"""stemma export: a run's tables, its calibrated pairs or its corrections, for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_files, print_json
from stemmatics.core.errors import UserError


def export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("export"),
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, parquet, json; hub: a dataset folder; eee: Every Eval Ever's JSON; eval-results: the "
            "Hub's YAML, with --benchmark.",
        ),
    ] = "csv",
    registry: Annotated[
        Path | None,
        typer.Option(help="Write only the run's calibrated pairs, as a registry (.jsonl) for other studies."),
    ] = None,
    correction: Annotated[
        list[str] | None,
        typer.Option(metavar="DESCENDANT", help="Write only its fitted correction; can be repeated."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--as", help="With --correction: transformers, vllm or checkpoint.")
    ] = "transformers",
    arm: Annotated[str, typer.Option(help="With --correction: joint, bias, temperature, ...")] = "joint",
    corpus: Annotated[
        str | None, typer.Option(help="With --correction: the corpus it was fitted on (default: the first).")
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATASET:TASK=QUANTITY[/CORPUS]", help="With --format eval-results; can be repeated."
        ),
    ] = None,
    organization: Annotated[
        str, typer.Option(help="With --format eee: who publishes the results.")
    ] = "unknown",
    as_json: AsJson = False,
) -> int:
    """Write all tables of a run as CSV, Parquet or JSON.

    They contain no text. With --registry or --correction, write only those.
    """
    if correction:
        from stemmatics.cli.progress import watching
        from stemmatics.commands.export_correction import export_correction

        with watching() as watcher:
            written = [
                path
                for name in correction
                for path in export_correction(
                    run_folder, name, out, kind, arm=arm, corpus=corpus, on_event=watcher
                )
            ]
        print_files(written, as_json=as_json)
    elif registry is not None:
        from stemmatics.commands.export_registry import write_registry

        count = write_registry(run_folder, registry)
        if as_json:
            print_json({"files": [str(registry)], "pairs": count})
        else:
            print(f"{registry}: {count} calibrated pairs")
    else:
        print_files(_exported(run_folder, out, form, benchmark or [], organization), as_json=as_json)
    return 0


def _exported(root: Path, out: Path, form: str, benchmarks: list[str], organization: str) -> list[Path]:
    from stemmatics.commands.export import export_dataset, export_tables
    from stemmatics.commands.export_results import export_eval_results, export_every_eval_ever

    if benchmarks and form != "eval-results":
        raise UserError(
            "--benchmark goes with --format eval-results", f"the format is {form}", "Leave one out", code=2
        )
    if form == "hub":
        return export_dataset(root, out)
    if form == "eee":
        paths, left_out = export_every_eval_ever(root, out, organization=organization)
        print(
            f"{left_out} results without a better direction, controls and floors are left out",
            file=sys.stderr,
        )
        return paths
    if form == "eval-results":
        if not benchmarks:
            raise UserError(
                "--format eval-results needs --benchmark",
                "only you know which result is a benchmark's score",
                "Give DATASET:TASK=QUANTITY[/CORPUS]",
                code=2,
            )
        return export_eval_results(root, out, benchmarks)
    return export_tables(root, out, form)


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(export)

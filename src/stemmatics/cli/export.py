"""stemma export: a run's tables, its calibrated pairs or its corrections, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_files, print_json


def export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("export"),
    form: Annotated[str, typer.Option("--format", help="csv, parquet or json.")] = "csv",
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
        from stemmatics.commands.export import export_tables

        print_files(export_tables(run_folder, out, form), as_json=as_json)
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(export)

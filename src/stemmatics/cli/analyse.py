"""stemma analyse: the estimators alone, on tables from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli.output import AsJson, print_json


def analyse(
    measure: Annotated[
        str,
        typer.Argument(
            metavar="MEASURE", help="recovery, agreement, depth, prior, divergence, axes or elicitation."
        ),
    ],
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="CSV, Parquet, JSON or JSON lines; for prior also a folder; for axes evaluation logs.",
        ),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    readout: Annotated[
        str | None,
        typer.Option(help="depth: the norm and head that read all cells (default: common-descendant)."),
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="agreement: tasks to use, comma-separated.")] = None,
    lower_is_better: Annotated[
        list[str] | None,
        typer.Option(help="agreement: a task where lower scores are better; can be repeated."),
    ] = None,
    before: Annotated[str | None, typer.Option(help="agreement: name of the first setting.")] = None,
    after: Annotated[str | None, typer.Option(help="agreement: name of the second setting.")] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="axes: items of one cluster are resampled together.")
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option(help="elicitation: the recipe of the claimed gain (default: a row for each)."),
    ] = None,
    write_checksums: Annotated[
        bool, typer.Option("--write-checksums", help="prior: only write the SHA256SUMS of a folder.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Estimate from a table of sums or from evaluation logs: no model, no torch.

    docs/analyse.md describes the tables.
    """
    from stemmatics.cli.options import names_of
    from stemmatics.commands.analyse import analyse as command

    if write_checksums:
        return _write(measure, tables[0], as_json=as_json)
    options: dict[str, Any] = {
        "readout": readout,
        "tasks": names_of(tasks),
        "lower_is_better": lower_is_better or None,
        "before": before,
        "after": after,
        "recipe": recipe,
        "cluster": "cluster" if cluster else None,
    }
    settings = {name: value for name, value in options.items() if value is not None}
    estimates = command(measure, *tables, seed=seed, **settings)
    if as_json:
        print_json(estimates)
    else:
        from stemmatics.cli.analyse_text import show

        show(estimates)
    for problem in estimates.get("problems", []):
        print(f"wrong: {problem}", file=sys.stderr)
    return 1 if estimates.get("problems") else 0


def _write(measure: str, folder: Path, *, as_json: bool) -> int:
    from stemmatics.commands.analyse.archive import files_of, write_checksums
    from stemmatics.core.errors import UserError

    if measure != "prior" or not folder.is_dir():
        raise UserError(
            "--write-checksums is only for a folder of prior tables",
            "checksums belong to an archive of tables",
            "Type `stemma analyse prior FOLDER --write-checksums`",
            code=2,
        )
    path = write_checksums(folder)
    files = files_of(folder)
    if as_json:
        print_json({"checksums": str(path), "files": files})
    else:
        print(f"{path}: {len(files)} files")
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(analyse)

"""stemma analyse: the estimators alone, on a table that somebody else made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli.output import JSON_HELP, print_json


def analyse(
    measure: Annotated[str, typer.Argument(metavar="MEASURE", help="recovery, agreement, depth or prior.")],
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="CSV, Parquet, JSON or JSON lines; for prior also a folder."),
    ],
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 0,
    readout: Annotated[
        str | None, typer.Option(help="depth: whose norm and head read all cells (common-descendant).")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="agreement: tasks to use, with commas between.")] = None,
    lower_is_better: Annotated[
        list[str] | None, typer.Option(help="agreement: a task whose lower scores are better; repeat it.")
    ] = None,
    before: Annotated[str | None, typer.Option(help="agreement: the first setting.")] = None,
    after: Annotated[str | None, typer.Option(help="agreement: the second setting.")] = None,
    write_checksums: Annotated[
        bool, typer.Option("--write-checksums", help="prior: write a folder's SHA256SUMS, and end.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Estimate from a table of sums: no model, no torch. docs/analyse.md has the shapes."""
    from stemmatics.commands.analyse import analyse as estimate

    if write_checksums:
        return _write(measure, table, as_json=as_json)
    asked: dict[str, Any] = {
        "readout": readout,
        "tasks": None if tasks is None else [task.strip() for task in tasks.split(",") if task.strip()],
        "lower_is_better": lower_is_better or None,
        "before": before,
        "after": after,
    }
    found = estimate(
        measure, table, seed=seed, **{name: value for name, value in asked.items() if value is not None}
    )
    if as_json:
        print_json(found)
    else:
        from stemmatics.cli.analyse_text import show

        show(found)
    for problem in found.get("problems", []):
        print(f"wrong: {problem}", file=sys.stderr)
    return 1 if found.get("problems") else 0


def _write(measure: str, folder: Path, *, as_json: bool) -> int:
    from stemmatics.commands.analyse.archive import files_of, write_checksums
    from stemmatics.core.errors import UserError

    if measure != "prior" or not folder.is_dir():
        raise UserError(
            "--write-checksums is for a folder of prior tables",
            "Checksums belong to an archive of tables",
            "Type `stemma analyse prior FOLDER --write-checksums`",
            code=2,
        )
    path = write_checksums(folder)
    found = {"checksums": str(path), "files": files_of(folder)}
    if as_json:
        print_json(found)
    else:
        print(f"{path}: {len(found['files'])} files")
    return 0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(analyse)

"""stemma verify: do the numbers of a report follow from the sums?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def verify(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    digest: Annotated[str | None, typer.Option(help="The published digest of the run.")] = None,
    rescore: Annotated[int, typer.Option(min=0, help="Score this many random documents again.")] = 0,
    text: Annotated[list[Path] | None, typer.Option(help="Texts for --rescore; can be repeated.")] = None,
    as_json: AsJson = False,
) -> int:
    """Recompute every estimate and printed number from the stored sums."""
    from stemmatics.commands import verify as command

    verdict = command.verify(run_folder, digest=digest)
    rescored = []
    if rescore:
        rescored = command.rescore(run_folder, rescore, [str(path) for path in text or []])
        verdict.problems += [row["problem"] for row in rescored if row["problem"]]
    if as_json:
        print_json(
            {
                "claims": verdict.num_claims,
                "hold": verdict.num_good,
                "problems": verdict.problems,
                "rescored": rescored,
            }
        )
    else:
        for problem in verdict.problems:
            print(f"wrong: {problem}", file=sys.stderr)
        if rescored:
            print(f"{len(rescored)} documents scored again")
        print(command.SCOPE)
        print(verdict.line)
    return 0 if verdict.holds else 1


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(verify)

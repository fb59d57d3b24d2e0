"""stemma verify: do the numbers of a report follow from the sums?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, print_json


def verify(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    digest: Annotated[str | None, typer.Option(help="The run's digest, as published.")] = None,
    rescore: Annotated[int, typer.Option(min=0, help="Score this many random documents again.")] = 0,
    text: Annotated[list[Path] | None, typer.Option(help="Texts for --rescore.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Recompute every estimate and printed number from the sums."""
    from stemmatics.study.verify import PROVES
    from stemmatics.study.verify import verify as check

    verdict = check(run_folder, digest=digest)
    again = []
    if rescore:
        from stemmatics.commands.rescore import rescore as score_again

        again = score_again(run_folder, rescore, [str(path) for path in text or []])
        verdict.problems += [row["problem"] for row in again if row["problem"]]
    if as_json:
        print_json(
            {
                "claims": verdict.num_claims,
                "hold": verdict.num_good,
                "problems": verdict.problems,
                "rescored": again,
            }
        )
    else:
        for problem in verdict.problems:
            print(f"wrong: {problem}", file=sys.stderr)
        if again:
            print(f"{len(again)} documents scored again")
        print(PROVES)
        print(verdict.line)
    return 0 if verdict.holds else 1


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(verify)

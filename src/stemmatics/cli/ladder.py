"""stemma ladder: models in order of their loss after the recovery fine-tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def ladder(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    corpus: Annotated[str | None, typer.Option(help="One corpus (default: all).")] = None,
    as_json: AsJson = False,
) -> int:
    """Rank models by their loss after the recovery fine-tune.

    With ties, reversals, and the bases that had to be estimated.
    """
    from stemmatics.commands.ladder import ladders

    by_corpus = ladders(run_folder, corpus)
    if as_json:
        print_json([on_corpus.to_json() for on_corpus in by_corpus])
        return 0
    from stemmatics.cli.tables import print_table

    for on_corpus in by_corpus:
        for table in on_corpus.tables:
            print_table(table)
        for line in on_corpus.lines:
            print(line)
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(ladder)

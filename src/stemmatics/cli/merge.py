"""stemma merge: two runs in one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def merge(
    first: Annotated[Path, typer.Argument(metavar="A")],
    second: Annotated[Path, typer.Argument(metavar="B")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    as_json: AsJson = False,
) -> int:
    """Merge two runs with the same corpora and settings.

    Runs that differ in them are refused.
    """
    from stemmatics.commands.merge import merge as command

    merged = command(first, second, out)
    if as_json:
        print_json({"run": str(out), "checkpoints": merged.checkpoints, "facts": merged.num_facts})
    else:
        print(f"{out}: {len(merged.checkpoints)} checkpoints, {merged.num_facts} facts")
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(merge)

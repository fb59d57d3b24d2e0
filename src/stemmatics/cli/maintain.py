"""stemma merge, prune, cache: what is kept, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, print_json


def merge(
    first: Annotated[Path, typer.Argument(metavar="A")],
    second: Annotated[Path, typer.Argument(metavar="B")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Two runs with the same corpora and recipes into one; anything else is refused."""
    from stemmatics.commands.merge import merge as join

    outcome = join(first, second, out)
    if as_json:
        print_json({"run": str(out), "checkpoints": outcome.checkpoints, "facts": outcome.num_facts})
    else:
        print(f"{out}: {len(outcome.checkpoints)} checkpoints, {outcome.num_facts} facts")
    return 0


def prune(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Remove facts that the run's manifest no longer asks for."""
    from stemmatics.commands.prune import prune as remove

    removed = remove(run_folder)
    if as_json:
        print_json({"removed": removed})
    else:
        print(f"{len(removed)} facts removed")
    return 0


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove what is kept.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """List trained checkpoints that are kept between runs, or clear them."""
    from stemmatics.cli.tables import print_rows
    from stemmatics.store.cache import Cache

    kept = Cache()
    entries = kept.entries()
    removed = kept.clear() if clear else 0
    if as_json:
        print_json({"folder": str(kept.root), "entries": entries, "removed": removed})
        return 0
    print(f"cache: {kept.root}")
    if clear:
        print(f"{removed} checkpoints removed")
    else:
        rows = [
            {**entry, "key": entry["key"][:16], "MB": f"{entry['num_bytes'] / 1e6:.1f}"} for entry in entries
        ]
        print_rows(rows, ["label", "key", "MB"])
    return 0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (merge, prune, cache):
        app.command()(command)

"""stemma cache: what is kept between runs."""

from __future__ import annotations

from typing import Annotated

import typer

from stemmatics.cli.output import AsJson, print_json


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything from the cache.")] = False,
    as_json: AsJson = False,
) -> int:
    """List what is kept between runs, or remove it.

    Trained checkpoints, adapters and fitted corrections.
    """
    from stemmatics.cli.tables import print_rows
    from stemmatics.commands.cache import cache as command

    content = command(clear=clear)
    if as_json:
        print_json(
            {"folder": str(content.folder), "entries": content.entries, "removed": content.num_removed}
        )
        return 0
    print(f"cache: {content.folder}")
    if clear:
        print(f"{content.num_removed} entries removed")
    else:
        rows = [
            {**entry, "key": entry["key"][:16], "MB": f"{entry['num_bytes'] / 1e6:.1f}"}
            for entry in content.entries
        ]
        print_rows(rows, ["label", "key", "MB"])
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(cache)

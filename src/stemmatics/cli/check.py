"""stemma check: what is pinned, what differs, and what follows from it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import JSON_HELP, print_json, watching


def check(
    target: Annotated[
        str, typer.Argument(metavar="STEMMA_OR_CHECKPOINT", help="stemma.yaml or a checkpoint.")
    ],
    numerics: Annotated[
        bool, typer.Option("--numerics", help="Measure the spread over batch, padding, dtype, attention.")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option(help="Texts for --numerics (default: Python's own documents).")
    ] = None,
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustCode = False,
    allow_pickle: opt.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Pin, hash and compare; with --numerics, say which setting to use on this machine."""
    from stemmatics.commands import check as checks

    allow = {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
    with watching() as watcher:
        if Path(target).suffix in {".yaml", ".yml"}:
            found = checks.check_stemma(Path(target), on_step=watcher.step)
        else:
            found = checks.check_checkpoint(target, allow)
        if numerics:
            found["numerics"] = checks.check_numerics(target, text or [], device, allow, on_event=watcher)
    if as_json:
        print_json(found)
    else:
        _print(found)
    return 1 if any(row["severity"] == "refused" for row in found["findings"]) else 0


def _print(found: dict[str, Any]) -> None:
    from stemmatics.cli.tables import print_rows

    print_rows(found["checkpoints"], ["checkpoint", "kind", "revision", "weights", "tokenizer"])
    if found["findings"]:
        print_rows(found["findings"], ["pair", "field", "base", "descendant", "severity", "follows"])
    else:
        print("no mismatch found")
    if "numerics" in found:
        _print_spread(found["numerics"])


def _print_spread(spread: dict[str, Any]) -> None:
    from stemmatics.cli.tables import print_rows

    forms = {"nats/byte": ".6f", "largest": ".1e", "tokens/s": ",.0f"}
    rows = [
        {"setting": row["setting"]}
        | {name: "n/a" if math.isnan(row[name]) else format(row[name], form) for name, form in forms.items()}
        for row in spread["settings"]
    ]
    print_rows(rows, ["setting", *forms])
    print(f"reference: {spread['reference']}")
    print("largest: nats by which a document differs most from the reference")
    print(spread["advice"])


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(check)

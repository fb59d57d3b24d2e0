"""stemma check: what checkpoints are, what differs within each pair, and what consequence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson, print_json


def check(
    target: Annotated[
        str, typer.Argument(metavar="STEMMA_OR_CHECKPOINT", help="A stemma.yaml or a checkpoint.")
    ],
    numerics: Annotated[
        bool,
        typer.Option("--numerics", help="Measure how the loss varies with batch, padding, dtype, attention."),
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option(help="Texts for --numerics (default: Python's own documentation).")
    ] = None,
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustCode = False,
    allow_pickle: opt.AllowPickle = False,
    weights: opt.Weights = None,
    as_json: AsJson = False,
) -> int:
    """Check the checkpoints of a study before it is run.

    Pins and hashes them and compares each pair; with --numerics, recommends settings for this machine.
    """
    from stemmatics.cli.progress import watching
    from stemmatics.commands import check as command

    allow = {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
    with watching() as watcher:
        if Path(target).suffix in {".yaml", ".yml"}:
            report = command.check_stemma(Path(target), on_step=watcher.step)
        else:
            report = command.check_checkpoint(opt.with_weights(target, weights), allow)
        if numerics:
            report["numerics"] = command.check_numerics(
                opt.with_weights(target, weights), text or [], device, allow, on_event=watcher
            )
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 1 if any(row["severity"] == "refused" for row in report["findings"]) else 0


def _print(report: dict[str, Any]) -> None:
    from stemmatics.cli.tables import print_rows

    print_rows(report["checkpoints"], ["checkpoint", "kind", "revision", "weights", "tokenizer"])
    if report["findings"]:
        print_rows(report["findings"], ["pair", "field", "base", "descendant", "severity", "consequence"])
    else:
        print("no mismatches")
    if "numerics" in report:
        _print_spread(report["numerics"])


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
    print("largest: the largest difference of a document's loss from the reference, in nats")
    print(spread["advice"])


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(check)

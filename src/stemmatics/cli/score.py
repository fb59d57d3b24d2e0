"""stemma score: one checkpoint on some texts."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson, print_json

_SHOWN = 40


def score(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="org/name[@rev], folder, .gguf or BASE+ADAPTER.")
    ],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, Hub datasets.")],
    field: opt.Field = "text",
    register: opt.Register = None,
    render: opt.Render = None,
    role: opt.Role = "assistant",
    windows: opt.Rule = "tokens",
    window: opt.Window = None,
    stride: opt.Stride = None,
    prefix: opt.Prefix = "auto",
    max_doc_tokens: opt.MaxDocTokens = None,
    tokens: Annotated[
        Path | None, typer.Option(help="Write a per-token table (Parquet; it contains the text).")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace invalid UTF-8 and flag the document.")
    ] = False,
    device: opt.Device = "auto",
    dtype: opt.Dtype = "auto",
    attention: opt.Attention = "auto",
    batch_tokens: opt.BatchTokens = 8192,
    threads: opt.Threads = 0,
    trust_remote_code: opt.TrustCode = False,
    allow_pickle: opt.AllowPickle = False,
    weights: opt.Weights = None,
    as_json: AsJson = False,
) -> int:
    """Score texts with one checkpoint: the loss of each document."""
    from stemmatics.cli.progress import watching
    from stemmatics.commands.score import score as command

    with watching() as watcher:
        scored = command(
            opt.with_weights(checkpoint, weights),
            *texts,
            scoring=opt.scoring_of(windows, window, stride, prefix, max_doc_tokens),
            numerics=opt.numerics_of(device, dtype, attention, batch_tokens, threads),
            source=opt.source_of(field, register, render, role),
            tokens=tokens,
            errors="replace" if replace else "refuse",
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
            on_event=watcher,
        )
    if as_json:
        print_json(scored.to_json())
    else:
        _print_scored(scored)
    if not scored.total("num_tokens"):
        print("no token was scored: every document is empty or too short; give longer texts", file=sys.stderr)
    return 1 if scored.not_finite else 0


def _print_scored(scored: Any) -> None:
    from stemmatics.cli.tables import print_rows

    rows = [
        {
            "index": row["index"],
            "doc_id": row["doc_id"][:12],
            "nll_sum": f"{row['nll_sum']:.4f}",
            "tokens": row["num_tokens"],
            "bytes": row["num_bytes"],
            "nats/byte": f"{row['nll_sum'] / row['num_bytes']:.4f}" if row["num_bytes"] else "n/a",
            "flags": ", ".join(row["flags"]),
        }
        for row in scored.documents[:_SHOWN]
    ]
    print_rows(rows, ["index", "doc_id", "nll_sum", "tokens", "bytes", "nats/byte", "flags"])
    if len(scored.documents) > len(rows):
        print(f"({len(scored.documents) - len(rows)} more documents; --json prints all)")
    for name, meaning in scored.flags.items():
        print(f"flag {name}: {meaning}")
    if scored.not_finite:
        print(f"the loss of these documents is not finite: {scored.not_finite[:10]}; try --dtype float32")
    rates = ((scored.nats_per_byte, "nats/byte"), (scored.nats_per_token, "nats/token"))
    print(", ".join(f"{'n/a' if math.isnan(rate) else f'{rate:.6f}'} {unit}" for rate, unit in rates))


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(score)

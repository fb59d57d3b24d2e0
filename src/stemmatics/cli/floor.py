"""stemma floor: the base, damaged at random by as much as its descendant lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson, print_json


def floor(
    base: Annotated[str, typer.Argument(metavar="BASE")],
    match: Annotated[
        str, typer.Option(metavar="DESCENDANT", help="The model whose loss increase is matched.")
    ],
    text: opt.Texts,
    out: Annotated[Path, typer.Option(help="Folder to write the damaged checkpoint to.")],
    kind: Annotated[str, typer.Option(help="centred (changes no mean logit) or raw.")] = "centred",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise.")] = 0,
    field: opt.Field = "text",
    prefix: opt.Prefix = "auto",
    window: opt.Window = None,
    stride: opt.Stride = None,
    max_doc_tokens: opt.MaxDocTokens = None,
    device: opt.Device = "auto",
    dtype: opt.Dtype = "auto",
    attention: opt.Attention = "auto",
    batch_tokens: opt.BatchTokens = 8192,
    threads: opt.Threads = 0,
    trust_remote_code: opt.TrustCode = False,
    allow_pickle: opt.AllowPickle = False,
    as_json: AsJson = False,
) -> int:
    """Write the base, damaged by as much as a descendant lost.

    Noise on the head, matched to the loss increase: a checkpoint to test a claim on.
    """
    from stemmatics.cli.progress import watching
    from stemmatics.commands.floor import make_floor

    with watching() as watcher:
        damaged = make_floor(
            base,
            match,
            text,
            out,
            kind=kind,
            seed=seed,
            source=opt.source_of(field, None, None, "assistant"),
            scoring=opt.scoring_of("tokens", window, stride, prefix, max_doc_tokens),
            numerics=opt.numerics_of(device, dtype, attention, batch_tokens, threads),
            allow={"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle},
            on_step=watcher.step,
            on_event=watcher,
        )
    if as_json:
        print_json({"checkpoint": str(damaged.folder), **damaged.to_json()})
    else:
        print(
            f"{damaged.folder}: sigma {damaged.sigma:.6g}, loss increase {damaged.delta:+.5f} nats/token "
            f"(the descendant's: {damaged.target:+.5f})"
        )
    return 0


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(floor)

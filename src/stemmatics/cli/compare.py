"""stemma compare: a base and its descendants, without a config file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE")],
    descendant: Annotated[list[str], typer.Argument(metavar="DESCENDANT...")],
    text: opt.Texts,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/compare"),
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Also fine-tune both in the same way and compare what remains."),
    ] = False,
    recipe: Annotated[str, typer.Option(help="With --recover: S1, small or nano.")] = "small",
    pool: Annotated[
        list[str] | None,
        typer.Option(help="With --recover: text to fine-tune on (default: Python's language reference)."),
    ] = None,
    only: opt.Only = None,
    field: opt.Field = "text",
    register: opt.Register = None,
    windows: opt.Rule = "tokens",
    window: opt.Window = None,
    stride: opt.Stride = None,
    prefix: opt.Prefix = "auto",
    max_doc_tokens: opt.MaxDocTokens = None,
    device: opt.Device = "auto",
    dtype: opt.Dtype = "auto",
    attention: opt.Attention = "auto",
    batch_tokens: opt.BatchTokens = 8192,
    threads: opt.Threads = 0,
    trust_remote_code: opt.TrustCode = False,
    allow_pickle: opt.AllowPickle = False,
    weights: opt.Weights = None,
    timings: opt.Timings = False,
    as_json: AsJson = False,
) -> int:
    """Compare a base with its descendants on texts and write a report.

    Measures loss, divergence, prior and depth; with --recover also recovery.
    """
    from stemmatics.cli.outcome import show_outcome
    from stemmatics.cli.progress import watching
    from stemmatics.commands.compare import compare as command

    first, *others = opt.with_weights_of_any([base, *descendant], weights)
    with watching() as watcher:
        outcome = command(
            first,
            others,
            text,
            out,
            only=opt.names_of(only),
            source=opt.source_of(field, register, None, "assistant"),
            scoring=opt.scoring_of(windows, window, stride, prefix, max_doc_tokens),
            numerics=opt.numerics_of(device, dtype, attention, batch_tokens, threads),
            allow={"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle},
            recover=recipe if recover else None,
            pool=pool or [],
            on_event=watcher,
            on_step=watcher.step,
        )
    return show_outcome(outcome, timings=watcher.timings.rows() if timings else None, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(compare)

"""stemma score, compare: one checkpoint, one pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import JSON_HELP, print_json, watching


def score(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="org/name[@rev], folder, .gguf, BASE+ADAPTER.")
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
        Path | None, typer.Option(help="Write the per-token table (Parquet; it holds the text).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Mend bad bytes and flag the document.")] = False,
    device: opt.Device = "auto",
    dtype: opt.Dtype = "auto",
    attention: opt.Attention = "auto",
    batch_tokens: opt.BatchTokens = 8192,
    threads: opt.Threads = 0,
    trust_remote_code: opt.TrustCode = False,
    allow_pickle: opt.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Per-document sums of one checkpoint on texts."""
    from stemmatics.commands.score import score as run

    with watching() as watcher:
        scored = run(
            checkpoint,
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
        for row in scored.documents[:40]
    ]
    print_rows(rows, ["index", "doc_id", "nll_sum", "tokens", "bytes", "nats/byte", "flags"])
    if len(scored.documents) > len(rows):
        print(f"({len(scored.documents) - len(rows)} more documents; --json prints all)")
    for name, meaning in scored.flags.items():
        print(f"flag {name}: {meaning}")
    if scored.not_finite:
        print(f"not finite: the loss of documents {scored.not_finite[:10]}; try --dtype float32")
    print(f"{scored.nats_per_byte:.6f} nats/byte, {scored.nats_per_token:.6f} nats/token")


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE")],
    descendant: Annotated[str, typer.Argument(metavar="DESCENDANT")],
    text: Annotated[list[str], typer.Option(help="Files, folders, Hub datasets; may be given again.")],
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/compare"),
    recover: Annotated[
        bool, typer.Option("--recover", help="Also fine-tune both alike: what is left of the difference?")
    ] = False,
    recipe: Annotated[str, typer.Option(help="With --recover: S1, small or nano.")] = "small",
    pool: Annotated[
        list[str] | None,
        typer.Option(help="With --recover: what the fine-tune reads (default: Python's own reference)."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Measures, by comma: loss,prior.")] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """One pair, no config file: loss, where it went, prior, depth, recovery where asked for, a report."""
    from stemmatics.cli.run import measures_of, show_outcome
    from stemmatics.commands.compare import pair_stemma
    from stemmatics.study import run as study

    stemma = pair_stemma(
        base,
        descendant,
        text,
        name=out.name,
        source=opt.source_of(field, register, None, "assistant"),
        scoring=opt.scoring_of(windows, window, stride, prefix, max_doc_tokens),
        numerics=opt.numerics_of(device, dtype, attention, batch_tokens, threads),
        allow={"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle},
        recover=recipe if recover else None,
        pool=pool or [],
    )
    with watching() as watcher:
        outcome = study.run(stemma, out, only=measures_of(only), on_event=watcher, on_step=watcher.step)
    return show_outcome(outcome, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(score)
    app.command()(compare)

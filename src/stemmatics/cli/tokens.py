"""stemma tokens: the user's own text, coloured by what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson, print_json
from stemmatics.core.errors import UserError

DEFAULT_PAGE = Path("tokens.html")
_SHOWN = 12


def tokens(
    base: Annotated[str, typer.Argument(metavar="BASE", help="The base, or a run folder with --pair.")],
    text: opt.Texts,
    descendant: Annotated[str | None, typer.Argument(metavar="DESCENDANT")] = None,
    pair: Annotated[
        str | None, typer.Option(metavar="DESCENDANT", help="Of a run folder: the descendant to compare.")
    ] = None,
    document: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this document, counted from 0; can be repeated.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Page to write; it holds the text. [default: tokens.html]")
    ] = None,
    field: opt.Field = "text",
    replace: Annotated[bool, typer.Option("--replace", help="Replace invalid UTF-8.")] = False,
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
    as_json: AsJson = False,
) -> int:
    """Colour your own text by what changed, token by token.

    Writes one page that holds the text. With --json and no --html, prints the values and writes nothing.
    """
    from stemmatics.cli.progress import watching
    from stemmatics.commands import tokens as command
    from stemmatics.core.extras import require

    page = html if html is not None or as_json else DEFAULT_PAGE
    if page is not None:
        command.refuse_run_folder(page)
    from_run = _is_run(base, descendant, pair)
    require("lm", "scoring tokens")
    scoring = opt.scoring_of(windows, window, stride, prefix, max_doc_tokens)
    numerics = opt.numerics_of(device, dtype, attention, batch_tokens, threads)
    with watching() as watcher:
        if from_run:
            _refuse_settings(scoring, numerics)
        # first: a text that can't be read is refused before gigabytes of weights are hashed
        documents = command.read_documents(
            text,
            document or [],
            source=opt.source_of(field, None, None, "assistant"),
            errors="replace" if replace else "refuse",
        )
        if from_run:
            compared_pair = command.pair_of_run(Path(base), pair)
        else:
            compared_pair = command.pair_of_checkpoints(
                base,
                descendant or "",
                scoring=scoring,
                numerics=numerics,
                allow={"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle},
                on_step=watcher.step,
            )
        compared = command.compare_tokens(compared_pair, documents, on_event=watcher)
    if page is not None:
        compared.write_page(page)
    if as_json:
        print_json({"page": None if page is None else str(page), **compared.to_json()})
    else:
        _print(compared, page)
    return 0


def _is_run(base: str, descendant: str | None, pair: str | None) -> bool:
    """Whether the arguments name a run. Raises UserError where they contradict one another."""
    is_run = (Path(base) / "manifest.json").is_file()
    if is_run and descendant is not None:
        raise UserError(
            f"{base} is a run folder",
            "a run holds its own checkpoints",
            f"Type: stemma tokens {base} --pair {descendant}",
            code=2,
        )
    if not is_run and pair is not None:
        raise UserError(
            f"{base} is not a run folder",
            "--pair names a descendant of a run",
            "Name the descendant after the base, or give a run folder",
            code=2,
        )
    if not is_run and descendant is None:
        raise UserError(
            "no descendant is given",
            "two models are compared",
            "Type: stemma tokens BASE DESCENDANT --text FILE, or stemma tokens RUN --pair DESCENDANT",
            code=2,
        )
    return is_run


def _refuse_settings(scoring: Any, numerics: Any) -> None:
    """A run's pair is read with the run's settings: options that would change them are refused."""
    from stemmatics.core.numerics import Numerics
    from stemmatics.core.scoring import Scoring

    if scoring != Scoring() or numerics.key() != Numerics().key():
        raise UserError(
            "a run has settings of its own",
            "windows, prefix and precision are those of the run",
            "Leave these options out, or name the two checkpoints",
            code=2,
        )


def _print(compared: Any, page: Path | None) -> None:
    from stemmatics.cli.tables import print_rows

    rows = [
        {
            "document": str(row["document"]),
            "text": _flat(row["before"][-20:], row["token"], row["after"][:12]),
            "base": f"{row['base_nll']:.3f}",
            "descendant": f"{row['descendant_nll']:.3f}",
            "change": f"{row['delta_nll']:+.3f}",
            "KL": f"{row['kl']:.3f}",
        }
        for row in compared.largest(_SHOWN)
    ]
    print(f"{compared.num_tokens} tokens compared; the largest changes of loss, in nats:")
    print_rows(rows, ["document", "text", "base", "descendant", "change", "KL"])
    if page is not None:
        print(f"page (holds the text): {page}")


def _flat(before: str, token: str, after: str) -> str:
    """A token in its context, in one line."""
    return " ".join(f"{before}[{token}]{after}".split())


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(tokens)

"""stemma compare: a base and its descendants, without a config file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson
from stemmatics.core.errors import UserError

if TYPE_CHECKING:
    from stemmatics.commands.fail_if import Check

CONDITION_HOLDS = 3


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE")],
    descendant: Annotated[list[str], typer.Argument(metavar="DESCENDANT...")],
    text: opt.Texts,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/compare"),
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Also fine-tune both in the same way and compare what remains."),
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option(help="With --recover: S1, small or nano (default: the largest that --time allows)."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--time", min=0.1, help="With --recover: minutes that all fine-tunes may take (10)."),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(help="With --recover: text to fine-tune on (default: what comes with Python)."),
    ] = None,
    only: opt.Only = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPR",
            help='Exit with 3 where it holds, like "loss.delta > 0.02"; can be repeated. See below.',
        ),
    ] = None,
    fail_on_unclear: Annotated[
        bool,
        typer.Option(
            "--fail-on-unclear", help="With --fail-if: exit with 3 also where the interval does not decide."
        ),
    ] = False,
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
    from stemmatics.commands.compare import compare_if as command
    from stemmatics.commands.recipe_choice import AUTO

    if fail_on_unclear and not fail_if:
        raise UserError(
            "--fail-on-unclear is given without --fail-if",
            "there is no condition to decide",
            "Add a condition, or leave it out",
            code=2,
        )
    names = opt.names_of(only)
    recovers = recover or "recovery" in (names or [])
    given = {"--recipe": recipe, "--time": minutes, "--pool": pool}
    unused = [option for option, value in given.items() if value is not None]
    if unused and not recovers:
        raise UserError(
            f"{unused[0]} is given without --recover", "no model is fine-tuned", "Add --recover", code=2
        )
    if recipe is not None and minutes is not None:
        raise UserError(
            "--recipe and --time are both given", "a limit of time chooses a recipe", "Give one", code=2
        )
    first, *others = opt.with_weights_of_any([base, *descendant], weights)
    with watching() as watcher:
        outcome, checks = command(
            first,
            others,
            text,
            out,
            fail_if or [],
            only=names,
            source=opt.source_of(field, register, None, "assistant"),
            scoring=opt.scoring_of(windows, window, stride, prefix, max_doc_tokens),
            numerics=opt.numerics_of(device, dtype, attention, batch_tokens, threads),
            allow={"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle},
            recover=(recipe or AUTO) if recovers else None,
            minutes=minutes,
            pool=pool or [],
            on_event=watcher,
            on_step=watcher.step,
        )
    rows = watcher.timings.rows() if timings else None
    code = show_outcome(outcome, timings=rows, checks=checks, as_json=as_json)
    return code_of_checks(checks, code, fail_on_unclear=fail_on_unclear)


def code_of_checks(checks: list[Check], code: int, *, fail_on_unclear: bool) -> int:
    """The exit status: 3 where a condition holds, 1 where one could not be measured, else ``code``."""
    from stemmatics.commands.fail_if import HOLDS, NOT_MEASURED, UNCLEAR

    failing = {HOLDS, UNCLEAR, NOT_MEASURED} if fail_on_unclear else {HOLDS}
    failed = [check for check in checks if check.outcome in failing]
    for check in failed:
        print(f"--fail-if {check.line()}", file=sys.stderr)
    if failed:
        return CONDITION_HOLDS
    missing = [check for check in checks if check.outcome == NOT_MEASURED]
    for check in missing:
        print(f"--fail-if {check.line()}", file=sys.stderr)
    return 1 if missing else code


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command(epilog=_epilog())(compare)


def _epilog() -> str:
    from stemmatics.commands.fail_if import help_text

    return (
        "--fail-if takes a quantity, a comparison (>, >=, <, <=) and a number. It is checked on each text "
        "for every descendant, on the total or on a register, as in divergence.kl[register=code] > 0.1, and "
        f"holds where the whole interval does. Quantities: {help_text()}. "
        "Exit status: 0 done, 1 something failed or was not measured, 2 wrong use, 3 a --fail-if holds, "
        "130 interrupted."
    )

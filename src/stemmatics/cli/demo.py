"""stemma demo: the whole way on a built-in study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli import options as opt
from stemmatics.cli.output import AsJson


def demo(
    real: Annotated[
        bool, typer.Option("--real", help="Released weights (SmolLM2-135M-Instruct) instead of the nursery.")
    ] = False,
    timings: opt.Timings = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/demo or runs/demo-real).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The smallest nursery, to try things out.")] = False,
    as_json: AsJson = False,
) -> int:
    """Train small models with known answers, measure them, report.

    With --real: released weights and a descendant fine-tuned from them.
    """
    from stemmatics.cli.outcome import show_outcome
    from stemmatics.cli.progress import watching
    from stemmatics.commands.demo import demo as run

    with watching() as watcher:
        outcome = run(real=real, quick=quick, out=out, on_event=watcher, on_step=watcher.step)
    rows = watcher.timings.rows() if timings else None
    code = show_outcome(outcome, timings=rows, as_json=as_json)
    gate = outcome.content.results.category("gate.passed")
    if gate is None or gate.value == "passed":
        return code
    if not as_json:
        print(f"the nursery failed its gate: {gate.reason}")
    return 1


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(demo)

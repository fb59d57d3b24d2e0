"""stemma demo: the main job on the embedded default."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, watching


def demo(
    real: Annotated[
        bool, typer.Option("--real", help="Released weights (SmolLM2-135M-Instruct) instead of the nursery.")
    ] = False,
    timings: Annotated[bool, typer.Option("--timings", help="Print seconds by stage and measure.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default runs/demo or runs/demo-real).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The nursery at its smallest, for trying things out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """From nothing to a report: build, score, estimate, write the page."""
    from stemmatics.cli.run import show_outcome
    from stemmatics.presets.files import preset
    from stemmatics.study import run as study

    started = time.monotonic()
    root = out or Path("runs") / ("demo-real" if real else "demo")
    with watching() as watcher:
        stemma = preset(
            "smollm2-demo" if real else "nursery", scale="test" if quick else "demo", on_step=watcher.step
        )
        outcome = study.run(stemma, root, on_event=watcher, on_step=watcher.step)
    if timings and not as_json:
        _print_timings(watcher.seconds, time.monotonic() - started)
    code = show_outcome(outcome, as_json=as_json)
    gate = outcome.content.results.category("gate.passed")
    if gate is None or gate.value == "passed":
        return code
    if not as_json:
        print(f"the nursery failed its gate: {gate.reason}")
    return 1


def _print_timings(seconds: list[tuple[str, str, float]], total: float) -> None:
    """Seconds by stage and by kind of fact; what is left over is pinning, estimating and the page."""
    from stemmatics.cli.tables import print_rows

    rows = [
        {"what": f"{probe} {label}", "seconds": f"{spent:.1f}"}
        for probe, label, spent in seconds
        if probe in {"train", "alter"}
    ]
    kinds: dict[str, float] = {}
    for probe, _, spent in seconds:
        name = "nursery" if probe in {"train", "alter"} else probe
        kinds[name] = kinds.get(name, 0.0) + spent
    kinds["pinning, estimates and page"] = total - sum(kinds.values())
    rows += [{"what": f"all: {name}", "seconds": f"{spent:.1f}"} for name, spent in kinds.items()]
    print_rows([*rows, {"what": "all", "seconds": f"{total:.1f}"}], ["what", "seconds"])


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(demo)

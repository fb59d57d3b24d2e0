"""The whole way on a built-in study, from nothing to a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stemmatics.presets.files import preset
from stemmatics.store.ledger import Ledger
from stemmatics.store.schema import SCHEMA_VERSION
from stemmatics.study import run as engine
from stemmatics.study.run import Outcome


def demo(
    *,
    real: bool = False,
    quick: bool = False,
    out: str | Path | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> Outcome:
    """Build the nursery, or fine-tune released weights (``real``), then score, estimate and report.

    ``quick`` is the smallest nursery. A run of an earlier schema in the run folder is renamed: its
    checkpoints are in the cache and are not trained again.
    """
    root = Path("runs") / ("demo-real" if real else "demo") if out is None else Path(out)
    moved = set_aside(root)
    if moved is not None:
        on_step(f"{root} was written by an earlier stemmatics: it is now {moved}")
    stemma = (
        preset("smollm2-demo", on_step=on_step)
        if real
        else preset("nursery", scale="test" if quick else "demo")
    )
    return engine.run(stemma, root, on_event=on_event, on_step=on_step)


def set_aside(root: Path) -> Path | None:
    """Rename a run folder of an earlier schema to ``NAME-schemaN``; returns its new path, or None."""
    version = Ledger(root).stored_schema_version()
    if version is None or version >= SCHEMA_VERSION:
        return None
    target = root.with_name(f"{root.name}-schema{version}")
    number = 1
    while target.exists():
        number += 1
        target = root.with_name(f"{root.name}-schema{version}-{number}")
    return root.rename(target)

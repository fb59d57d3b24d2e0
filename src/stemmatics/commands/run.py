"""A whole study: everything that a stemma asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from stemmatics.core.load import load
from stemmatics.core.stemma import Stemma
from stemmatics.store.ledger import Ledger
from stemmatics.study import run as engine
from stemmatics.study.plan import Plan
from stemmatics.study.run import Outcome


def run(
    stemma: Stemma | str | Path,
    out: str | Path | None = None,
    *,
    only: Iterable[str] | None = None,
    retry_failed: bool = False,
    workers: int | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> Outcome:
    """Make every fact that is missing, estimate, write the report; continues where it stopped.

    Args:
        stemma: a declared study, or the path of its ``stemma.yaml``.
        out: the run folder; ``runs/NAME`` by default.
        only: measures to run; all by default.
        retry_failed: try facts that failed before once more.
        workers: worker processes; as declared by default.
        on_event: listens to the progress of facts.
        on_step: listens to the steps between them.

    Raises UserError for what can't be run: nothing has been started then.
    """
    declared, tree = _declared(stemma, workers)
    return engine.run(
        declared,
        run_folder(declared, out),
        only=only,
        tree=tree,
        retry_failed=retry_failed,
        on_event=on_event,
        on_step=on_step,
    )


def plan(
    stemma: Stemma | str | Path,
    out: str | Path | None = None,
    *,
    only: Iterable[str] | None = None,
    workers: int | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> Plan:
    """The facts that :func:`run` would make; nothing is run.

    A source that can't be reached is planned by the size that is declared of it.
    """
    declared, tree = _declared(stemma, workers)
    root = run_folder(declared, out)
    Ledger(root).refuse_other_schema()
    _, _, prepared = engine.prepare(declared, root, only=only, tree=tree, on_step=on_step, planning=True)
    return prepared


def run_folder(stemma: Stemma, out: str | Path | None) -> Path:
    """Where a study's run is written."""
    return Path("runs") / stemma.name if out is None else Path(out)


def _declared(stemma: Stemma | str | Path, workers: int | None) -> tuple[Stemma, Any]:
    """The study, and the YAML tree that knows its lines."""
    declared, tree = (stemma, None) if isinstance(stemma, Stemma) else load(Path(stemma))
    if workers is not None:
        numerics = declared.numerics.model_copy(update={"workers": workers})
        declared = declared.model_copy(update={"numerics": numerics})
    return declared, tree

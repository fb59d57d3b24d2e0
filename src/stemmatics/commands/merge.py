"""Merge two runs with the same corpora and settings into one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.store.ledger import Ledger
from stemmatics.study.plan import Plan
from stemmatics.study.read import OpenRun, open_run
from stemmatics.study.request import all_facts, resolve_requests
from stemmatics.study.run import finish

# what must be the same in both runs, and why
_SHARED = {
    "corpora": "sums on different texts can't be compared",
    "scoring": "sums scored with different settings can't be compared",
    "numerics": "sums computed in different precision can't be compared",
    "measures": "measures with different settings can't be compared",
    "selected measures": "a measure that only one of them ran (--only) would be incomplete",
    "seed": "their random draws differ",
}


@dataclass(frozen=True)
class Merged:
    """The checkpoints of the new run, and the number of its facts."""

    checkpoints: list[str]
    num_facts: int


def merge(first: Path, second: Path, out: Path) -> Merged:
    """Merge two runs with the same corpora and settings; nothing is run. Raises UserError if they differ."""
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} already exists", "nothing is overwritten", "Choose another --out", code=2)
    a, b = open_run(first), open_run(second)
    _refuse_different(a, b)
    stemma = _joined(a.pinned.stemma, b.pinned.stemma)
    pins = Pins(
        checkpoints={**a.pinned.pins.checkpoints, **b.pinned.pins.checkpoints},
        corpora=a.pinned.pins.corpora,
    )
    for run in (a, b):
        _copy(run.ledger, out)
    pinned, requests = resolve_requests(stemma, pins, only=a.manifest["measures"])
    ledger = Ledger(out)
    facts = all_facts(requests)
    finish(ledger, Pinned(stemma, pinned.pins), requests, Plan(facts, {}, {}))
    return Merged(stemma.names, len(facts))


def _refuse_different(a: OpenRun, b: OpenRun) -> None:
    for name, why in _SHARED.items():
        ours, theirs = (_declared(run, name) for run in (a, b))
        if ours != theirs:
            raise UserError(
                f"the runs differ in {name}",
                why,
                f"Merge runs with the same {name}, or declare all checkpoints in one study and run that",
            )
    for name in set(a.pinned.stemma.names) & set(b.pinned.stemma.names):
        if a.pinned.checkpoint(name) != b.pinned.checkpoint(name):
            raise UserError(
                f"{name!r} is not the same checkpoint in {a.ledger.root} and {b.ledger.root}",
                "its weights or its recipe differ",
                "Rename it in one of the two studies and run that study again",
            )


def _declared(run: OpenRun, name: str) -> Any:
    if name == "corpora":
        return {corpus: run.pinned.corpus(corpus).key for corpus in run.pinned.stemma.corpora}
    if name == "selected measures":
        return run.manifest["measures"]
    if name == "numerics":
        return run.pinned.stemma.numerics.key()
    return getattr(run.pinned.stemma, name)


def _joined(a: Stemma, b: Stemma) -> Stemma:
    joined = a.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    other = b.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for part in ("checkpoints", "stages"):
        joined[part] = {**joined.get(part, {}), **other.get(part, {})}
    return Stemma.model_validate(joined)


def _copy(ledger: Ledger, out: Path) -> None:
    """A fact's record is copied after its tables: it says that the fact is complete."""
    for folder in ("tables", "facts", "failed"):
        if (ledger.root / folder).is_dir():
            shutil.copytree(ledger.root / folder, out / folder, dirs_exist_ok=True)

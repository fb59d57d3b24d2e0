"""Remove the facts that no current measure needs."""

from __future__ import annotations

from pathlib import Path

from stemmatics.store.ledger import Ledger


def prune(root: Path) -> list[str]:
    """Remove facts that are not in the manifest and files of no fact; returns the keys of the facts."""
    ledger = Ledger(root)
    current = set(ledger.manifest()["facts"])
    removed = [key for key in ledger.done() if key not in current]
    for key in removed:
        ledger.drop(key)
    referenced = {name for key in ledger.done() for name in ledger.fact_record(key)["files"]}
    for path in list(ledger.table_files()):
        if path.relative_to(root).as_posix() not in referenced:
            path.unlink()
    # private files are named by the fact that wrote them
    done = set(ledger.done())
    for path in (root / "private").glob("*-*.*"):
        if path.stem.rpartition("-")[2] not in done:
            path.unlink()
    for key in ledger.failures():
        if key not in current:
            ledger.forget_failure(key)
    return removed

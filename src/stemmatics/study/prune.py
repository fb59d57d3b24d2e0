"""Facts that nobody asks for any more."""

from __future__ import annotations

from pathlib import Path

from stemmatics.store.ledger import Ledger


def prune(root: Path) -> list[str]:
    """Remove facts that are not in the manifest, and files that belong to none; returns the facts' keys."""
    ledger = Ledger(root)
    current = set(ledger.manifest()["facts"])
    removed = [key for key in ledger.done() if key not in current]
    for key in removed:
        ledger.drop(key)
        # texts that a fact left beside the sums, named by its key
        for path in (root / "private").glob(f"*-{key}.*"):
            path.unlink()
    kept = {name for key in ledger.done() for name in ledger.fact_record(key)["files"]}
    for path in list(ledger.table_files()):
        if path.relative_to(root).as_posix() not in kept:
            path.unlink()
    for key in ledger.failures():
        if key not in current:
            ledger.forget_failure(key)
    return removed

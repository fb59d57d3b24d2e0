"""The progress of a run, by checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.study.content import NOT_RUN, reasons_of
from stemmatics.study.read import open_run
from stemmatics.study.request import all_facts


def status_of(root: Path) -> list[dict[str, Any]]:
    """Facts done, failed and remaining for each checkpoint, and the first failure's reason.

    Facts that belong to no checkpoint are in the row ``corpora``.
    """
    run = open_run(root)
    facts = all_facts(run.requests)
    reasons = reasons_of(facts, run.ledger)
    names = {run.pinned.checkpoint(name).key: name for name in run.pinned.stemma.names}
    rows: dict[str, dict[str, Any]] = {
        name: {"checkpoint": name, "done": 0, "failed": 0, "left": 0, "why": ""}
        for name in [*run.pinned.stemma.names, "corpora"]
    }
    for key, fact in facts.items():
        row = rows[_owner(fact, names)]
        if run.ledger.has(key):
            row["done"] += 1
        elif reasons[key] == NOT_RUN:
            row["left"] += 1
        else:
            row["failed"] += 1
            row["why"] = row["why"] or f"{fact.probe}: {reasons[key]}"
    return list(rows.values())


def _owner(fact: Fact, names: dict[str, str]) -> str:
    if fact.key in names:
        return names[fact.key]
    checkpoint = fact.needs.get("checkpoint", fact.needs.get("init"))
    while checkpoint is not None and checkpoint.key not in names and "init" in checkpoint.needs:
        checkpoint = checkpoint.needs["init"]
    return "corpora" if checkpoint is None else names.get(checkpoint.key, "corpora")

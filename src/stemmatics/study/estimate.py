"""Estimates and claims of a run: made, stored as facts, read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stemmatics.core.estimates import Claim, Estimate, Sentence
from stemmatics.core.pinned import Pinned
from stemmatics.measure.base import Findings
from stemmatics.report.printed import Printer
from stemmatics.store.ledger import Ledger
from stemmatics.store.schema import SCHEMAS
from stemmatics.study.asked import Asked, StoredTables


@dataclass(frozen=True)
class Answer:
    """What one measure found."""

    asked: Asked
    estimates: dict[str, Estimate]
    findings: Findings

    def claims(self) -> list[tuple[Claim, Sentence | None]]:
        """Every number that a page prints, once, with its sentence if it has one."""
        printer = Printer(self.estimates)
        said: dict[str, Sentence] = {}
        for sentence in self.findings.sentences:
            printer.sentence(sentence)
            for claim in sentence.claims():
                said.setdefault(claim.id, sentence)
        for table in self.findings.tables:
            for row in table.rows:
                for cell in row:
                    printer.cell(cell)
                    printer.interval(cell, row)
            printer.brackets(table)
        return [(claim, said.get(claim.id)) for claim in printer.claims]


def answer(pinned: Pinned, asked: Asked, ledger: Ledger) -> Answer:
    """Estimate and say, from the sums alone. Pure but for reading the run's tables."""
    rng = asked.generator(pinned.stemma.seed)
    made = asked.measure.estimate(pinned, asked.settings, StoredTables(ledger), rng)
    estimates: dict[str, Estimate] = {}
    for estimate in made:
        if estimate.id in estimates:
            message = f"two estimates are called {estimate.id}"
            raise AssertionError(message)
        estimates[estimate.id] = estimate
    return Answer(asked, estimates, asked.measure.findings(pinned, asked.settings, estimates))


def store(pinned: Pinned, found: Answer, ledger: Ledger) -> str:
    """Write an answer as a fact; returns its key. The same sums give the same key: kept as it is."""
    done = [fact for fact in found.asked.facts if ledger.has(fact.key)]
    fact = found.asked.estimate_fact(pinned, done)
    ledger.record(fact, {"estimates": _estimates_table(found), "claims": _claims_table(found)})
    return fact.key


def _estimates_table(found: Answer) -> pa.Table:
    rows = []
    for estimate in found.estimates.values():
        row = estimate.row()
        row["subject"] = json.dumps(row["subject"], sort_keys=True)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMAS["estimates"])


def _claims_table(found: Answer) -> pa.Table:
    rows = [
        {
            "id": claim.id,
            "estimate": claim.estimate,
            "field": claim.field,
            "form": claim.form,
            "scale": claim.scale,
            "text": claim.text(found.estimates),
            "sentence": "" if sentence is None else sentence.plain(found.estimates),
            "topic": "" if sentence is None else sentence.topic,
        }
        for claim, sentence in found.claims()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["claims"])


def read_estimates(ledger: Ledger, key: str) -> dict[str, Estimate]:
    """Stored estimates by id; null numbers come back as NaN."""
    return {row["id"]: estimate_of(row) for row in ledger.read("estimates", key).to_pylist()}


def estimate_of(row: Mapping[str, Any]) -> Estimate:
    """One stored row as an Estimate."""
    numbers = {
        name: math.nan if row[name] is None else row[name]
        for name in ("value", "lo", "hi", "level", "smallest_effect")
    }
    return Estimate(
        measure=row["measure"],
        quantity=row["quantity"],
        subject=json.loads(row["subject"]),
        method=row["method"],
        n=row["n"],
        unit=row["unit"],
        units=row["units"],
        tag=row["tag"],
        facts=tuple(row["facts"]),
        note=row["note"],
        **numbers,
    )


def differences(
    made: Mapping[str, Estimate], stored: Mapping[str, Estimate], *, relative: float
) -> dict[str, str]:
    """Which estimates differ, by id, and how. Numbers within ``relative`` of each other agree."""
    found: dict[str, str] = {}
    for name in sorted({*made, *stored}):
        if name not in stored:
            found[name] = "is missing"
        elif name not in made:
            found[name] = "does not follow from the sums: nothing makes it"
        else:
            different = [
                f"{field} is {theirs!r}, the sums give {ours!r}"
                for field, ours, theirs in _fields(made[name], stored[name])
                if not _agree(ours, theirs, relative)
            ]
            if different:
                found[name] = "; ".join(different)
    return found


def _fields(made: Estimate, stored: Estimate) -> Sequence[tuple[str, Any, Any]]:
    ours, theirs = made.row(), stored.row()
    return [(name, ours[name], theirs[name]) for name in ours]


def _agree(ours: Any, theirs: Any, relative: float) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-12)
    return bool(ours == theirs)

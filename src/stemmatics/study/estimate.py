"""Results and claims of a run: computed from sums, stored as facts, read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.results import Category, Claim, Estimate, Refusal, Result, Results, Sentence
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings
from stemmatics.report.first_screen import printed_claims
from stemmatics.report.printed import Printer
from stemmatics.store.ledger import Ledger
from stemmatics.store.schema import RESULT_SCHEMAS
from stemmatics.study.request import MeasureRequest, StoredTables

_KINDS: dict[str, type[Estimate | Category | Refusal]] = {
    "estimates": Estimate,
    "categories": Category,
    "refusals": Refusal,
}


@dataclass(frozen=True)
class Evaluation:
    """The results of one measure and their presentation."""

    request: MeasureRequest
    results: Results
    findings: Findings

    def claims(self) -> list[tuple[Claim, Sentence | None]]:
        """Every claim that a page prints, once, with its sentence if it has one."""
        printer = Printer(self.results)
        sentences: dict[str, Sentence] = {}
        for sentence in [*self.findings.sentences, *(self.findings.headlines or ())]:
            printer.sentence(sentence)
            for claim in sentence.claims():
                sentences.setdefault(claim.id, sentence)
        for column in self.findings.columns:
            for answer in column.answers:
                for claim in printed_claims(answer, self.results):
                    printer.number(claim)
        for table in self.findings.tables:
            for row in table.rows:
                for cell in row:
                    printer.cell(cell)
                    printer.interval(cell, row)
            printer.brackets(table)
        return [(claim, sentences.get(claim.id)) for claim in printer.claims]


def evaluate(pinned: Pinned, request: MeasureRequest, ledger: Ledger) -> Evaluation:
    """Compute results from the sums. Reads the run's tables and nothing else."""
    rng = request.generator(pinned.stemma.seed)
    results = Results(request.measure.estimate(pinned, request.settings, StoredTables(ledger), rng))
    return Evaluation(request, results, request.measure.findings(pinned, request.settings, results))


def load_evaluation(pinned: Pinned, request: MeasureRequest, ledger: Ledger, key: str) -> Evaluation:
    """The stored results of a measure; only their presentation is computed."""
    results = read_results(ledger, key)
    return Evaluation(request, results, request.measure.findings(pinned, request.settings, results))


def store_evaluation(pinned: Pinned, evaluation: Evaluation, ledger: Ledger) -> str:
    """Write results and claims as a fact; returns its key. The same sums give the same key."""
    request = evaluation.request
    done = [fact for fact in request.facts if ledger.has(fact.key)]
    fact: Fact = request.estimate_fact(pinned, done)
    tables = {name: _result_table(name, evaluation.results) for name in _KINDS}
    ledger.record(fact, {**tables, "claims": _claims_table(evaluation)})
    return fact.key


def _result_table(name: str, results: Results) -> pa.Table:
    rows = []
    for result in results.values():
        if isinstance(result, _KINDS[name]):
            row = result.row()
            row["subject"] = json.dumps(row["subject"], sort_keys=True)
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=RESULT_SCHEMAS[name])


def _claims_table(evaluation: Evaluation) -> pa.Table:
    rows = [
        {
            "id": claim.id,
            "result": claim.result,
            "field": claim.field,
            "form": claim.form,
            "scale": claim.scale,
            "text": claim.text(evaluation.results),
            "sentence": "" if sentence is None else sentence.plain(evaluation.results),
            "topic": "" if sentence is None else sentence.topic,
        }
        for claim, sentence in evaluation.claims()
    ]
    return pa.Table.from_pylist(rows, schema=RESULT_SCHEMAS["claims"])


def read_results(ledger: Ledger, key: str) -> Results:
    """Stored results: estimates first, then categories, then refusals; null numbers become NaN.

    Raises UserError where an id does not match quantity and subject, or occurs twice.
    """
    results: dict[str, Result] = {}
    for name, kind in _KINDS.items():
        for row in ledger.read(key, name).to_pylist():
            result = _result_of(kind, row)
            if row["id"] != result.id or result.id in results:
                twice = row["id"] == result.id
                raise UserError(
                    f"result {row['id']} is {'stored twice' if twice else f'the result {result.id}'}",
                    "an id follows from quantity and subject and is unique",
                    "Run the study again: results are computed from the stored sums",
                )
            results[result.id] = result
    return Results(results.values())


def _result_of(kind: type[Estimate | Category | Refusal], row: Mapping[str, Any]) -> Result:
    values = {name: value for name, value in row.items() if name != "id"}
    values["subject"] = json.loads(row["subject"])
    values["facts"] = tuple(row["facts"])
    if kind is Estimate:
        for name in ("value", "lo", "hi", "level", "smallest_effect"):
            values[name] = math.nan if row[name] is None else row[name]
    return kind(**values)


def results_frame(results: Results) -> pa.Table:
    """The estimates as an Arrow table, the subject as a struct; unknown numbers are null."""
    return pa.Table.from_pylist([estimate.row() for estimate in results.estimates()])


def differences(
    computed: Mapping[str, Result], stored: Mapping[str, Result], *, relative: float
) -> dict[str, str]:
    """Which results differ, by id, and how. Numbers within ``relative`` of each other agree."""
    problems: dict[str, str] = {}
    for name in sorted({*computed, *stored}):
        if name not in stored:
            problems[name] = "is missing"
        elif name not in computed:
            problems[name] = "does not follow from the sums: no measure computes it"
        elif type(computed[name]) is not type(stored[name]):
            ours, theirs = (type(result).__name__.lower() for result in (computed[name], stored[name]))
            problems[name] = f"is stored as {theirs}, the sums give {ours}"
        else:
            different = [
                f"{field} is {theirs!r}, the sums give {ours!r}"
                for field, ours, theirs in _fields(computed[name], stored[name])
                if not _agree(ours, theirs, relative)
            ]
            if different:
                problems[name] = "; ".join(different)
    return problems


def _fields(computed: Result, stored: Result) -> Sequence[tuple[str, Any, Any]]:
    ours, theirs = computed.row(), stored.row()
    return [(name, ours[name], theirs[name]) for name in ours]


def _agree(ours: Any, theirs: Any, relative: float) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-12)
    return bool(ours == theirs)

"""What the measure `gate` says in words."""

from __future__ import annotations

from stemmatics.core.results import Results, Sentence
from stemmatics.measure.gate.estimate import FAILED
from stemmatics.measure.present import claim


def sentences(results: Results) -> list[Sentence]:
    """Whether the nursery passed, and what it did not."""
    overall = results.category("gate.passed")
    if overall is None:
        return []
    text = "The nursery {verdict} its gate"
    text += ": {reason}." if overall.value == FAILED else "."
    return [Sentence(text, {"verdict": claim(overall), "reason": claim(overall, field="reason")})]


def failures(results: Results) -> list[str]:
    """Each check that failed and why, or the facts without which nothing could be checked."""
    overall = results.category("gate.passed")
    failed = [check for check in results.categories("gate.check") if check.value == FAILED]
    if failed:
        return [f"not passed: {check.subject['check']} ({check.reason})" for check in failed]
    return [overall.reason] if overall is not None and overall.value == FAILED else []

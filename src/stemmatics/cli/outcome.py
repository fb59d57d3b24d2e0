"""What `run`, `compare` and `demo` print when a study has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.cli.output import print_json


def show_outcome(
    outcome: Any,
    *,
    timings: Sequence[Mapping[str, Any]] | None = None,
    checks: Sequence[Any] = (),
    as_json: bool,
) -> int:
    """Summary, conditions, failures, and where the report is; returns the exit status without conditions."""
    from stemmatics.report.tables import plain_summary

    code = 1 if outcome.failures else 0
    summary = plain_summary(outcome.content)
    page = outcome.root / "report.html"
    if as_json:
        document = {
            "run": str(outcome.root),
            "report": str(page),
            "digest": outcome.digest,
            "summary": summary,
            "failures": outcome.failures,
            **results_json(outcome.content.results),
        }
        if checks:
            document["fail_if"] = [check.row() for check in checks]
        print_json(document if timings is None else {**document, "timings": timings})
        return code
    from stemmatics.cli.tables import print_first_screen, print_summary_table
    from stemmatics.cli.timings import print_timings

    if timings is not None:
        print_timings(timings)
    # a study without pairs has no first screen
    if not print_first_screen(outcome.content):
        print_summary_table(outcome)
    for line in summary:
        print(line)
    for check in checks:
        print(f"--fail-if {check.line()}")
    for name, reason in outcome.failures.items():
        print(f"failed: {name}: {reason}")
    print(f"report: {page}")
    print(f"digest: {outcome.digest}")
    return code


def results_json(results: Any) -> dict[str, Any]:
    """Estimates, categories and refusals as plain data."""
    from stemmatics.core.results import Category

    return {
        "estimates": [estimate.row() for estimate in results.estimates()],
        "categories": [result.row() for result in results.values() if isinstance(result, Category)],
        "refusals": [refusal.row() for refusal in results.refusals()],
    }

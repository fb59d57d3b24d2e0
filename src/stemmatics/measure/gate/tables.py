"""The table of the measure `gate`."""

from __future__ import annotations

from stemmatics.core.content import Table
from stemmatics.core.results import Results
from stemmatics.measure.present import claim, claim_if, table, with_rows

_FORM = "{:.3g}"


def tables(results: Results) -> list[Table]:
    """One row per check; a value that is only reported has neither limit nor verdict."""
    rows = []
    for value in results.all("gate.value"):
        check = value.subject["check"]
        limit = results.find("gate.limit", check=check)
        verdict = results.category("gate.check", check=check)
        rows.append([check, claim(value, _FORM), claim_if(limit, _FORM), value.units, claim_if(verdict)])
    columns = ["condition", "value", "limit", "units", "verdict"]
    return with_rows(table("gate/summary", "What the nursery must show", columns, rows))

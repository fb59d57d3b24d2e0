"""The data of a page as one JSON block: printed results, claims and every table, for scripts and readers.

The block is documented in docs/report.md; its keys are checked by ``tests/report/test_page_data.py``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stemmatics.core.content import Content, Table
from stemmatics.core.results import Category, Claim, Estimate, Refusal, Result, result_id
from stemmatics.report.first_screen import rows_of
from stemmatics.report.printed import Printer, interval_columns, interval_of, is_number_column

FORMAT = "stemmatics-page/1"
ELEMENT_ID = "page-data"
# of numbers in the block; what is printed comes from the exact ones
_DIGITS = 9


def page_data(content: Content, table_ids: Sequence[tuple[str, Table]], printer: Printer) -> dict[str, Any]:
    """The block of a page whose static part ``printer`` has printed. Counts the tables' claims in it.

    ``table_ids`` are the tables with their element ids, in the order of the page.
    """
    tables = [_Encoder(printer).table(element_id, table) for element_id, table in table_ids]
    index_of = {claim.id: index for index, claim in enumerate(printer.claims)}
    for table in tables:
        table["rows"] = [[_with_indices(cell, index_of) for cell in row] for row in table["rows"]]
    names = list(dict.fromkeys(claim.result for claim in printer.claims))
    groups, order = _grouped([content.results[name] for name in names])
    forms = list(dict.fromkeys((claim.field, claim.form, claim.scale) for claim in printer.claims))
    form_of = {form: index for index, form in enumerate(forms)}
    claims = [
        [
            order[claim.result],
            form_of[claim.field, claim.form, claim.scale],
            claim.text(content.results),
            printer.times[claim.id],
        ]
        for claim in printer.claims
    ]
    return {
        "format": FORMAT,
        "title": content.title,
        "digest": content.provenance.get("digest"),
        "runs": dict(content.runs),
        "first_screen": list(_first_screen(content, index_of)),
        "results": groups,
        "forms": [list(form) for form in forms],
        "claims": claims,
        "tables": tables,
    }


class _Encoder:
    """Cells of tables with their claims as claims; the printer counts them."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    def table(self, element_id: str, table: Table) -> dict[str, Any]:
        results = self._printer.results
        intervals = interval_columns(table, results)
        return {
            "id": element_id,
            "name": table.name,
            "columns": [
                {
                    "title": column,
                    "number": is_number_column(table.rows, index, results),
                    "interval": intervals[index],
                }
                for index, column in enumerate(table.columns)
            ],
            "rows": [[self._cell(cell, row) for cell in row] for row in table.rows],
        }

    def _cell(self, cell: Any, row: Sequence[Any]) -> Any:
        # a bare float is refused as in the static part
        self._printer.cell(cell)
        interval = interval_of(cell, row, self._printer.results)
        if interval is None:
            return cell
        self._printer.interval(cell, row)
        return (cell, interval.lo, interval.hi)


def _with_indices(cell: Any, index_of: Mapping[str, int]) -> Any:
    """A claim as its number, one with an interval as three numbers, a count as ``{"count": n}``."""
    if isinstance(cell, Claim):
        return index_of[cell.id]
    if isinstance(cell, tuple):
        return [index_of[claim.id] for claim in cell]
    if isinstance(cell, int):
        return {"count": cell}
    return None if cell is None else str(cell)


def _grouped(results: Sequence[Result]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Results with one heading for all that differ in subject and numbers only, and each one's position."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_heading(result), []).append(result)
    position = 0
    order: dict[str, int] = {}
    listed = []
    for heading, members in groups.items():
        kind, measure, quantity, subject, tag, *rest = heading
        group = {"kind": kind, "measure": measure, "quantity": quantity, "subject": list(subject), "tag": tag}
        if kind == "estimate":
            level, method, unit, units, note = rest
            group |= {"level": level, "method": method, "unit": unit, "units": units, "note": note}
        group["rows"] = [_row(result) for result in members]
        for result in members:
            order[result.id] = position
            position += 1
        listed.append(group)
    return listed, order


def _heading(result: Result) -> tuple[Any, ...]:
    common = (result.measure, result.quantity, tuple(result.subject), result.tag)
    if isinstance(result, Estimate):
        return ("estimate", *common, result.level, result.method, result.unit, result.units, result.note)
    return ("category" if isinstance(result, Category) else "refusal", *common)


def _row(result: Result) -> list[Any]:
    subject = list(result.subject.values())
    if isinstance(result, Estimate):
        numbers = [_short(value) for value in (result.value, result.lo, result.hi)]
        return [*subject, *numbers, result.n, _short(result.smallest_effect)]
    if isinstance(result, Refusal):
        return [*subject, result.reason, result.fix]
    return [*subject, result.value, result.reason, result.n, result.unit]


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _first_screen(content: Content, index_of: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for row in rows_of(content):
        for column, answer in zip(content.columns, row.answers, strict=True):
            yield {
                "base": row.base,
                "descendant": row.descendant,
                "question": column.name,
                "answer": answer.word if answer else "not measured",
                "mark": answer.mark if answer else "not measured",
                "claim": index_of[answer.number.id] if answer and answer.number else None,
            }


def to_json(data: Mapping[str, Any]) -> str:
    """The block as text: one line a row, and no sign that could end its element."""
    lines = [
        f"{json.dumps(name)}: {_lines(value) if isinstance(value, list) else _dumped(value)}"
        for name, value in data.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}"


def _lines(values: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(_dumped(value) for value in values) + "\n]"


def _dumped(value: Any) -> str:
    if isinstance(value, dict) and "rows" in value:
        inner = [
            f"{json.dumps(name)}: {_lines(item) if name == 'rows' else _dumped(item)}"
            for name, item in value.items()
        ]
        return "{" + ", ".join(inner) + "}"
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def claims_of(data: Mapping[str, Any]) -> tuple[list[tuple[str, str, int]], Counter[str]]:
    """The list of claims (id, text, times) and how often each is printed in the tables of a block.

    Raises KeyError, TypeError, IndexError or ValueError for a block that was altered into another shape.
    """
    names = [
        result_id(group["quantity"], dict(zip(group["subject"], row, strict=False)))
        for group in data["results"]
        for row in group["rows"]
    ]
    ids = []
    listed = []
    for result, form, text, times in data["claims"]:
        field, template, scale = data["forms"][form]
        ids.append(f"{names[result]}#{field}#{template}#{float(scale):g}")
        listed.append((ids[-1], str(text), int(times)))
    times_of: Counter[str] = Counter()
    for table in data["tables"]:
        for row in table["rows"]:
            for cell in row:
                indices = cell if isinstance(cell, list) else [cell] if isinstance(cell, int) else []
                times_of.update(ids[index] for index in indices)
    return listed, times_of

"""The report as one HTML file that makes no network requests."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stemmatics.core.content import (
    CLEAR,
    NOT_MEASURED,
    Answer,
    Chart,
    Column,
    Content,
    Named,
    Node,
    Section,
    Table,
)
from stemmatics.core.results import Claim
from stemmatics.report.first_screen import (
    BAR_HEIGHT,
    BAR_WIDTH,
    MARKS,
    Bar,
    bars_of,
    has_effect,
    rows_of,
    value_of,
    why_not,
)
from stemmatics.report.page_data import page_data, to_json
from stemmatics.report.printed import Printer, interval_columns, is_number_column, literal, name
from stemmatics.report.theme import PAGE_FONT, config, for_drawing
from stemmatics.report.tree import lay_out
from stemmatics.store.files import write_bytes

_LONGEST_SLUG = 48  # bytes; a file name of five of them, with hashes, stays under 255 + suffix


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("stemmatics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = literal
    environment.filters["name"] = name
    environment.filters["spoken"] = _spoken
    return environment


def render_page(content: Content) -> tuple[str, list[Claim]]:
    """The page and the claims that it prints, once each, in order. Deterministic."""
    printer = Printer(content.results)
    environment = _environment()
    ids: set[str] = set()
    tables: list[tuple[str, Table]] = []
    summary = [printer.sentence(sentence) for sentence in content.summary]
    sections = [_section(section, printer, ids, tables) for section in content.sections]
    screen = _first_screen(content, printer, {table.name: element_id for element_id, table in tables})
    has_charts = any(section["charts"] for section in sections)
    data = to_json(page_data(content, tables, printer))
    script = _source("page.js")
    # 0.9 MB that a page without charts does not need
    library = _library() if has_charts else ""
    html = environment.get_template("page.html.j2").render(
        title=content.title,
        digest=str(content.provenance.get("digest", ""))[:8],
        version=content.provenance.get("versions", {}).get("stemmatics", ""),
        screen=screen,
        summary=summary,
        sections=sections,
        failures=content.failures,
        notices=content.notices,
        drawing=lay_out(_on_first_screen(content)),
        nodes=content.nodes,
        runs=content.runs,
        provenance=_tree_of_values(content.provenance),
        num_claims=len(printer.claims),
        data=Markup(data),  # noqa: S704 - its signs are escaped as JSON
        style=_trusted("style.css"),
        script=Markup(script),  # noqa: S704 - a file of this package, not input
        library=library,
        hashes=[_hash(text) for text in (script, str(library)) if text],
        licences=_source("licences.txt"),
        themes={"light": config(font=PAGE_FONT), "dark": config(dark=True, font=PAGE_FONT)},
    )
    return html, printer.claims


# rows of a section's main table that are shown without a click
MAIN_ROWS = 15
# sentences of a section that are shown without a click
MAIN_SENTENCES = 4


def _hash(script: str) -> str:
    """What a policy names a script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _on_first_screen(content: Content) -> list[Node]:
    """The checkpoints of the first table, with all that they were made from."""
    parent_of = {node.name: node.parent for node in content.nodes}
    shown: set[str] = set()
    for row in rows_of(content):
        for checkpoint in (row.base, row.descendant):
            current: str | None = checkpoint
            while current is not None and current not in shown:
                shown.add(current)
                current = parent_of.get(current)
    return [node for node in content.nodes if node.name in shown] or list(content.nodes)


def _first_screen(content: Content, printer: Printer, table_ids: Mapping[str, str]) -> dict[str, Any]:
    bars = [bars_of(column, content.results) for column in content.columns]
    rows = []
    for row in rows_of(content):
        cells = []
        for column, answer, bars_here in zip(content.columns, row.answers, bars, strict=True):
            link = table_ids.get(column.evidence)
            cells.append(_answer(answer, column, bars_here, printer, link))
        rows.append({"descendant": row.descendant, "base": row.base, "regime": row.regime, "cells": cells})
    return {
        "columns": content.columns,
        "rows": rows,
        "bar": {"width": BAR_WIDTH, "height": BAR_HEIGHT},
        "bases": len({row["base"] for row in rows}),
    }


def _answer(
    answer: Answer | None,
    column: Column,
    bars: Mapping[tuple[str, str], Bar],
    printer: Printer,
    link: str | None,
) -> dict[str, Any]:
    if answer is None or answer.number is None:
        return {"mark": NOT_MEASURED, "why": why_not(answer, column), "link": link}
    results = printer.results
    value = value_of(answer.number, results)
    number = printer.number(answer.number)
    effect = answer.effect if has_effect(answer, results) else None
    return {
        "mark": answer.mark,
        "sign": MARKS[answer.mark],
        "word": answer.word,
        "direction": answer.direction if answer.mark == CLEAR else "unclear",
        "value": "" if math.isnan(value) else repr(value),
        "number": number,
        "interval": printer.interval(answer.number, [answer.number]),
        "before": None if answer.before is None else printer.number(answer.before),
        "before_interval": printer.interval(answer.before, [answer.before]),
        "effect": None if effect is None else printer.number(effect),
        "bar": bars.get((answer.base, answer.descendant)),
        "link": link,
    }


def write_page(content: Content, path: Path) -> list[Claim]:
    """Write the report; the claims that it prints, once each, in the order of the page."""
    html, claims = render_page(content)
    write_bytes(path, html.encode())
    return claims


def _source(file: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), file)[0]


def _trusted(file: str) -> Markup:
    return Markup(_source(file))  # noqa: S704 — a file of this package, not input


@cache
def _library() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script, from the package: 0.9 MB, two seconds to build."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    assert "</script" not in script.lower(), "the script would end its own element"
    return Markup(script)  # noqa: S704 — the library's own text, not input


def slug(*names: str) -> str:
    """Names as one file name or element id. Two names may give one: whoever uses it numbers them."""
    return "-".join(map(_slug_of, names))


def _slug_of(name: str) -> str:
    plain = re.sub(r"[^\w.]+", "-", name).strip("-.")
    if plain and len(plain.encode()) <= _LONGEST_SLUG:
        return plain
    # a name of signs alone, or one that is too long for a file's
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    short = plain.encode()[:_LONGEST_SLUG].decode(errors="ignore")
    return f"{short}-{digest}" if short else digest


def part_slug(section: str, name: str) -> str:
    """A table's or chart's name as one file name or element id, with its section's name in front once."""
    parts = name.split("/")
    return slug(*parts) if parts[0] == section else slug(section, *parts)


def _element_id(stem: str, used_ids: set[str]) -> str:
    """An element's id, numbered where another element has it."""
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    element_id = next(name for name in names if name not in used_ids)
    used_ids.add(element_id)
    return element_id


def _section(
    section: Section, printer: Printer, ids: set[str], tables: list[tuple[str, Table]]
) -> dict[str, Any]:
    """A section's static part; its tables are added to ``tables`` with their ids."""
    element_id = _element_id(slug("section", section.name), ids)
    sentences = [printer.sentence(sentence) for sentence in section.sentences]
    shown = []
    for index, table in enumerate(section.tables):
        shown.append(_table(section, table, printer, ids, is_main=index == 0))
        tables.append((shown[-1]["id"], table))
    return {
        "id": element_id,
        "title": section.title,
        "question": section.question,
        "sentences": sentences[:MAIN_SENTENCES],
        "more_sentences": sentences[MAIN_SENTENCES:],
        "tables": shown,
        "charts": [_chart(section, chart, ids) for chart in section.charts],
        "failures": section.failures,
    }


def _table(
    section: Section, table: Table, printer: Printer, ids: set[str], *, is_main: bool
) -> dict[str, Any]:
    """Title and note of a table; of a main one the first rows, too. All rows are in the page's data."""
    numbers = [is_number_column(table.rows, column, printer.results) for column in range(len(table.columns))]
    intervals = interval_columns(table, printer.results)
    return {
        "id": _element_id(slug("table", part_slug(section.name, table.name)), ids),
        "name": table.name,
        "title": table.title,
        "columns": list(zip(table.columns, numbers, intervals, strict=True)),
        "rows": [
            [
                (printer.cell(cell), is_number, printer.interval(cell, row) if has_interval else None)
                for cell, is_number, has_interval in zip(row, numbers, intervals, strict=True)
            ]
            for row in (table.rows[:MAIN_ROWS] if is_main else ())
        ],
        "is_main": is_main,
        "num_rows": printer.cell(len(table.rows)),
        "note": table.note,
        "brackets": printer.brackets(table),
    }


def _spoken(title: str) -> str:
    """A title as the text of a picture: without marks, and without the names, which stand above it."""
    prose = title.template if isinstance(title, Named) else title
    return re.sub(r"\{\w+\}", "…", prose).replace("`", "")


def _chart(section: Section, chart: Chart, ids: set[str]) -> dict[str, Any]:
    return {
        "id": _element_id(slug("chart", part_slug(section.name, chart.name)), ids),
        "title": chart.title,
        "caption": chart.caption,
        "spec": for_drawing(chart.spec, "container"),
    }


def _tree_of_values(value: Any) -> Any:
    """Provenance as nested dictionaries, lists and strings, for the template."""
    if isinstance(value, Mapping):
        return {str(key): _tree_of_values(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_tree_of_values(item) for item in value]
    return "n/a" if value is None else str(value)

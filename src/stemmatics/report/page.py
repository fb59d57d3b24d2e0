"""The report as one HTML file that makes no network requests."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stemmatics.core.content import Chart, Content, Named, Section, Table
from stemmatics.core.results import Claim
from stemmatics.report.printed import Printer, interval_columns, is_number_column, literal, name
from stemmatics.report.theme import PAGE_FONT, WIDTH, config, for_drawing
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


def render_page(content: Content, *, drawn: bool = True) -> tuple[str, list[Claim]]:
    """The page and the claims that it prints, once each, in order. Deterministic.

    ``drawn=False`` leaves out the charts' still pictures, which take seconds and are never compared:
    their widths depend on the machine's fonts.
    """
    printer = Printer(content.results)
    environment = _environment()
    summary = [printer.sentence(sentence) for sentence in content.summary]
    ids: set[str] = set()
    sections = [_section(section, printer, ids, drawn=drawn) for section in content.sections]
    html = environment.get_template("page.html.j2").render(
        title=content.title,
        summary=summary,
        sections=sections,
        failures=content.failures,
        notices=content.notices,
        drawing=lay_out(content.nodes),
        provenance=_tree_of_values(content.provenance),
        claims=[
            {"id": claim.id, "text": claim.text(content.results), "times": printer.times[claim.id]}
            for claim in printer.claims
        ],
        style=_trusted("style.css"),
        script=_trusted("page.js"),
        # 0.9 MB that a page without charts does not need
        library=_library() if any(section["charts"] for section in sections) else "",
        licences=_source("licences.txt"),
        themes={"light": config(font=PAGE_FONT), "dark": config(dark=True, font=PAGE_FONT)},
    )
    return html, printer.claims


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


def _section(section: Section, printer: Printer, ids: set[str], *, drawn: bool) -> dict[str, Any]:
    return {
        "id": _element_id(slug("section", section.name), ids),
        "title": section.title,
        "question": section.question,
        "sentences": [printer.sentence(sentence) for sentence in section.sentences],
        "tables": [_table(section, table, printer, ids) for table in section.tables],
        "charts": [_chart(section, chart, ids, drawn=drawn) for chart in section.charts],
        "failures": section.failures,
    }


def _table(section: Section, table: Table, printer: Printer, ids: set[str]) -> dict[str, Any]:
    numbers = [is_number_column(table.rows, column, printer.results) for column in range(len(table.columns))]
    intervals = interval_columns(table, printer.results)
    return {
        "id": _element_id(slug("table", part_slug(section.name, table.name)), ids),
        "title": table.title,
        "columns": list(zip(table.columns, numbers, intervals, strict=True)),
        "rows": [
            [
                (printer.cell(cell), is_number, printer.interval(cell, row) if has_interval else None)
                for cell, is_number, has_interval in zip(row, numbers, intervals, strict=True)
            ]
            for row in table.rows
        ],
        "note": table.note,
        "brackets": printer.brackets(table),
    }


def _spoken(title: str) -> str:
    """A title as the text of a picture: without marks, and without the names, which stand above it."""
    prose = title.template if isinstance(title, Named) else title
    return re.sub(r"\{\w+\}", "…", prose).replace("`", "")


def _still(chart: Chart) -> str:
    """A picture for paper and for readers without scripts."""
    picture: str = vl_convert.vegalite_to_svg(
        for_drawing(chart.spec, WIDTH), config=config(), allowed_base_urls=[], show_warnings=False
    )
    return picture


def _chart(section: Section, chart: Chart, ids: set[str], *, drawn: bool) -> dict[str, Any]:
    still = _still(chart) if drawn else ""
    return {
        "id": _element_id(slug("chart", part_slug(section.name, chart.name)), ids),
        "title": chart.title,
        "caption": chart.caption,
        "spec": for_drawing(chart.spec, "container"),
        "still": "data:image/svg+xml;base64," + base64.b64encode(still.encode()).decode(),
    }


def _tree_of_values(value: Any) -> Any:
    """Provenance as nested dictionaries, lists and strings, for the template."""
    if isinstance(value, Mapping):
        return {str(key): _tree_of_values(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_tree_of_values(item) for item in value]
    return "n/a" if value is None else str(value)

"""A report's charts as files: SVG and PDF for papers, PNG for slides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import vl_convert

from stemmatics.core.content import Content
from stemmatics.report.page import part_slug
from stemmatics.report.theme import WIDTH, config, for_drawing
from stemmatics.store.files import write_bytes

# two pixels per point: sharp on slides and screens
_PNG_SCALE = 2.0


def write_figures(content: Content, folder: Path) -> list[Path]:
    """Each chart as ``FOLDER/MEASURE-CHART-CORPUS.svg``, ``.png`` (white background) and ``.pdf``.

    Specifications must contain their data; they may not load any.
    """
    paths: list[Path] = []
    for section in content.sections:
        for chart in section.charts:
            spec = for_drawing(chart.spec, WIDTH)
            look: dict[str, Any] = {**config(), "background": "white"}
            stem = part_slug(section.name, chart.name)
            files = {
                "svg": vl_convert.vegalite_to_svg(spec, config=look, allowed_base_urls=[]).encode(),
                "png": vl_convert.vegalite_to_png(spec, config=look, allowed_base_urls=[], scale=_PNG_SCALE),
                "pdf": vl_convert.vegalite_to_pdf(spec, config=look, allowed_base_urls=[]),
            }
            for suffix, data in files.items():
                path = folder / f"{stem}.{suffix}"
                assert path not in paths, f"two charts would be {path.name}"
                write_bytes(path, data)
                paths.append(path)
    return paths

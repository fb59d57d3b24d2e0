"""How charts look: the Vega-Lite ``config`` of every chart in a report.

Measures define what is drawn and leave out colours, fonts and sizes. What a specification sets itself
takes precedence over this config.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Okabe and Ito's colours, which are distinguishable with any common colour blindness; without black and
# yellow, each of which is invisible on one of the two backgrounds.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A7A")
# the same hues, lighter, for a dark background
PALETTE_DARK = ("#58A9DC", "#F08A45", "#33BE95", "#DE9CC1", "#F2BC4B", "#9AD3F5", "#A8A8A8")

PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FILE_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

WIDTH = 640
_COMPOSED = ("facet", "concat", "hconcat", "vconcat", "repeat", "spec")


def config(*, dark: bool = False, font: str = FILE_FONT) -> dict[str, Any]:
    """The Vega-Lite ``config``: colours, fonts, quiet axes, no frame."""
    ink, muted, line = ("#e4e6ea", "#a9b0ba", "#3a414b") if dark else ("#1c2024", "#5a626d", "#dfe2e7")
    palette = PALETTE_DARK if dark else PALETTE
    ramp = ["#1d3a50", "#3f86b5", "#a9dbff"] if dark else ["#d6e6f2", "#5b9bc8", "#08426b"]
    return {
        "background": "transparent",
        "font": font,
        "view": {"stroke": None},
        "axis": {
            "labelColor": muted,
            "titleColor": ink,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 13,
            "titlePadding": 8,
            "gridColor": line,
            "domainColor": muted,
            "tickColor": muted,
            "labelLimit": 240,
        },
        "header": {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 13},
        "legend": {
            "labelColor": ink,
            "titleColor": muted,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "labelLimit": 260,
            "orient": "top",
        },
        "title": {"color": ink, "subtitleColor": muted, "anchor": "start", "fontSize": 14},
        "range": {"category": list(palette), "ordinal": ramp, "ramp": ramp, "heatmap": ramp},
        "mark": {"color": palette[0]},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": muted, "size": 1.5},
        "errorbar": {"rule": {"color": muted}},
        "line": {"strokeWidth": 2},
        "point": {"filled": True, "size": 70, "opacity": 1},
    }


def for_drawing(spec: Mapping[str, Any], width: int | str) -> dict[str, Any]:
    """A chart's specification, ready to draw.

    Numbers that JSON can't hold become null, and a single view without a width gets ``width`` (pixels
    or ``container``); a chart composed of views keeps its own.
    """
    ready: dict[str, Any] = _plain(spec)
    if "width" not in ready and not any(name in ready for name in _COMPOSED) and not _is_faceted(ready):
        ready["width"] = width
        ready.setdefault("autosize", {"type": "fit-x", "contains": "padding"})
    return ready


def _is_faceted(spec: Mapping[str, Any]) -> bool:
    encoding = spec.get("encoding", {})
    return any(channel in encoding for channel in ("row", "column", "facet"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value

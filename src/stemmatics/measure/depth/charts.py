"""Figures of depth: the profile over boundaries, and the two by two of each pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from stemmatics.core.content import Chart
from stemmatics.core.results import Estimate, Results
from stemmatics.facts.cross import CELLS
from stemmatics.measure.present import interval_points, pair_name

_EFFECTS = {
    "effect_after_base": "late layers on the base's state",
    "effect_after_descendant": "late layers on the descendant's state",
    "interaction": "interaction",
}
_SIDES = ("base", "descendant")
# earlier state and late layers of each cell
_CELLS = dict(zip(CELLS, ((early, late) for early in _SIDES for late in _SIDES), strict=True))
_COLUMNS = 3
_WIDTH, _HEIGHT = 170, 150
_MOST_TICKS = 6


def charts(results: Results) -> list[Chart]:
    """Those that have points."""
    drawn = []
    profile, cells = _profile_points(results), _cell_points(results)
    if profile:
        drawn.append(
            Chart(
                "depth/profile",
                "Effects by boundary",
                "The late layers' effect in logits when the models are cut before each layer, with bands for "
                "its interval. Where both effects are equal, the change after the boundary is portable.",
                _profile(profile),
            )
        )
    if cells:
        drawn.append(
            Chart(
                "depth/cells",
                "Two earlier states under two late stacks",
                "Mean margin of the descendant's token over the base's, in logits, with its interval. "
                "Parallel lines: the late change is portable. Lines that diverge to the right: it depends on "
                "the earlier layers that were trained with it.",
                _slopes(cells),
            )
        )
    return drawn


def _points(estimate: Estimate, **shown: str) -> list[dict[str, Any]]:
    return interval_points([estimate], pair=pair_name(estimate), events=estimate.subject["events"], **shown)


def _profile_points(results: Results) -> list[dict[str, Any]]:
    return [
        {**point, "boundary": int(estimate.subject["boundary"])}
        for name, effect in _EFFECTS.items()
        for estimate in results.all(f"depth.profile.{name}")
        for point in _points(estimate, effect=effect)
    ]


def _cell_points(results: Results) -> list[dict[str, Any]]:
    points = []
    for estimate in results.all("depth.margin"):
        early, late = _CELLS[estimate.subject["cell"]]
        points += _points(estimate, early=early, late=late)
    return points


def _faceted(layers: alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    chart = (
        layers.properties(width=_WIDTH, height=_HEIGHT)
        .facet(facet=alt.Facet("pair:N", title=None, sort=None), columns=_COLUMNS)
        .resolve_scale(y="independent")
    )
    return dict(chart.to_dict())


def _profile(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tooltip = ["pair:N", "events:N", "effect:N", "boundary:Q", "value:Q", "lo:Q", "hi:Q"]
    boundaries = sorted({point["boundary"] for point in points})
    # whole numbers only, and few of them
    ticks = boundaries[:: -(-len(boundaries) // _MOST_TICKS)]
    base = alt.Chart().encode(
        x=alt.X("boundary:Q", title="first late layer", axis=alt.Axis(values=ticks, format="d")),
        color=alt.Color("effect:N", title=None, sort=list(_EFFECTS.values())),
    )
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("lo:Q", title="logits"), y2="hi:Q")
    line = base.mark_line(point=True).encode(y=alt.Y("value:Q", title="logits"), tooltip=tooltip)
    return _faceted(alt.layer(band, line, data=alt.InlineData(values=list(points))))


def _slopes(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tooltip = ["pair:N", "events:N", "early:N", "late:N", "value:Q", "lo:Q", "hi:Q"]
    base = alt.Chart().encode(
        x=alt.X("early:N", title="earlier state", sort=list(_SIDES), axis=alt.Axis(labelAngle=0)),
        color=alt.Color("late:N", title="late layers", sort=list(_SIDES)),
    )
    line = base.mark_line().encode(y=alt.Y("value:Q", title="margin, logits"))
    bars = base.mark_rule(strokeWidth=2).encode(y=alt.Y("lo:Q", title="margin, logits"), y2="hi:Q")
    dots = base.mark_point(filled=True, size=60).encode(y="value:Q", tooltip=tooltip)
    return _faceted(alt.layer(line, bars, dots, data=alt.InlineData(values=list(points))))

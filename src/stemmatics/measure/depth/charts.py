"""Figures of depth: the profile over boundaries, and the two by two of each pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from stemmatics.core.content import Chart
from stemmatics.core.results import Estimate
from stemmatics.measure.depth.estimate import NAME
from stemmatics.measure.present import known

_EFFECTS = {
    "effect_after_base": "late layers on the base's state",
    "effect_after_descendant": "late layers on the descendant's state",
    "interaction": "interaction",
}
_COLUMNS = 3
_WIDTH, _HEIGHT = 170, 150
_MOST_TICKS = 6


def charts(estimates: Mapping[str, Estimate]) -> list[Chart]:
    """What can be drawn of the estimates."""
    found = []
    profile, cells = _profile_points(estimates), _cell_points(estimates)
    if profile:
        found.append(
            Chart(
                "profile",
                "Where the pair is cut",
                "The late layers' effect in logits when the models are cut before each layer, with bands of "
                "its interval. Where both effects lie together, the change after the cut is portable.",
                _profile(profile),
            )
        )
    if cells:
        found.append(
            Chart(
                "cells",
                "Two earlier states under two late stacks",
                "Mean margin of the descendant's token over the base's, in logits, with its interval. "
                "Parallel lines: the late change is portable. Lines that open to the right: it needs the "
                "earlier layers that were trained with it.",
                _slopes(cells),
            )
        )
    return found


def _pair(one: Estimate) -> dict[str, Any]:
    return {"pair": f"{one.subject['base']} → {one.subject['descendant']}", "events": one.subject["events"]}


def _limits(one: Estimate) -> dict[str, Any]:
    numbers = {"value": one.value, "lo": one.lo, "hi": one.hi}
    return {name: number if known(number) else None for name, number in numbers.items()}


def _profile_points(estimates: Mapping[str, Estimate]) -> list[dict[str, Any]]:
    return [
        {
            **_pair(one),
            **_limits(one),
            "boundary": int(one.subject["boundary"]),
            "effect": _EFFECTS[one.quantity.rpartition(".")[2]],
        }
        for one in estimates.values()
        if one.quantity.startswith(f"{NAME}.profile.")
        and one.quantity.rpartition(".")[2] in _EFFECTS
        and known(one.value)
    ]


def _cell_points(estimates: Mapping[str, Estimate]) -> list[dict[str, Any]]:
    names = {"base": "base", "desc": "descendant"}
    points = []
    for one in estimates.values():
        if one.quantity == f"{NAME}.margin" and known(one.value):
            early, _, late = one.subject["cell"].partition("_")
            points.append({**_pair(one), **_limits(one), "early": names[early], "late": names[late]})
    return points


def _faceted(layers: alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    chart = (
        layers.properties(width=_WIDTH, height=_HEIGHT)
        .facet(facet=alt.Facet("pair:N", title=None, sort=None), columns=_COLUMNS)
        .resolve_scale(y="independent")
    )
    return dict(chart.to_dict())


def _profile(points: list[dict[str, Any]]) -> dict[str, Any]:
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
    return _faceted(alt.layer(band, line, data=alt.InlineData(values=points)))


def _slopes(points: list[dict[str, Any]]) -> dict[str, Any]:
    tooltip = ["pair:N", "events:N", "early:N", "late:N", "value:Q", "lo:Q", "hi:Q"]
    base = alt.Chart().encode(
        x=alt.X("early:N", title="earlier state", sort=["base", "descendant"], axis=alt.Axis(labelAngle=0)),
        color=alt.Color("late:N", title="late layers", sort=["base", "descendant"]),
    )
    line = base.mark_line().encode(y=alt.Y("value:Q", title="margin, logits"))
    bars = base.mark_rule(strokeWidth=2).encode(y=alt.Y("lo:Q", title="margin, logits"), y2="hi:Q")
    dots = base.mark_point(filled=True, size=60).encode(y="value:Q", tooltip=tooltip)
    return _faceted(alt.layer(line, bars, dots, data=alt.InlineData(values=points)))

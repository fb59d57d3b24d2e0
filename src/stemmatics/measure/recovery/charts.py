"""The charts of the recovery section, each named ``recovery/CHART/CORPUS``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from stemmatics.core.content import Chart, Named
from stemmatics.core.results import Results
from stemmatics.measure.present import interval_points, pair_of

Points = list[dict[str, Any]]
_KINDS = {"native": "as released", "rebased": "re-based", "estimated_base": "base, estimated"}


def charts(corpora: Sequence[str], results: Results) -> list[Chart]:
    """For each corpus: the ladder, the pairs, and the agreement of the orders by number of registers."""
    drawn = []
    for corpus in corpora:
        here = results.about(corpus=corpus)
        drawn += [*_ladder(corpus, here), *_pairs(corpus, here), *_agreement(corpus, here)]
    return drawn


def _ladder(corpus: str, here: Results) -> list[Chart]:
    ranks = {rank.subject["checkpoint"]: rank.value for rank in here.all("recovery.rank")}
    points: Points = []
    for quantity, kind in _KINDS.items():
        known = [loss for loss in here.all(f"recovery.{quantity}") if loss.is_known]
        # the checkpoint as the user named it, whatever characters are in it
        points += [
            {
                **point,
                "checkpoint": loss.subject["checkpoint"],
                "rank": ranks[loss.subject["checkpoint"]],
                "kind": kind,
            }
            for loss, point in zip(known, interval_points(known), strict=True)
        ]
    if not points:
        return []
    caption = (
        "Points are losses after the fine-tune with their intervals, ticks are losses as released; where a "
        "base is unknown, its estimated loss and bar are shown too. Lowest first. The order is judged by "
        "paired differences, whose intervals are much narrower than these."
    )
    return [
        Chart(
            f"recovery/ladder/{corpus}",
            Named("The ladder on {corpus}", corpus=corpus),
            caption,
            _ladder_chart(points),
        )
    ]


def _pairs(corpus: str, here: Results) -> list[Chart]:
    points: Points = []
    for quantity in ("residual", "drop"):
        known = [estimate for estimate in here.all(f"recovery.{quantity}") if estimate.is_known]
        points += [
            {**point, **pair_of(estimate), "what": quantity}
            for estimate, point in zip(known, interval_points(known), strict=True)
        ]
    if not points:
        return []
    caption = (
        "Residual: recovered descendant less matched base. Drop: how much the fine-tune lowered the "
        "descendant's loss. In nats/byte with intervals."
    )
    title = Named("Residual and drop on {corpus}", corpus=corpus)
    return [Chart(f"recovery/residual/{corpus}", title, caption, _pair_chart(points))]


def _agreement(corpus: str, here: Results) -> list[Chart]:
    known = [rho for rho in here.all("recovery.order.registers") if rho.is_known]
    points = [
        {**point, "registers": int(rho.subject["registers"])}
        for rho, point in zip(known, interval_points(known), strict=True)
    ]
    if len(points) < 2:
        return []
    caption = (
        "Spearman's rho of the two orders, mean over the choices of that many registers, with its family "
        "interval."
    )
    title = Named("Agreement of native and re-based order on {corpus}", corpus=corpus)
    return [Chart(f"recovery/agreement/{corpus}", title, caption, _agreement_chart(points))]


def _ladder_chart(points: Points) -> dict[str, Any]:
    kinds = [kind for kind in _KINDS.values() if any(point["kind"] == kind for point in points)]
    x = alt.X("value:Q", title="nats/byte", scale=alt.Scale(zero=False))
    base = alt.Chart({"values": points}).encode(
        y=alt.Y("checkpoint:N", title=None, sort=alt.EncodingSortField("rank", op="min")),
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds)),
        tooltip=["checkpoint:N", "kind:N", "value:Q", "lo:Q", "hi:Q"],
    )
    measured = alt.datum.kind != _KINDS["native"]
    bars = base.transform_filter(measured).mark_rule(strokeWidth=2).encode(x="lo:Q", x2="hi:Q")
    dots = base.transform_filter(measured).mark_point(filled=True, size=60).encode(x=x)
    ticks = base.transform_filter(~measured).mark_tick(thickness=3, size=14).encode(x=x)
    return dict((bars + dots + ticks).properties(height=alt.Step(22)).to_dict())


def _pair_chart(points: Points) -> dict[str, Any]:
    base = alt.Chart({"values": points}).encode(
        y=alt.Y("descendant:N", title=None, sort=None),
        yOffset=alt.YOffset("what:N", sort=["residual", "drop"]),
        color=alt.Color("what:N", title=None, sort=["residual", "drop"]),
        tooltip=["base:N", "descendant:N", "what:N", "value:Q", "lo:Q", "hi:Q"],
    )
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("lo:Q", title="nats/byte"), x2="hi:Q")
    dots = base.mark_point(filled=True, size=45).encode(x=alt.X("value:Q", title="nats/byte"))
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    return dict((zero + bars + dots).properties(height=alt.Step(12)).to_dict())


def _agreement_chart(points: Points) -> dict[str, Any]:
    title = "Spearman's rho"
    base = alt.Chart({"values": points}).encode(
        x=alt.X("registers:O", title="registers scored", axis=alt.Axis(labelAngle=0)),
        tooltip=["registers:O", "value:Q", "lo:Q", "hi:Q"],
    )
    bars = base.mark_rule(strokeWidth=2).encode(y=alt.Y("lo:Q", title=title), y2="hi:Q")
    dots = base.mark_point(filled=True, size=60).encode(y=alt.Y("value:Q", title=title))
    return dict((bars + dots).properties(height=220).to_dict())

"""The figures of the recovery section."""

from __future__ import annotations

from typing import Any

import altair as alt

from stemmatics.core.content import Chart
from stemmatics.measure.present import known
from stemmatics.measure.recovery.select import Estimates, of

Points = list[dict[str, Any]]
_KINDS = {"native": "as released", "rebased": "re-based", "placed": "base, estimated"}


def charts(corpus: str, mine: Estimates) -> list[Chart]:
    """The ladder, the pairs, and the agreement of the orders by number of registers."""
    found = []
    ladder = _ladder_points(mine)
    if ladder:
        found.append(
            Chart(
                f"ladder-{corpus}",
                f"The ladder on {corpus}",
                "Points are losses after the fine-tune with their intervals, ticks losses as released; "
                "where a base is unknown, its estimate with its bar too. Lowest first. The order is "
                "judged by paired differences, whose intervals are much narrower than these.",
                _ladder_chart(ladder),
            )
        )
    pairs = _pair_points(mine)
    if pairs:
        found.append(
            Chart(
                f"residual-{corpus}",
                f"What is left and what came off on {corpus}",
                "Residual: recovered descendant less matched base. Drop: what the fine-tune took off the "
                "descendant. In nats/byte with intervals.",
                _pair_chart(pairs),
            )
        )
    agreement = _agreement_points(mine)
    if len(agreement) > 1:
        found.append(
            Chart(
                f"agreement-{corpus}",
                f"Agreement of native and re-based order on {corpus}",
                "Spearman's rho of the two orders, mean over the choices of so many registers, with its "
                "family interval.",
                _agreement_chart(agreement),
            )
        )
    return found


def _end(value: float) -> float | None:
    return value if known(value) else None


def _ladder_points(mine: Estimates) -> Points:
    ranks = {one.subject["checkpoint"]: one.value for one in of(mine, "rank")}
    points = []
    for quantity, kind in _KINDS.items():
        points += [
            {
                "checkpoint": one.subject["checkpoint"],
                "rank": ranks[one.subject["checkpoint"]],
                "kind": kind,
                "value": one.value,
                "lo": _end(one.lo),
                "hi": _end(one.hi),
            }
            for one in of(mine, quantity)
            if known(one.value)
        ]
    return points


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


def _pair_points(mine: Estimates) -> Points:
    return [
        {
            "descendant": one.subject["descendant"],
            "base": one.subject["base"],
            "what": quantity,
            "value": one.value,
            "lo": _end(one.lo),
            "hi": _end(one.hi),
        }
        for quantity in ("residual", "drop")
        for one in of(mine, quantity)
        if known(one.value)
    ]


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


def _agreement_points(mine: Estimates) -> Points:
    return [
        {
            "registers": int(one.subject["registers"]),
            "value": one.value,
            "lo": _end(one.lo),
            "hi": _end(one.hi),
        }
        for one in of(mine, "order.registers")
        if known(one.value)
    ]


def _agreement_chart(points: Points) -> dict[str, Any]:
    title = "Spearman's rho"
    base = alt.Chart({"values": points}).encode(
        x=alt.X("registers:O", title="registers scored", axis=alt.Axis(labelAngle=0)),
        tooltip=["registers:O", "value:Q", "lo:Q", "hi:Q"],
    )
    bars = base.mark_rule(strokeWidth=2).encode(y=alt.Y("lo:Q", title=title), y2="hi:Q")
    dots = base.mark_point(filled=True, size=60).encode(y=alt.Y("value:Q", title=title))
    return dict((bars + dots).properties(height=220).to_dict())

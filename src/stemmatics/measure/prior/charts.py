"""The figure of the measure ``prior``: recovered shares beside their damage floors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from stemmatics.core.content import Chart, Named
from stemmatics.core.results import Estimate, Results
from stemmatics.facts.prior import CEILING_ARMS, JOINT
from stemmatics.measure.present import known
from stemmatics.measure.prior.estimate import shown_share
from stemmatics.measure.prior.floors import LABEL_KIND
from stemmatics.measure.prior.tables import AMOUNTS, arm_name, arms_of


def charts(results: Results, pairs: Sequence[Mapping[str, str]], columns: int) -> list[Chart]:
    """One figure a pair that has shares, and one a corpus by amount of text."""
    drawn = [_chart(results, pair, columns) for pair in pairs]
    drawn += [
        _by_text(results, [pair for pair in pairs if pair["corpus"] == corpus])
        for corpus in dict.fromkeys(pair["corpus"] for pair in pairs)
    ]
    return [chart for chart in drawn if chart is not None]


def _by_text(results: Results, pairs: Sequence[Mapping[str, str]]) -> Chart | None:
    """The joint net share against the tokens that it was fitted on, a line a descendant."""
    points = [
        {"descendant": pair["descendant"], "tokens": tokens.value, "share": share.value}
        for pair in pairs
        for reading in AMOUNTS
        if (share := results.find("prior.net_recovered_share", **pair, arm=JOINT, reading=reading))
        and (tokens := _tokens(results, pair, reading))
    ]
    if len(points) < 2:
        return None
    corpus = pairs[0]["corpus"]
    spec = (
        alt.Chart({"values": points})
        .mark_line(point=True)
        .encode(
            x=alt.X("tokens:Q", title="tokens of FIT", scale=alt.Scale(type="log")),
            y=alt.Y("share:Q", title="net recovered share"),
            color=alt.Color("descendant:N", title=None),
            tooltip=["descendant:N", "tokens:Q", "share:Q"],
        )
    )
    return Chart(
        f"prior/text/{corpus}",
        Named("Net recovered share by amount of text on {corpus}", corpus=corpus),
        "The selected bias and temperature, fitted on a quarter, on half and on all of FIT. Where a line "
        "still rises at its end, more text may recover more.",
        dict(spec.to_dict()),
    )


def _tokens(results: Results, pair: Mapping[str, str], reading: str) -> Estimate | None:
    return results.find("prior.fit.tokens", **pair, arm=JOINT, reading=reading, side="descendant")


def _chart(results: Results, pair: Mapping[str, str], columns: int) -> Chart | None:
    """Net recovered share by arm with its interval, the floor behind it, the temperatures beside it."""
    points = [
        point
        for arm in arms_of(results, pair)
        if arm[0] not in CEILING_ARMS and (point := _point(results, pair, arm, columns))
    ]
    if not points:
        return None
    base = alt.Chart({"values": points}).encode(y=alt.Y("arm:N", title=None, sort=None))
    title = "net recovered share of the loss increase"
    band = base.mark_bar(opacity=0.3, height=14, color="#7A7A7A").encode(
        x=alt.X("floor_lo:Q", title=title), x2="floor_hi:Q", tooltip=["floor_lo:Q", "floor_hi:Q"]
    )
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("lo:Q", title=title), x2="hi:Q")
    dots = base.mark_point(filled=True, size=55).encode(
        x=alt.X("value:Q", title=title), tooltip=["arm:N", "value:Q", "lo:Q", "hi:Q"]
    )
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    spec = (zero + band + bars + dots).properties(height=alt.Step(22))
    return Chart(
        f"prior/shares/{pair['corpus']}/{pair['descendant']}",
        Named(
            "What each correction recovers in {descendant} on {corpus}",
            descendant=pair["descendant"],
            corpus=pair["corpus"],
        ),
        "Points are net recovered shares with their intervals; the grey band is what the same fit recovers "
        "of random damage of the same size, over its seeds. T: the fitted temperatures of base and "
        "descendant.",
        dict(spec.to_dict()),
    )


def _point(
    results: Results, pair: Mapping[str, str], arm: tuple[str, str], columns: int
) -> dict[str, Any] | None:
    of_arm = {**pair, "arm": arm[0], "reading": arm[1]}
    share = shown_share(results, **of_arm)
    if not isinstance(share, Estimate):
        return None
    floor = results.find("prior.floor.net_recovered_share", **of_arm, kind=LABEL_KIND)
    return {
        "arm": arm_name(*arm, columns) + _temperatures(results, of_arm),
        "value": share.value,
        "lo": share.lo if known(share.lo) else None,
        "hi": share.hi if known(share.hi) else None,
        "floor_lo": None if floor is None else floor.lo,
        "floor_hi": None if floor is None else floor.hi,
    }


def _temperatures(results: Results, of_arm: Mapping[str, str]) -> str:
    """The fitted temperatures, unless none was fitted."""
    fitted = [results.find("prior.fit.temperature", **of_arm, side=side) for side in ("base", "descendant")]
    printed = [f"{temperature.value:.2f}" for temperature in fitted if temperature is not None]
    moved = any(text != "1.00" for text in printed)
    return f" (T {', '.join(printed)})" if moved else ""

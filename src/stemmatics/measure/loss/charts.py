"""Charts of the measure `loss`, one set per corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from stemmatics.core.content import Chart, Named
from stemmatics.core.results import Results
from stemmatics.measure.present import forest, interval_points


def charts(corpus: str, results: Results) -> list[Chart]:
    """Differences by register, and by class of token; a chart without a known value is left out."""
    deltas = interval_points(results.all("loss.delta.byte", corpus=corpus), "descendant", "base", "register")
    classes = interval_points(
        results.all("loss.where", corpus=corpus, axis="token_class"), "descendant", "base", "bin"
    )
    drawn = []
    if deltas:
        drawn.append(
            Chart(
                f"loss/by-register/{corpus}",
                Named("Loss of each descendant minus its base's on {corpus}, by register", corpus=corpus),
                "A point is a paired difference in nats/byte with its interval; right of zero the "
                "descendant lost. Click a register in the legend to single it out.",
                forest(
                    deltas,
                    title="nats/byte, descendant minus base",
                    row="descendant",
                    colour="register",
                    tooltip=["base"],
                ),
            )
        )
    if classes:
        drawn.append(
            Chart(
                f"loss/where/{corpus}",
                Named("On which tokens the loss on {corpus} changed", corpus=corpus),
                "Each class of tokens adds its part to the difference in nats/byte.",
                _bars(classes),
            )
        )
    return drawn


def _bars(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    chart = (
        alt.Chart({"values": list(points)})
        .mark_bar()
        .encode(
            y=alt.Y("descendant:N", title=None, sort=None),
            x=alt.X("value:Q", title="nats/byte added to the difference"),
            color=alt.Color("bin:N", title="token class"),
            tooltip=["base:N", "descendant:N", "bin:N", "value:Q", "lo:Q", "hi:Q"],
        )
    )
    return dict(chart.to_dict())

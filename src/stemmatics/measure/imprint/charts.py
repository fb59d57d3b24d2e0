"""Charts: refusal at every node of a tree, and along every branch from the window to the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.results import Results
from stemmatics.measure.imprint.needs import FORK, SFT, WINDOW
from stemmatics.measure.imprint.settings import ImprintSettings, Tree

Points = list[dict[str, Any]]
# refusal of each branch and stage, by run
Rates = Mapping[tuple[str, str], Mapping[int, float]]
ROW_HEIGHT = 26
END = "end"


def imprint_charts(settings: ImprintSettings, results: Results) -> list[Chart]:
    """Two for each tree with results."""
    charts = []
    for name, tree in settings.trees.items():
        rates = _refusal_rates(name, results)
        points, edges = tree_points(tree, rates)
        if len(points) > 1:
            charts.append(
                Chart(
                    f"imprint/tree/{name}",
                    f"The tree {name}: refusal at every node",
                    "Share of requests refused, in per cent, mean over runs. From left to right: the fork, "
                    "the window on one source, the SFT, and what follows it.",
                    _tree_chart(points, edges),
                )
            )
        trajectories = trajectory_points(tree, rates)
        if trajectories:
            charts.append(
                Chart(
                    f"imprint/trajectories/{name}",
                    f"Refusal along every branch of {name}",
                    "Lines: means over the runs of a branch. Small points: runs. Dashed: the order control.",
                    _trajectory_chart(trajectories),
                )
            )
    return charts


def _refusal_rates(tree: str, results: Results) -> Rates:
    rates: dict[tuple[str, str], dict[int, float]] = {}
    for rate in results.all("imprint.node", tree=tree, metric="refusal"):
        if rate.is_known:
            by_run = rates.setdefault((rate.subject["branch"], rate.subject["stage"]), {})
            by_run[int(rate.subject["run"])] = rate.value
    return rates


def tree_points(tree: Tree, rates: Rates) -> tuple[Points, Points]:
    """Nodes with their mean refusal, and the edges between nodes; ends are stacked one below the other."""
    position: dict[tuple[str, str], tuple[float, float]] = {}
    edges: Points = []
    num_ends = 0
    for branch in tree.branches:
        first = num_ends
        for end in tree.ends:
            position[branch, end] = (3.0, float(num_ends))
            num_ends += 1
        middle = (first + num_ends - 1) / 2
        position[branch, SFT], position[branch, WINDOW] = (2.0, middle), (1.0, middle)
        for parent, child in ((WINDOW, SFT), *((SFT, end) for end in tree.ends)):
            edges.append(_edge(position[branch, parent], position[branch, child]))
    position[FORK, FORK] = (0.0, (num_ends - 1) / 2)
    edges += [_edge(position[FORK, FORK], position[branch, WINDOW]) for branch in tree.branches]
    points = []
    for (branch, stage), (x, y) in position.items():
        if (branch, stage) in rates:
            mean = float(np.mean(list(rates[branch, stage].values())))
            text = f"{branch if stage == WINDOW else stage} {100 * mean:.0f}%"
            points.append({"x": x, "y": y, "branch": branch, "stage": stage, "refusal": mean, "text": text})
    return points, edges


def _edge(start: tuple[float, float], end: tuple[float, float]) -> dict[str, float]:
    return {"x": start[0], "y": start[1], "x2": end[0], "y2": end[1]}


def _tree_chart(points: Points, edges: Points) -> dict[str, Any]:
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.1, 3.7]))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(reverse=True))
    lines = alt.Chart({"values": edges}).mark_rule(opacity=0.4).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    base = alt.Chart({"values": points}).encode(x=x, y=y)
    dots = base.mark_circle(size=110, opacity=1).encode(
        color=alt.Color(
            "refusal:Q",
            title="refused",
            scale=alt.Scale(domain=[0, 1]),
            legend=alt.Legend(format="%", gradientLength=120),
        ),
        tooltip=["branch:N", "stage:N", alt.Tooltip("refusal:Q", format=".1%")],
    )
    labels = base.mark_text(align="left", dx=9, dy=-9, fontSize=11).encode(text="text:N")
    height = ROW_HEIGHT * (1 + max(edge["y"] for edge in edges))
    return dict((lines + dots + labels).properties(height=height).to_dict())


def trajectory_points(tree: Tree, rates: Rates) -> Points:
    """Refusal of every run of every branch after the window, the SFT and each end."""
    return [
        {
            "branch": branch,
            "end": f"after {end}",
            "stage": label,
            "refusal": value,
            "run": run,
            "kind": "order" if branch in (tree.order or ()) else "source",
        }
        for branch in tree.branches
        for end in tree.ends
        for stage, label in ((WINDOW, WINDOW), (SFT, SFT), (end, END))
        for run, value in rates.get((branch, stage), {}).items()
    ]


def _trajectory_chart(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    base = alt.Chart().encode(
        x=alt.X("stage:N", sort=[WINDOW, SFT, END], title=None, axis=alt.Axis(labelAngle=0)),
        color=alt.Color("branch:N", title=None, sort=None),
    )
    title = "requests refused"
    # there may be more branches than colours: those of the order control are dashed
    dash = alt.StrokeDash("kind:N", sort=["source", "order"], legend=None)
    lines = base.mark_line(point=True).encode(
        y=alt.Y("mean(refusal):Q", title=title, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        strokeDash=dash,
    )
    runs = base.mark_point(size=14, opacity=0.6).encode(
        y=alt.Y("refusal:Q", title=title),
        tooltip=["branch:N", "run:Q", alt.Tooltip("refusal:Q", format=".1%")],
    )
    layers = alt.layer(lines, runs, data=alt.InlineData(values=list(points)))
    facet = layers.properties(width=270, height=260).facet(facet=alt.Facet("end:N", title=None), columns=2)
    return dict(facet.to_dict())

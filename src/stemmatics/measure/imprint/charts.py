"""Figures: the tree with each node's refusal, and each branch's way from the window to the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.results import Estimate
from stemmatics.measure.imprint.needs import FORK, NAME, SFT, WINDOW, ImprintSettings, Tree

Points = list[dict[str, Any]]
ROW = 26


def charts(settings: ImprintSettings, estimates: Mapping[str, Estimate]) -> list[Chart]:
    """Two a tree, of what is there."""
    found = []
    for name, tree in settings.trees.items():
        means = _means(name, estimates)
        points, lines = _tree_points(tree, means)
        if len(points) > 1:
            found.append(
                Chart(
                    f"tree-{name}",
                    f"The tree {name}: refusal at every node",
                    "Share of requests refused, in per cent, mean over runs. From left to right: the fork, "
                    "the window on one source, the SFT, and what follows it.",
                    _tree_chart(points, lines),
                )
            )
        ways = _way_points(tree, means)
        if ways:
            found.append(
                Chart(
                    f"trajectories-{name}",
                    f"Refusal along every branch of {name}",
                    "One line a branch, mean over runs; small points are runs. Dashed: the order control.",
                    _way_chart(ways, [WINDOW, SFT, "end"]),
                )
            )
    return found


def _means(tree: str, estimates: Mapping[str, Estimate]) -> dict[tuple[str, str], list[float]]:
    """Refusal of each branch and stage, run by run."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in estimates.values():
        said = one.subject
        if (
            one.quantity == f"{NAME}.node"
            and said["metric"] == "refusal"
            and said["tree"] == tree
            and not math.isnan(one.value)
        ):
            found.setdefault((said["branch"], said["stage"]), []).append(one.value)
    return found


def _tree_points(tree: Tree, means: Mapping[tuple[str, str], list[float]]) -> tuple[Points, Points]:
    """Nodes, and the lines between them; leaves stand one below the other."""
    place: dict[tuple[str, str], tuple[float, float]] = {}
    lines: Points = []
    leaf = 0
    for branch in tree.branches:
        first = leaf
        for end in tree.ends:
            place[branch, end] = (3.0, float(leaf))
            leaf += 1
        middle = (first + leaf - 1) / 2
        place[branch, SFT], place[branch, WINDOW] = (2.0, middle), (1.0, middle)
        for above, below in ((WINDOW, SFT), *((SFT, end) for end in tree.ends)):
            lines.append(_line(place[branch, above], place[branch, below]))
    place[FORK, FORK] = (0.0, (leaf - 1) / 2)
    lines += [_line(place[FORK, FORK], place[branch, WINDOW]) for branch in tree.branches]
    points = [
        {
            "x": x,
            "y": y,
            "branch": branch,
            "stage": stage,
            "refusal": float(np.mean(means[branch, stage])),
            "text": f"{stage if stage != WINDOW else branch} {100 * np.mean(means[branch, stage]):.0f}%",
        }
        for (branch, stage), (x, y) in place.items()
        if (branch, stage) in means
    ]
    return points, lines


def _line(start: tuple[float, float], end: tuple[float, float]) -> dict[str, float]:
    return {"x": start[0], "y": start[1], "x2": end[0], "y2": end[1]}


def _tree_chart(points: Points, lines: Points) -> dict[str, Any]:
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.1, 3.7]))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(reverse=True))
    edges = alt.Chart({"values": lines}).mark_rule(opacity=0.4).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
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
    words = base.mark_text(align="left", dx=9, dy=-9, fontSize=11).encode(text="text:N")
    height = ROW * (1 + max(point["y"] for point in lines))
    return dict((edges + dots + words).properties(height=height).to_dict())


def _way_points(tree: Tree, means: Mapping[tuple[str, str], list[float]]) -> Points:
    return [
        {
            "branch": branch,
            "end": f"after {end}",
            "stage": shown,
            "refusal": value,
            "run": run,
            "kind": "order" if branch in (tree.order or ()) else "source",
        }
        for branch in tree.branches
        for end in tree.ends
        for stage, shown in ((WINDOW, WINDOW), (SFT, SFT), (end, "end"))
        for run, value in enumerate(means.get((branch, stage), []), start=1)
    ]


def _way_chart(points: Points, stages: list[str]) -> dict[str, Any]:
    base = alt.Chart().encode(
        x=alt.X("stage:N", sort=stages, title=None, axis=alt.Axis(labelAngle=0)),
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
    layers = alt.layer(lines, runs, data=alt.InlineData(values=points))
    facet = layers.properties(width=270, height=260).facet(facet=alt.Facet("end:N", title=None), columns=2)
    return dict(facet.to_dict())

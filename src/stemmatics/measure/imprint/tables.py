"""Tables of the imprint section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stemmatics.core.content import Table
from stemmatics.core.results import Claim, Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.imprint.contrasts import run_verdict, verdict
from stemmatics.measure.imprint.needs import NAME, ImprintSettings, nodes, stage_hashes
from stemmatics.measure.imprint.nodes import METRICS

Estimates = Mapping[str, Estimate]
COLUMNS = (*METRICS, "loss")


def of(estimates: Estimates, quantity: str, **subject: str) -> list[Estimate]:
    """Estimates of one quantity whose subject holds what is named."""
    return [
        one
        for one in estimates.values()
        if one.quantity == f"{NAME}.{quantity}"
        and all(one.subject.get(name) == value for name, value in subject.items())
    ]


def _form(metric: str) -> dict[str, Any]:
    """Shares in points, losses in nats/byte."""
    return {"form": "{:+.4f}"} if metric == "loss" else {"form": "{:+.1f}", "scale": 100.0}


def value_of(one: Estimate | None, field: str = "value") -> Claim | None:
    """The claim that prints a number of a metric in its own units; None where there is no estimate."""
    return None if one is None else Claim(one.id, field, **_form(one.subject["metric"]))


def one_of(estimates: Estimates, quantity: str, subject: Mapping[str, str]) -> Estimate | None:
    """The estimate of a quantity with exactly this subject; there are too many nodes to look through."""
    wanted = Estimate(NAME, f"{NAME}.{quantity}", subject, 0.0)
    return estimates.get(wanted.id)


def contrasts(estimates: Estimates) -> Table:
    """Imprints of every branch, metric and end."""
    rows = []
    for one in of(estimates, "contrast"):
        keys = dict(one.subject)
        p, smallest = (one_of(estimates, name, keys) for name in ("p", "smallest_p"))
        by_runs = one_of(estimates, "by_runs", keys)
        rows.append(
            [
                *(keys[name] for name in ("tree", "metric", "end", "branch", "against")),
                value_of(one),
                value_of(by_runs),
                None if p is None else Claim(p.id, "value", "{:.3g}"),
                None if smallest is None else Claim(smallest.id, "value", "{:.3g}"),
                value_of(one, "smallest_effect"),
                one.note,
            ]
        )
    return Table(
        "contrasts",
        "Imprints: change from after SFT to the end, less that of the other branch",
        [
            "tree",
            "metric",
            "after",
            "branch",
            "against",
            "imprint",
            "over runs alone",
            "sign-flip p",
            "smallest p",
            "smallest effect",
            "note",
        ],
        rows,
        note="In points of a hundred prompts; loss in nats/byte, over runs alone.",
    )


def deviations(estimates: Estimates) -> Table:
    """What every branch changed by after SFT."""
    rows = [
        [*(one.subject[name] for name in ("tree", "metric", "end", "branch")), value_of(one), one.note]
        for one in of(estimates, "deviation")
    ]
    return Table(
        "deviations",
        "Deviation of every branch: change from after SFT to the end",
        ["tree", "metric", "after", "branch", "deviation", "note"],
        rows,
        note="In points of a hundred prompts; loss in nats/byte.",
    )


def verdict_of(settings: ImprintSettings, estimates: Estimates, inside: Estimate) -> str:
    """The verdict that goes with an interval at the level of equivalence."""
    wide = one_of(estimates, "after_sft", dict(inside.subject))
    assert wide is not None, "both levels are made together"
    return verdict(inside, wide, settings.margin)


def after_sft(settings: ImprintSettings, estimates: Estimates) -> Table:
    """Whether branches are equal after SFT, over runs."""
    rows = [
        [
            *(one.subject[name] for name in ("tree", "metric", "branch", "against")),
            value_of(one),
            Claim(f"{NAME}.margin", "value", "{:.1f}", 100.0),
            verdict_of(settings, estimates, one),
        ]
        for one in of(estimates, "after_sft.inside")
    ]
    return Table(
        "after-sft",
        "After SFT, before anything follows: are the branches equal?",
        ["tree", "metric", "branch", "against", "difference", "margin", "verdict"],
        rows,
        note="Two one-sided tests at five per cent: equivalent where the interval lies inside the margin.",
    )


def after_sft_runs(settings: ImprintSettings, estimates: Estimates) -> Table:
    """The same run by run, by the tests of ``math.equivalence``."""
    rows = []
    for one in of(estimates, "after_sft.run"):
        names = ("after_sft.p", "after_sft.smallest_margin", "after_sft.num_needed")
        p, smallest, needed = (one_of(estimates, name, dict(one.subject)) for name in names)
        assert p is not None, "all numbers of a test are made together"
        assert smallest is not None, "as above"
        assert needed is not None, "as above"
        rows.append(
            [
                *(one.subject[name] for name in ("tree", "metric", "branch", "against", "run")),
                value_of(one),
                Claim(smallest.id, "value", "{:.1f}", 100.0),
                Claim(one.id, "n", "{:d}"),
                Claim(needed.id, "value", "{:.0f}"),
                run_verdict(one, p, settings.margin),
            ]
        )
    return Table(
        "after-sft-runs",
        "After SFT, run by run on the same prompts",
        [
            "tree",
            "metric",
            "branch",
            "against",
            "run",
            "difference",
            "smallest margin",
            "prompts",
            "prompts needed",
            "verdict",
        ],
        rows,
    )


def node_table(pinned: Pinned, settings: ImprintSettings, estimates: Estimates) -> Table:
    """Metrics of every checkpoint with what it was trained on last."""
    shown = [metric for metric in COLUMNS if of(estimates, "node", metric=metric)]
    rows = []
    for place, checkpoint in nodes(settings):
        cells = [one_of(estimates, "node", {**place.subject, "metric": metric}) for metric in shown]
        if any(cells):
            numbers = [
                one and Claim(one.id, "value", *(("{:.4f}",) if metric == "loss" else ("{:.1f}", 100.0)))
                for metric, one in zip(shown, cells, strict=True)
            ]
            said = pinned.stemma.trained_last(checkpoint) or ""
            rows.append([place.tree, place.branch, str(place.run), place.stage, said, *numbers])
    titles = [f"{metric.replace('_', '-')}{', nats/byte' if metric == 'loss' else ', %'}" for metric in shown]
    return Table(
        "nodes",
        "Every node of the tree",
        ["tree", "branch", "run", "stage", "trained last", *titles],
        rows,
    )


def stages(pinned: Pinned, settings: ImprintSettings, estimates: Estimates) -> Table:
    """Whether the branches went through the same stages."""
    rows = []
    for (tree, run, stage), by_hash in stage_hashes(pinned, settings).items():
        one = one_of(estimates, "different_stages", {"tree": tree, "run": str(run), "stage": stage})
        assert one is not None, "every stage is counted"
        rows.append(
            [
                tree,
                str(run),
                stage,
                Claim(one.id, "value", "{:.0f}"),
                Claim(one.id, "n", "{:d}"),
                ", ".join(by_hash),
            ]
        )
    return Table(
        "stages",
        "All else equal: how many different stages the branches went through",
        ["tree", "run", "stage", "different", "branches", "hash"],
        rows,
        note="A stage's hash is that of its recipe, its seed and, but for windows, the corpus that it reads.",
    )


def matcher(estimates: Estimates) -> Table:
    """Precision and recall of the refusal matcher."""
    rows = [
        [one.subject["what"], Claim(one.id, "value", "{:.3f}"), Claim(one.id, "n", "{:d}")]
        for one in of(estimates, "matcher")
    ]
    return Table(
        "matcher", "The refusal matcher on labelled replies", ["of refusals", "share", "replies"], rows
    )

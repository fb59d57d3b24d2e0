"""Tables of the imprint section."""

from __future__ import annotations

from typing import Any

from stemmatics.core.content import Table
from stemmatics.core.results import Category, Claim, Estimate, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.imprint.needs import NodeId, tree_nodes
from stemmatics.measure.imprint.nodes import METRICS, REFUSAL, SHARES, UNITS
from stemmatics.measure.imprint.settings import ImprintSettings
from stemmatics.measure.imprint.verdicts import INVISIBLE
from stemmatics.measure.present import COUNT, PLAIN, SHARE, SIGNED, WHOLE, claim, claim_if, table, with_rows

POINTS = "{:.1f}"
SIGNED_POINTS = "{:+.1f}"
IN_UNITS = (
    "Shares in percentage points; margins in nats a token, their sums in nats; loss in nats/byte. The "
    "margin is "
    "log p(refusal) - log p(answer) of two given replies."
)


def imprint_tables(pinned: Pinned, settings: ImprintSettings, results: Results) -> list[Table]:
    """Those with rows."""
    return with_rows(
        contrasts(results),
        selectivity(results),
        after_sft(results),
        deviations(results),
        nodes(pinned, settings, results),
        stages(results),
        matcher(results),
    )


def contrasts(results: Results) -> Table:
    """The imprint of every branch, metric and end."""
    title = "Imprint: change from after SFT to the end, minus that of the other branch"
    note = (
        f"{IN_UNITS} For requests like these: runs, wordings and things in quadrature; for these cells: "
        f"runs alone. "
        "Losses are compared over runs only. Holm's p is over the branches and ends of a metric; the "
        "order control "
        "is tested apart. Minimum detectable effect at eighty per cent power."
    )
    return table("imprint/contrasts", title, _TESTED_COLUMNS, _tested_rows("contrast", results), note)


def selectivity(results: Results) -> Table:
    """The target's change less the mean of the other sources'."""
    title = "Selectivity: change of the target since SFT, minus the mean change of the other sources"
    return table(
        "imprint/selectivity",
        title,
        _TESTED_COLUMNS,
        _tested_rows("selectivity", results),
        f"{IN_UNITS} Holm's p is over the ends.",
    )


_TESTED_COLUMNS = [
    "tree",
    "metric",
    "after",
    "branch",
    "compared with",
    "for requests like these",
    "for these cells",
    "p",
    "Holm's p",
    "verdict",
    "sign-flip p",
    "smallest possible p",
    "minimum detectable effect",
    "reason",
]


def _tested_rows(quantity: str, results: Results) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for contrast in results.all(f"imprint.{quantity}"):
        by_runs, p, holm_p, flips, smallest_p = (
            results.find(f"imprint.{quantity}.{name}", **contrast.subject)
            for name in ("by_runs", "p", "holm_p", "sign_flip_p", "smallest_p")
        )
        verdict = results.category(f"imprint.{quantity}.verdict", **contrast.subject)
        assert verdict is not None, "each contrast has its verdict"
        notes = [verdict.reason] + [contrast.note] * (contrast.note not in verdict.reason)
        rows.append(
            [
                *_keys(contrast, "tree", "metric", "end", "branch", "against"),
                _change(contrast),
                by_runs and _change(by_runs),
                claim_if(p, "{:.3g}"),
                claim_if(holm_p, "{:.3g}"),
                claim(verdict),
                claim_if(flips, "{:.3g}"),
                claim_if(smallest_p, "{:.3g}"),
                _effect(quantity, contrast, results),
                "; ".join(notes),
            ]
        )
    return rows


def deviations(results: Results) -> Table:
    """The change of every branch from after SFT to the end."""
    rows = [
        [*_keys(change, "tree", "metric", "end", "branch"), _change(change), change.note]
        for change in results.all("imprint.deviation")
    ]
    title = "Deviation of every branch: change from after SFT to the end"
    columns = ["tree", "metric", "after", "branch", "deviation", "note"]
    return table("imprint/deviations", title, columns, rows, f"{IN_UNITS} For requests like these.")


def after_sft(results: Results) -> Table:
    """Whether branches are equivalent after SFT, over runs and requests."""
    rows = []
    for difference in results.all("imprint.after_sft.inside"):
        verdict = results.category("imprint.after_sft.verdict", **difference.subject)
        smallest = results.only("imprint.after_sft.smallest_margin", **difference.subject)
        bound = results.find("imprint.bound", metric=difference.subject["metric"])
        bound = bound or results.only("imprint.bound", metric=REFUSAL)
        assert verdict is not None, "each difference has its verdict"
        rows.append(
            [
                *_keys(difference, "tree", "metric", "branch", "against"),
                _change(difference),
                _plain(bound, difference.subject["metric"]),
                _plain(smallest, difference.subject["metric"]),
                claim(verdict),
                verdict.reason,
            ]
        )
    columns = [
        "tree",
        "metric",
        "branch",
        "compared with",
        "difference",
        "margin",
        "smallest margin that passes",
        "verdict",
        "reason",
    ]
    title = "After SFT, before anything follows: are the branches equivalent?"
    note = (
        f"{IN_UNITS} Two one-sided tests at five per cent over runs, wordings and things: equivalent if the "
        "interval lies inside the margin."
    )
    return table("imprint/after-sft", title, columns, rows, note)


def nodes(pinned: Pinned, settings: ImprintSettings, results: Results) -> Table:
    """Every node's rates and what its checkpoint was trained on last."""
    by_node: dict[NodeId, dict[str, Estimate]] = {}
    for rate in results.all("imprint.node"):
        tree, branch, run, stage, metric = _keys(rate, "tree", "branch", "run", "stage", "metric")
        by_node.setdefault(NodeId(tree, branch, int(run), stage), {})[metric] = rate
    metrics = [metric for metric in METRICS if any(metric in rates for rates in by_node.values())]
    rows: list[list[Any]] = []
    for node, checkpoint in tree_nodes(settings):
        if node in by_node:
            cells = [by_node[node].get(metric) for metric in metrics]
            trained_last = pinned.stemma.trained_last(checkpoint) or ""
            rows.append([node.tree, node.branch, str(node.run), node.stage, trained_last, *map(_rate, cells)])
    titles = [
        f"{metric.replace('_', '-')}, %"
        if metric in SHARES
        else f"{metric.replace('_', ' ')}, {UNITS[metric]}"
        for metric in metrics
    ]
    columns = ["tree", "branch", "run", "stage", "trained last", *titles]
    return table("imprint/nodes", "Every node of the tree", columns, rows)


def stages(results: Results) -> Table:
    """Whether the branches went through the same stages."""
    rows = []
    for count in results.all("imprint.different_stages"):
        equality = results.category("imprint.stage_equality", **count.subject)
        assert equality is not None, "each count has its category"
        rows.append(
            [
                *_keys(count, "tree", "run", "stage"),
                claim(count, COUNT),
                claim(count, WHOLE, "n"),
                claim(equality),
                equality.reason,
            ]
        )
    columns = ["tree", "run", "stage", "different stages", "branches", "verdict", "hash"]
    title = "All else equal: did the branches go through the same stages?"
    note = "A hash covers the recipe, the seed and, except for windows, the corpus."
    return table("imprint/stages", title, columns, rows, note)


def matcher(results: Results) -> Table:
    """Precision and recall of the refusal matcher."""
    rows = [
        [share.subject["what"], claim(share, SHARE), claim(share, WHOLE, "n")]
        for share in results.all("imprint.matcher")
    ]
    title = "The refusal matcher on labelled replies"
    return table("imprint/matcher", title, ["metric of refusals", "value", "replies"], rows)


def _keys(result: Estimate | Category, *names: str) -> list[str]:
    return [result.subject[name] for name in names]


def _change(estimate: Estimate) -> Claim:
    """A difference of shares in percentage points, or of margins or losses in nats."""
    if estimate.subject["metric"] not in SHARES:
        return claim(estimate, SIGNED)
    return Claim(estimate.id, "value", SIGNED_POINTS, 100.0)


def _effect(quantity: str, estimate: Estimate, results: Results) -> Claim:
    """The minimum detectable effect, in the same units; in words where it is above the whole range."""
    visibility = results.category(f"imprint.{quantity}.visibility", **estimate.subject)
    if visibility is not None and visibility.value == INVISIBLE:
        return claim(visibility)
    return _plain(estimate, estimate.subject["metric"], "smallest_effect")


def _plain(estimate: Estimate, metric: str, field: str = "value") -> Claim:
    """A number without a sign, in the units of a metric."""
    return Claim(estimate.id, field, POINTS, 100.0) if metric in SHARES else claim(estimate, PLAIN, field)


def _rate(estimate: Estimate | None) -> Claim | None:
    """A share in per cent, or a margin or loss in nats."""
    if estimate is None:
        return None
    if estimate.subject["metric"] not in SHARES:
        return claim(estimate, PLAIN)
    return Claim(estimate.id, "value", POINTS, 100.0)

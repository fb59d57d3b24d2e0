"""Tables of the imprint section."""

from __future__ import annotations

from typing import Any

from stemmatics.core.content import Table
from stemmatics.core.results import Category, Claim, Estimate, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.imprint.needs import NodeId, tree_nodes
from stemmatics.measure.imprint.nodes import LOSS, METRICS
from stemmatics.measure.imprint.settings import ImprintSettings
from stemmatics.measure.present import COUNT, PLAIN, SHARE, SIGNED, WHOLE, claim, claim_if, table, with_rows

POINTS = "{:.1f}"
SIGNED_POINTS = "{:+.1f}"
IN_POINTS = "Shares in percentage points; loss in nats/byte."


def imprint_tables(pinned: Pinned, settings: ImprintSettings, results: Results) -> list[Table]:
    """Those with rows."""
    return with_rows(
        contrasts(results),
        after_sft(results),
        after_sft_runs(results),
        deviations(results),
        nodes(pinned, settings, results),
        stages(results),
        matcher(results),
    )


def contrasts(results: Results) -> Table:
    """The imprint of every branch, metric and end."""
    columns = [
        "tree",
        "metric",
        "after",
        "branch",
        "compared with",
        "imprint",
        "over runs only",
        "sign-flip p",
        "smallest possible p",
        "minimum detectable effect",
        "note",
    ]
    rows = []
    for imprint in results.all("imprint.contrast"):
        by_runs, p, smallest_p = (
            results.find(f"imprint.{name}", **imprint.subject) for name in ("by_runs", "p", "smallest_p")
        )
        rows.append(
            [
                *_keys(imprint, "tree", "metric", "end", "branch", "against"),
                _change(imprint),
                by_runs and _change(by_runs),
                claim_if(p, "{:.3g}"),
                claim_if(smallest_p, "{:.3g}"),
                _effect(imprint),
                imprint.note,
            ]
        )
    title = "Imprint: change from after SFT to the end, minus that of the other branch"
    note = (
        f"{IN_POINTS} Losses are compared over runs only. Minimum detectable effect at eighty per cent power."
    )
    return table("imprint/contrasts", title, columns, rows, note)


def deviations(results: Results) -> Table:
    """The change of every branch from after SFT to the end."""
    rows = [
        [*_keys(change, "tree", "metric", "end", "branch"), _change(change), change.note]
        for change in results.all("imprint.deviation")
    ]
    title = "Deviation of every branch: change from after SFT to the end"
    columns = ["tree", "metric", "after", "branch", "deviation", "note"]
    return table("imprint/deviations", title, columns, rows, IN_POINTS)


def after_sft(results: Results) -> Table:
    """Whether branches are equivalent after SFT, over runs."""
    rows = []
    for difference in results.all("imprint.after_sft.inside"):
        verdict = results.category("imprint.after_sft.verdict", **difference.subject)
        assert verdict is not None, "each difference has its verdict"
        rows.append(
            [
                *_keys(difference, "tree", "metric", "branch", "against"),
                _change(difference),
                Claim("imprint.margin", "value", POINTS, 100.0),
                claim(verdict),
                verdict.reason,
            ]
        )
    columns = ["tree", "metric", "branch", "compared with", "difference", "margin", "verdict", "reason"]
    title = "After SFT, before anything follows: are the branches equivalent?"
    note = "Two one-sided tests at five per cent: equivalent if the interval lies inside the margin."
    return table("imprint/after-sft", title, columns, rows, note)


def after_sft_runs(results: Results) -> Table:
    """The same run by run, by the tests of ``math.equivalence``."""
    columns = [
        "tree",
        "metric",
        "branch",
        "compared with",
        "run",
        "difference",
        "smallest margin",
        "prompts",
        "prompts needed",
        "verdict",
    ]
    rows = []
    for difference in results.all("imprint.after_sft.run"):
        subject = difference.subject
        rows.append(
            [
                *_keys(difference, "tree", "metric", "branch", "against", "run"),
                _change(difference),
                Claim(
                    results.only("imprint.after_sft.smallest_margin", **subject).id, "value", POINTS, 100.0
                ),
                claim(difference, WHOLE, "n"),
                claim(results.only("imprint.after_sft.num_needed", **subject), COUNT),
                claim_if(results.category("imprint.after_sft.run_verdict", **subject)),
            ]
        )
    return table("imprint/after-sft-runs", "After SFT, run by run on the same prompts", columns, rows)


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
    titles = ["loss, nats/byte" if metric == LOSS else f"{metric.replace('_', '-')}, %" for metric in metrics]
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
    """A difference of shares in percentage points, or of losses in nats/byte."""
    if estimate.subject["metric"] == LOSS:
        return claim(estimate, SIGNED)
    return Claim(estimate.id, "value", SIGNED_POINTS, 100.0)


def _effect(estimate: Estimate) -> Claim:
    """The minimum detectable effect, in the same units."""
    if estimate.subject["metric"] == LOSS:
        return claim(estimate, PLAIN, "smallest_effect")
    return Claim(estimate.id, "smallest_effect", POINTS, 100.0)


def _rate(estimate: Estimate | None) -> Claim | None:
    """A share in per cent, or a loss in nats/byte."""
    if estimate is None:
        return None
    if estimate.subject["metric"] == LOSS:
        return claim(estimate, PLAIN)
    return Claim(estimate.id, "value", POINTS, 100.0)

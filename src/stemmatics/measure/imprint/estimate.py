"""Results of the measure: rates of every node, the controls of the design, and the contrasts.

Axes: N documents, P nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from stemmatics.core.facts import Fact
from stemmatics.core.results import Result
from stemmatics.facts.matched import matched_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.math.imprint import in_quadrature, request_noise
from stemmatics.math.intervals import wilson
from stemmatics.math.rates import loss_rates
from stemmatics.measure.base import Tables
from stemmatics.measure.imprint.contrasts import Contrasts
from stemmatics.measure.imprint.needs import FORK, WINDOW, NodeId, stage_hashes, tree_nodes
from stemmatics.measure.imprint.nodes import (
    LOSS,
    LOSS_UNITS,
    MARGIN,
    MARGINS,
    REFUSAL,
    SHARE_UNITS,
    SHARES,
    UNITS,
    Node,
    Nodes,
    read_nodes,
)
from stemmatics.measure.imprint.settings import NAME, ImprintSettings
from stemmatics.measure.imprint.verdicts import DIFFERENT
from stemmatics.measure.inputs import Scores, names
from stemmatics.measure.present import ResultBuilder

SAME = "same"
PRECISION, RECALL = "precision", "recall"


def imprint_results(
    pinned: Pinned, settings: ImprintSettings, tables: Tables, rng: np.random.Generator
) -> list[Result]:
    """Everything that the measure computes."""
    nodes = read_nodes(pinned, settings, tables)
    results: list[Result] = [*node_margins(nodes), *node_shares(nodes), *node_losses(nodes, rng)]
    results += stage_equality(pinned, settings)
    results += window_sizes(pinned, settings, tables)
    results += matcher_quality(pinned, settings, tables)
    for metric, bound in ((REFUSAL, settings.margin), (MARGIN, settings.margin_nats)):
        if metric == REFUSAL or settings.graded:
            builder = ResultBuilder(NAME, {"metric": metric}, unit="prompt", units=UNITS[metric])
            results.append(builder.number("bound", bound))
    for name, tree in settings.trees.items():
        results += Contrasts(name, tree, settings, nodes).results()
    return results


def node_shares(nodes: Nodes) -> Iterator[Result]:
    """Shares of prompts at every node, with Wilson intervals."""
    for node_id, node in nodes.items():
        for metric in SHARES:
            if metric in node.outcomes:
                values_Q = node.outcomes[metric].value_Q
                builder = ResultBuilder(NAME, node_id.subject, [node.facts[metric]], SHARE_UNITS)
                yield builder.interval("node", wilson(int(values_Q.sum()), values_Q.size), metric=metric)


def node_margins(nodes: Nodes) -> Iterator[Result]:
    """Margins at every node, mean over cells; intervals for requests like these under this checkpoint."""
    for node_id, node in nodes.items():
        for metric in MARGINS:
            if metric in node.outcomes:
                outcomes = node.outcomes[metric]
                noises = request_noise(outcomes.cells, *outcomes.labels)
                interval = in_quadrature(float(outcomes.cells.mean()), noises)
                builder = ResultBuilder(NAME, node_id.subject, [node.facts[metric]], UNITS[metric])
                yield builder.interval("node", interval, metric=metric)


def node_losses(nodes: Nodes, rng: np.random.Generator) -> Iterator[Result]:
    """Losses of every node; nodes scored on the same documents share one set of resamples."""
    by_documents: dict[bytes, list[tuple[NodeId, Node, Scores]]] = {}
    for node_id, node in nodes.items():
        if node.scores is not None:
            key = node.scores.index_N.tobytes() + node.scores.num_bytes_N.tobytes()
            by_documents.setdefault(key, []).append((node_id, node, node.scores))
    for members in by_documents.values():
        first = members[0][2]
        intervals = loss_rates(
            np.stack([scores.nll_N for _, _, scores in members], axis=1),
            first.num_bytes_N,
            rng=rng,
            groups=first.group_N,
        )
        for (node_id, node, _), interval in zip(members, intervals, strict=True):
            builder = ResultBuilder(NAME, node_id.subject, [node.facts[LOSS]], LOSS_UNITS)
            yield builder.interval("node", interval, metric=LOSS)


def stage_equality(pinned: Pinned, settings: ImprintSettings) -> Iterator[Result]:
    """Control: whether all branches went through the same stage, and how many different ones there are."""
    for (tree, run, stage), branches_by_hash in stage_hashes(pinned, settings).items():
        num_branches = sum(len(branches) for branches in branches_by_hash.values())
        builder = ResultBuilder(
            NAME,
            {"tree": tree, "run": str(run), "stage": stage},
            units="stages",
            n=num_branches,
            unit="branch",
            tag="control",
        )
        yield builder.number("different_stages", float(len(branches_by_hash)))
        reason = "; ".join(
            f"{digits} in {', '.join(branches)}" for digits, branches in branches_by_hash.items()
        )
        yield builder.category("stage_equality", SAME if len(branches_by_hash) == 1 else DIFFERENT, reason)


def window_sizes(pinned: Pinned, settings: ImprintSettings, tables: Tables) -> Iterator[Result]:
    """Tokens of each branch's first window, also as a share of the fork's where the study trains the fork."""
    for node_id, checkpoint in tree_nodes(settings):
        fact = pinned.checkpoint(checkpoint)
        is_first_window = node_id.stage == WINDOW and node_id.run == 1
        if not is_first_window or not tables.has(fact) or fact.probe == "weights":
            continue
        subject = {"tree": node_id.tree, "branch": node_id.branch}
        builder = ResultBuilder(NAME, subject, [fact], unit="token")
        num_tokens = _tokens_trained(tables, fact)
        yield builder.number("window_tokens", num_tokens, units="tokens")
        fork = pinned.checkpoint(settings.trees[node_id.tree].fork)
        if fork.probe != "weights" and tables.has(fork):
            share = num_tokens / _tokens_trained(tables, fork)
            yield builder.number("window_share", share, units=f"of the {FORK}'s")


def _tokens_trained(tables: Tables, fact: Fact) -> float:
    return float(pc.max(tables.read(fact, "training")["num_tokens"]).as_py() or 0)


def matcher_quality(pinned: Pinned, settings: ImprintSettings, tables: Tables) -> Iterator[Result]:
    """Control: precision and recall of the refusal matcher against a reader's labels."""
    if settings.matcher is None:
        return
    fact = matched_fact(pinned, settings.matcher)
    if not tables.has(fact):
        return
    items = tables.read(fact, "items")
    matched, labelled = names(items, "outcome") == "refusal", names(items, "category") == "refusal"
    num_both = int((matched & labelled).sum())
    builder = ResultBuilder(NAME, {"corpus": settings.matcher}, [fact], "share of replies", tag="control")
    for quantity, refusals in ((PRECISION, matched), (RECALL, labelled)):
        interval = wilson(num_both, int(refusals.sum()), unit="reply")
        yield builder.interval("matcher", interval, what=quantity)

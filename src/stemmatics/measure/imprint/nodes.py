"""Stored replies and losses of every node as arrays.

Axes: Q prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Tables
from stemmatics.measure.imprint.needs import NodeFacts, NodeId, node_facts, tree_nodes
from stemmatics.measure.imprint.settings import ImprintSettings
from stemmatics.measure.inputs import FloatArray, Scores, names, numbers, read_scores

LOSS = "loss"
SHARES = ("refusal", "over_refusal", "judged_refusal", "instructions", "recall")
METRICS = (*SHARES, LOSS)


@dataclass(frozen=True)
class Node:
    """What is stored of one checkpoint, by metric; a metric that was not measured is absent.

    ``outcomes_Q`` are 1 for a prompt that was refused (or answered correctly), else 0.
    """

    outcomes_Q: Mapping[str, FloatArray]
    scores: Scores | None
    facts: Mapping[str, Fact]

    def rate(self, metric: str) -> float:
        """Share of prompts, or loss in nats/byte."""
        if metric != LOSS:
            return float(self.outcomes_Q[metric].mean())
        assert self.scores is not None, "a node with a fact of its loss has scores"
        return float(self.scores.nll_N.sum() / self.scores.num_bytes_N.sum())


Nodes = Mapping[NodeId, Node]


def read_nodes(pinned: Pinned, settings: ImprintSettings, tables: Tables) -> dict[NodeId, Node]:
    """The nodes of which anything is stored; each checkpoint is read once."""
    by_checkpoint: dict[str, Node] = {}
    nodes: dict[NodeId, Node] = {}
    for node_id, checkpoint in tree_nodes(settings):
        if checkpoint not in by_checkpoint:
            facts = node_facts(pinned, settings, checkpoint)
            by_checkpoint[checkpoint] = read_node(facts, settings, tables)
        if by_checkpoint[checkpoint].facts:
            nodes[node_id] = by_checkpoint[checkpoint]
    return nodes


_CATEGORY_SETTINGS = {"refusal": "refused", "over_refusal": "harmless", "judged_refusal": "refused"}


def read_node(node: NodeFacts, settings: ImprintSettings, tables: Tables) -> Node:
    """One checkpoint's replies and losses. The metrics of a fact that failed are absent."""
    sources: list[tuple[str, Fact | None, str | None]] = [
        ("refusal", node.refusal, settings.refused),
        ("over_refusal", node.refusal, settings.harmless),
        ("judged_refusal", node.judged, settings.refused),
        ("instructions", node.instructions, None),
        ("recall", node.recall, settings.recall_category),
    ]
    outcomes, facts = {}, {}
    for metric, fact, category in sources:
        if fact is None or not tables.has(fact):
            continue
        items = _of_category(tables.read(fact, "items"), category, metric)
        is_refusal = metric in {"refusal", "over_refusal", "judged_refusal"}
        outcomes[metric] = _refused(items) if is_refusal else numbers(items, "correct")
        facts[metric] = fact
    scores = None
    if node.loss is not None and tables.has(node.loss):
        scores, facts[LOSS] = read_scores(node.loss, tables), node.loss
    return Node(outcomes, scores, facts)


def _refused(items: pa.Table) -> FloatArray:
    return np.asarray(names(items, "outcome") == "refusal", dtype=np.float64)


def _of_category(items: pa.Table, category: str | None, metric: str) -> pa.Table:
    setting = _CATEGORY_SETTINGS.get(metric, "recall_category")
    if category is None:
        return items
    category_Q: npt.NDArray[np.str_] = names(items, "category")
    if not (category_Q == category).any():
        raise UserError(
            f"no item has the category {category!r}",
            f"{metric} is counted over it; the corpus has {', '.join(sorted(set(category_Q.tolist())))}",
            f"Set `imprint: {{{setting}: NAME}}` under `measures:` to one of them",
        )
    return items.filter(pa.array(category_Q == category))

"""Stored replies, margins and losses of every node as arrays.

Axes: Q prompts, C cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.pinned import Pinned
from stemmatics.math.imprint import cell_means
from stemmatics.measure.base import Tables
from stemmatics.measure.imprint.needs import NodeFacts, NodeId, node_facts, tree_nodes
from stemmatics.measure.imprint.settings import ImprintSettings
from stemmatics.measure.inputs import FloatArray, Scores, names, numbers, read_scores

LOSS = "loss"
MARGIN, MARGIN_SUM, HARMLESS_MARGIN = "margin", "margin_sum", "harmless_margin"
MARGINS = (MARGIN, MARGIN_SUM, HARMLESS_MARGIN)
REFUSAL = "refusal"
SHARES = (REFUSAL, "over_refusal", "judged_refusal", "instructions", "recall")
# the graded outcome first: a rate needs far more runs
METRICS = (*MARGINS, *SHARES, LOSS)
SHARE_UNITS, LOSS_UNITS = "share of prompts", "nats/byte"
UNITS = {
    **dict.fromkeys(SHARES, SHARE_UNITS),
    MARGIN: "nats/token",
    HARMLESS_MARGIN: "nats/token",
    MARGIN_SUM: "nats",
    LOSS: LOSS_UNITS,
}
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Outcomes:
    """A metric's value at every prompt, and the wording and the thing that each was made from.

    Values are 1 for a prompt that was refused (or answered correctly), else 0; margins are in nats. Prompts
    are labelled if every one has a wording and a thing; else each item is a cell, and copies of an item one.
    """

    value_Q: FloatArray
    item_Q: npt.NDArray[np.str_]
    wording_Q: npt.NDArray[np.str_] | None = None
    thing_Q: npt.NDArray[np.str_] | None = None

    @cached_property
    def _cell_of(self) -> npt.NDArray[np.generic]:
        if self.wording_Q is None or self.thing_Q is None:
            return self.item_Q
        pairs = zip(self.wording_Q.tolist(), self.thing_Q.tolist(), strict=True)
        return np.array([f"{wording}{_SEPARATOR}{thing}" for wording, thing in pairs])

    @cached_property
    def cells(self) -> FloatArray:
        """Mean of each cell, cells sorted by their label."""
        return cell_means(self.value_Q, self._cell_of)[1]

    @cached_property
    def labels(self) -> tuple[npt.NDArray[np.generic] | None, npt.NDArray[np.generic] | None]:
        """Wording and thing of each cell, [C] each; None for prompts without."""
        if self.wording_Q is None:
            return None, None
        cells = [str(cell).split(_SEPARATOR) for cell in cell_means(self.value_Q, self._cell_of)[0]]
        return np.array([wording for wording, _ in cells]), np.array([thing for _, thing in cells])


@dataclass(frozen=True)
class Node:
    """What is stored of one checkpoint, by metric; a metric that was not measured is absent."""

    outcomes: Mapping[str, Outcomes]
    scores: Scores | None
    facts: Mapping[str, Fact]

    def mean(self, metric: str) -> float:
        """Mean over cells, or loss in nats/byte."""
        if metric != LOSS:
            return float(self.outcomes[metric].cells.mean())
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


_CATEGORY_SETTINGS = {
    **dict.fromkeys((MARGIN, MARGIN_SUM, REFUSAL, "judged_refusal"), "refused"),
    **dict.fromkeys((HARMLESS_MARGIN, "over_refusal"), "harmless"),
}


def read_node(node: NodeFacts, settings: ImprintSettings, tables: Tables) -> Node:
    """One checkpoint's replies, margins and losses. The metrics of a fact that failed are absent."""
    sources: list[tuple[str, Fact | None, str | None]] = [
        *((metric, node.margins, settings.refused) for metric in (MARGIN, MARGIN_SUM)),
        (HARMLESS_MARGIN, node.margins, settings.harmless),
        (REFUSAL, node.refusal, settings.refused),
        ("over_refusal", node.refusal, settings.harmless),
        ("judged_refusal", node.judged, settings.refused),
        ("instructions", node.instructions, None),
        ("recall", node.recall, settings.recall_category),
    ]
    outcomes, facts = {}, {}
    for metric, fact, category in sources:
        if fact is None or not tables.has(fact):
            continue
        items = _of_category(tables.read(fact, "margins" if metric in MARGINS else "items"), category, metric)
        outcomes[metric] = Outcomes(_values(items, metric), names(items, "item_id"), *_labels(items))
        facts[metric] = fact
    scores = None
    if node.loss is not None and tables.has(node.loss):
        scores, facts[LOSS] = read_scores(node.loss, tables), node.loss
    return Node(outcomes, scores, facts)


def _values(items: pa.Table, metric: str) -> FloatArray:
    if metric in MARGINS:
        refusal_Q, answer_Q = numbers(items, "refusal_nll"), numbers(items, "answer_nll")
        if metric != MARGIN_SUM:
            refusal_Q = refusal_Q / numbers(items, "refusal_tokens")
            answer_Q = answer_Q / numbers(items, "answer_tokens")
        return np.asarray(answer_Q - refusal_Q, dtype=np.float64)
    if metric in {REFUSAL, "over_refusal", "judged_refusal"}:
        return np.asarray(names(items, "outcome") == "refusal", dtype=np.float64)
    return numbers(items, "correct")


def _labels(items: pa.Table) -> tuple[npt.NDArray[np.str_] | None, npt.NDArray[np.str_] | None]:
    """Wordings and things, if every prompt has both."""
    wordings, things = (items[name].to_pylist() for name in ("wording", "thing"))
    if not (wordings and all(wordings) and all(things)):
        return None, None
    return np.array(wordings), np.array(things)


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

"""What every node answered, prompt by prompt.

Axes: Q prompts, S runs.
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
from stemmatics.measure.imprint.needs import Asked, ImprintSettings, Place, asked_of, nodes
from stemmatics.measure.inputs import Scores, read_scores

FloatArray = npt.NDArray[np.float64]
METRICS = ("refusal", "over_refusal", "judged_refusal", "instructions", "recall")


@dataclass(frozen=True)
class Answers:
    """0 or 1 for each prompt, by metric [Q]; what was not asked is not there. ``facts`` by metric."""

    shares_Q: Mapping[str, FloatArray]
    scores: Scores | None
    facts: Mapping[str, Fact]


@dataclass(frozen=True)
class Strands:
    """The nodes that are there, by place, each checkpoint read once."""

    answers: Mapping[Place, Answers]

    def at(self, tree: str, branch: str, run: int, stage: str) -> Answers | None:
        """The answers of a node; None where there are none."""
        return self.answers.get(Place(tree, branch, run, stage))


def read_nodes(pinned: Pinned, settings: ImprintSettings, tables: Tables) -> Strands:
    """All nodes with those of their metrics whose facts are there."""
    by_name: dict[str, Answers] = {}
    found: dict[Place, Answers] = {}
    for place, checkpoint in nodes(settings):
        if checkpoint not in by_name:
            by_name[checkpoint] = _answers(asked_of(pinned, settings, checkpoint), settings, tables)
        if by_name[checkpoint].facts:
            found[place] = by_name[checkpoint]
    return Strands(found)


def _answers(asked: Asked, settings: ImprintSettings, tables: Tables) -> Answers:
    """A fact that failed leaves its metrics out."""
    wanted: list[tuple[str, Fact | None, str | None, bool]] = [
        ("refusal", asked.refusal, settings.refused, True),
        ("over_refusal", asked.refusal, settings.harmless, True),
        ("judged_refusal", asked.judged, settings.refused, True),
        ("instructions", asked.instructions, None, False),
        ("recall", asked.recall, settings.recall_category, False),
    ]
    shares, facts = {}, {}
    for metric, fact, category, of_refusals in wanted:
        if fact is None or not tables.has(fact):
            continue
        rows = tables.read(fact, "items")
        values_Q = _column(rows, "outcome") == "refusal" if of_refusals else _column(rows, "correct")
        shares[metric] = _of_category(rows, values_Q, category, metric)
        facts[metric] = fact
    scores = None
    if asked.loss is not None and tables.has(asked.loss):
        scores, facts["loss"] = read_scores(asked.loss, tables), asked.loss
    return Answers(shares, scores, facts)


def _of_category(
    rows: pa.Table, values_Q: npt.NDArray[np.generic], category: str | None, metric: str
) -> FloatArray:
    if category is None:
        return np.asarray(values_Q, dtype=np.float64)
    category_Q = _column(rows, "category")
    if not (category_Q == category).any():
        raise UserError(
            f"no item has the category {category!r}",
            f"{metric} is counted over those; there are {', '.join(sorted(set(category_Q.tolist())))}",
            "Name the category in the settings of imprint",
        )
    return np.asarray(values_Q[category_Q == category], dtype=np.float64)


def _column(table: pa.Table, name: str) -> npt.NDArray[np.generic]:
    column: npt.NDArray[np.generic] = table[name].to_numpy(zero_copy_only=False)
    return column

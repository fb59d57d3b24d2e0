"""Closed-book questions asked of all four arms: was anything forgotten?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.equivalence import Equivalence, equivalence, paired_score_interval
from stemmatics.math.intervals import Interval, wilson
from stemmatics.math.recovery.retention import Retention, retention
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.recovery.needs import Arms, PairNames
from stemmatics.measure.recovery.settings import NAME

UNIT = "item"
# side of the pair and run of each of the four arms, in the order in which they are shown
ARMS: dict[str, tuple[int, int | None]] = {
    "native base": (0, None),
    "matched base": (0, 0),
    "native": (1, None),
    "recovered": (1, 0),
}
_SIDES = ("matched base", "recovered")


@dataclass(frozen=True)
class Recall:
    """The answers of one pair. Axes: R runs, N items.

    ``correct`` has one array [N] for each of the four arms, of the first run where there are several;
    ``runs_RN`` all runs of the matched base and of the descendant, by run. ``weight_N``: copies of an item
    share a weight of one. ``change``: recovered less matched base, first runs, on the same items.
    """

    pair: PairNames
    correct: dict[str, npt.NDArray[np.bool_]]
    runs_RN: dict[str, dict[int, npt.NDArray[np.bool_]]]
    weight_N: FloatArray
    facts: dict[str, Fact]
    change: Interval
    equivalence: Equivalence
    num_lost: int
    num_gained: int
    num_lost_between_runs: int | None

    @property
    def num_items(self) -> int:
        """How many items each arm answered."""
        return len(self.correct["recovered"])

    def num_known(self, base_runs: Sequence[int]) -> float:
        """How many different items the matched base answers, mean over these runs."""
        runs = [run_N for run, run_N in self.runs_RN["matched base"].items() if run in base_runs]
        return float(np.mean([(run_N * self.weight_N).sum() for run_N in runs])) if runs else 0.0

    def lacks_replies(self, base_runs: Sequence[int], recovered_runs: Sequence[int]) -> bool:
        """Whether a run was not asked, or its replies failed."""
        run_names = [self.runs_RN[side].keys() for side in _SIDES]
        return not (run_names[0] >= set(base_runs) and run_names[1] >= set(recovered_runs))

    def retention(self, base_runs: Sequence[int], recovered_runs: Sequence[int]) -> Retention | None:
        """What the descendant still answers of what its base does; None without two base runs and one."""
        arms = []
        for side, run_names in zip(_SIDES, (base_runs, recovered_runs), strict=True):
            arms.append([self.runs_RN[side][run] for run in run_names if run in self.runs_RN[side]])
        if len(arms[0]) < 2 or not arms[1]:
            return None
        return retention(np.stack(arms[0]), np.stack(arms[1]), weight_N=self.weight_N)

    def results(self, **subject: str) -> ResultBuilder:
        """Builds results on this pair, with the facts of all arms."""
        base, descendant = self.pair
        return ResultBuilder(
            NAME,
            {"base": base, "descendant": descendant, **subject},
            list(self.facts.values()),
            "share of items",
            n=self.num_items,
            unit=UNIT,
        )


def read_recalls(arms: Arms, tables: Tables) -> dict[PairNames, Recall]:
    """The recall of every pair whose replies are all there."""
    recalls = {pair: read_recall(arms, pair, tables) for pair in arms.pairs}
    return {pair: recall for pair, recall in recalls.items() if recall is not None}


def read_recall(arms: Arms, pair: PairNames, tables: Tables) -> Recall | None:
    """The recall of one pair; None without items, or where the replies of an arm failed."""
    items = arms.settings.items
    if items is None:
        return None
    facts = {name: arms.replies(pair[side], items, run=run) for name, (side, run) in ARMS.items()}
    if not all(tables.has(fact) for fact in facts.values()):
        return None
    answers = {name: _Answers.read(arms, fact, tables) for name, fact in facts.items()}
    correct = {name: each.correct_N for name, each in answers.items()}
    if not len(correct["recovered"]):
        return None
    runs_RN: dict[str, dict[int, npt.NDArray[np.bool_]]] = {side: {0: correct[side]} for side in _SIDES}
    for side, checkpoint in zip(_SIDES, pair, strict=True):
        for run in range(1, arms.num_runs(checkpoint)):
            fact = arms.replies(checkpoint, items, run=run)
            if tables.has(fact):
                facts[f"{side}, run {run}"] = fact
                runs_RN[side][run] = _Answers.read(arms, fact, tables).correct_N
    matched_N, recovered_N = correct["matched base"], correct["recovered"]
    num_lost, num_gained = int((matched_N & ~recovered_N).sum()), int((recovered_N & ~matched_N).sum())
    again_N = runs_RN["matched base"].get(1)
    num_items = len(matched_N)
    return Recall(
        pair=pair,
        correct=correct,
        runs_RN=runs_RN,
        weight_N=answers["recovered"].weight_N,
        facts=facts,
        change=paired_score_interval(num_gained, num_lost, num_items, unit=UNIT),
        equivalence=equivalence(num_gained, num_lost, num_items, margin=arms.settings.margin, unit=UNIT),
        num_lost=num_lost,
        num_gained=num_gained,
        num_lost_between_runs=None if again_N is None else int((matched_N & ~again_N).sum()),
    )


@dataclass(frozen=True)
class _Answers:
    """Which items were answered correctly, in their order; questions without an answer do not count."""

    correct_N: npt.NDArray[np.bool_]
    weight_N: FloatArray

    @classmethod
    def read(cls, arms: Arms, fact: Fact, tables: Tables) -> _Answers:
        categories = arms.settings.categories
        rows = sorted(tables.read(fact, "items").to_pylist(), key=lambda row: int(row["index"]))
        scored = [
            row
            for row in rows
            if row["num_accepted"] and (categories is None or row["category"] in categories)
        ]
        # copies of an item have one id
        copies = Counter(row["item_id"] for row in scored)
        return cls(
            np.array([bool(row["correct"]) for row in scored], dtype=np.bool_),
            np.array([1 / copies[row["item_id"]] for row in scored], dtype=np.float64),
        )


def recall_estimates(recalls: Sequence[Recall]) -> list[Estimate]:
    """The share of each arm, the change, the items lost, and what would show that they are equal."""
    estimates: list[Estimate] = []
    for recall in recalls:
        build = recall.results()
        for arm in ARMS:
            correct_N = recall.correct[arm]
            share = wilson(int(correct_N.sum()), len(correct_N), unit=UNIT)
            estimates.append(build.with_facts(recall.facts[arm]).interval("recall", share, arm=arm))
        estimates += [
            build.interval("recall.change", recall.change),
            build.number("recall.lost", float(recall.num_lost), units="items"),
            build.number("recall.gained", float(recall.num_gained), units="items"),
            build.number("recall.margin", recall.equivalence.smallest_margin),
            build.number("recall.needed", float(recall.equivalence.num_needed), units="items"),
        ]
        if recall.num_lost_between_runs is not None:
            lost_between_runs = float(recall.num_lost_between_runs)
            estimates.append(build.number("recall.lost_between_runs", lost_between_runs, units="items"))
    return estimates

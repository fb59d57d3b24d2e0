"""Closed-book questions asked of all four arms: was anything forgotten?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.equivalence import Equivalence, equivalence, paired_score_interval
from stemmatics.math.intervals import Interval, wilson
from stemmatics.measure.base import Tables
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


@dataclass(frozen=True)
class Recall:
    """The answers of one pair. Axes: N items; ``correct`` has one array [N] for each arm.

    ``change``: recovered less matched base, on the same items. ``lost_corrected``: the share of items
    lost, less the share that the matched base loses from its first run to its second; None where the
    base has one run.
    """

    pair: PairNames
    correct: dict[str, npt.NDArray[np.bool_]]
    facts: dict[str, Fact]
    change: Interval
    equivalence: Equivalence
    num_lost: int
    num_gained: int
    num_lost_between_runs: int | None
    lost_corrected: Interval | None

    @property
    def num_items(self) -> int:
        """How many items each arm answered."""
        return len(self.correct["recovered"])

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
    correct = {name: _correct(arms, fact, tables) for name, fact in facts.items()}
    matched_N, recovered_N = correct["matched base"], correct["recovered"]
    lost_N, gained_N = matched_N & ~recovered_N, recovered_N & ~matched_N
    num_lost, num_gained, num_items = int(lost_N.sum()), int(gained_N.sum()), len(lost_N)
    num_lost_between_runs, lost_corrected = None, None
    if arms.num_runs(pair[0]) > 1:
        second_run = arms.replies(pair[0], items, run=1)
        if tables.has(second_run):
            facts["matched base again"] = second_run
            by_chance_N = matched_N & ~_correct(arms, second_run, tables)
            num_lost_between_runs = int(by_chance_N.sum())
            more, fewer = int((lost_N & ~by_chance_N).sum()), int((by_chance_N & ~lost_N).sum())
            lost_corrected = paired_score_interval(more, fewer, num_items, unit=UNIT)
    return Recall(
        pair=pair,
        correct=correct,
        facts=facts,
        change=paired_score_interval(num_gained, num_lost, num_items, unit=UNIT),
        equivalence=equivalence(num_gained, num_lost, num_items, margin=arms.settings.margin, unit=UNIT),
        num_lost=num_lost,
        num_gained=num_gained,
        num_lost_between_runs=num_lost_between_runs,
        lost_corrected=lost_corrected,
    )


def _correct(arms: Arms, fact: Fact, tables: Tables) -> npt.NDArray[np.bool_]:
    """Which items were answered correctly, in their order; questions without an answer do not count."""
    categories = arms.settings.categories
    rows = sorted(tables.read(fact, "items").to_pylist(), key=lambda row: int(row["index"]))
    kept = [
        row for row in rows if row["num_accepted"] and (categories is None or row["category"] in categories)
    ]
    return np.array([bool(row["correct"]) for row in kept], dtype=np.bool_)


def recall_estimates(recalls: Sequence[Recall]) -> list[Estimate]:
    """The share of each arm, the change, and the items lost, corrected."""
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
            build.number("recall.needed", float(recall.equivalence.num_needed)),
        ]
        if recall.num_lost_between_runs is not None and recall.lost_corrected is not None:
            lost_between_runs = float(recall.num_lost_between_runs)
            estimates += [
                build.number("recall.lost_between_runs", lost_between_runs, units="items"),
                build.interval("recall.lost_corrected", recall.lost_corrected),
            ]
    return estimates

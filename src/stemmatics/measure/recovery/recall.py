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
from stemmatics.measure.present import estimate_from
from stemmatics.measure.recovery.needs import NAME, Arms
from stemmatics.measure.recovery.pairs import Pair

UNIT = "item"
# arm and run of each of the four arms, in the order in which they are shown
ARMS: dict[str, tuple[int, int | None]] = {
    "native base": (0, None),
    "matched base": (0, 0),
    "native": (1, None),
    "recovered": (1, 0),
}


@dataclass(frozen=True)
class Recall:
    """One pair's items. Axes: N items; each array says which were answered rightly.

    ``change``: recovered less matched base, on the same items. ``lost_corrected``: the share of items
    lost, less the share that the matched base loses from its first run to its second; None where the
    base has one run.
    """

    pair: Pair
    right: dict[str, npt.NDArray[np.bool_]]
    facts: dict[str, Fact]
    change: Interval
    judged: Equivalence
    num_lost: int
    num_gained: int
    num_lost_between_runs: int | None
    lost_corrected: Interval | None


def read_recall(arms: Arms, pair: Pair, tables: Tables) -> Recall | None:
    """The pair's items; None where nothing is asked or a reply fact failed."""
    items = arms.settings.items
    if items is None:
        return None
    facts = {name: arms.asked(pair[side], items, run=run) for name, (side, run) in ARMS.items()}
    if not all(tables.has(fact) for fact in facts.values()):
        return None
    right = {name: _right(arms, fact, tables) for name, fact in facts.items()}
    matched_N, recovered_N = right["matched base"], right["recovered"]
    lost_N, gained_N = matched_N & ~recovered_N, recovered_N & ~matched_N
    num_lost, num_gained, num_items = int(lost_N.sum()), int(gained_N.sum()), len(lost_N)
    between, corrected = None, None
    if arms.runs(pair[0]) > 1:
        again = arms.asked(pair[0], items, run=1)
        if tables.has(again):
            facts["matched base again"] = again
            by_chance_N = matched_N & ~_right(arms, again, tables)
            between = int(by_chance_N.sum())
            more, fewer = int((lost_N & ~by_chance_N).sum()), int((by_chance_N & ~lost_N).sum())
            corrected = paired_score_interval(more, fewer, num_items, unit=UNIT)
    return Recall(
        pair=pair,
        right=right,
        facts=facts,
        change=paired_score_interval(num_gained, num_lost, num_items, unit=UNIT),
        judged=equivalence(num_gained, num_lost, num_items, margin=arms.settings.margin, unit=UNIT),
        num_lost=num_lost,
        num_gained=num_gained,
        num_lost_between_runs=between,
        lost_corrected=corrected,
    )


def _right(arms: Arms, fact: Fact, tables: Tables) -> npt.NDArray[np.bool_]:
    """Which items were answered rightly, in their order; questions without an answer do not count."""
    wanted = arms.settings.categories
    rows = sorted(tables.read(fact, "items").to_pylist(), key=lambda row: int(row["index"]))
    kept = [row for row in rows if row["num_accepted"] and (wanted is None or row["category"] in wanted)]
    return np.array([bool(row["correct"]) for row in kept], dtype=np.bool_)


def recall_estimates(recalls: Sequence[Recall]) -> list[Estimate]:
    """The share of each arm, the change, and the items lost, corrected."""
    found: list[Estimate] = []
    for one in recalls:
        subject = {"base": one.pair[0], "descendant": one.pair[1]}
        facts = list(one.facts.values())
        for name in ARMS:
            right_N = one.right[name]
            found.append(
                _estimate(
                    wilson(int(right_N.sum()), len(right_N), unit=UNIT),
                    "recall",
                    {**subject, "arm": name},
                    [one.facts[name]],
                )
            )
        found.append(_estimate(one.change, "recall.change", subject, facts))
        found.append(_count("recall.lost", one.num_lost, one, facts))
        found.append(_count("recall.gained", one.num_gained, one, facts))
        found.append(_number("recall.margin", one.judged.smallest_margin, one, facts))
        found.append(_number("recall.needed", float(one.judged.num_needed), one, facts))
        if one.num_lost_between_runs is not None and one.lost_corrected is not None:
            found.append(_count("recall.lost_between_runs", one.num_lost_between_runs, one, facts))
            found.append(_estimate(one.lost_corrected, "recall.lost_corrected", subject, facts))
    return found


def _estimate(interval: Interval, quantity: str, subject: dict[str, str], facts: Sequence[Fact]) -> Estimate:
    return estimate_from(
        interval,
        measure=NAME,
        quantity=f"recovery.{quantity}",
        subject=subject,
        units="share of items",
        facts=facts,
    )


def _count(quantity: str, count: int, recall: Recall, facts: Sequence[Fact]) -> Estimate:
    return _number(quantity, float(count), recall, facts, units="items")


def _number(
    quantity: str, value: float, recall: Recall, facts: Sequence[Fact], units: str = "share of items"
) -> Estimate:
    return Estimate(
        measure=NAME,
        quantity=f"recovery.{quantity}",
        subject={"base": recall.pair[0], "descendant": recall.pair[1]},
        value=value,
        n=len(recall.right["recovered"]),
        unit=UNIT,
        units=units,
        facts=tuple(fact.key for fact in facts),
    )

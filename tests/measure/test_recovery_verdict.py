"""The rules of the verdict, one by one, and the counts behind the recall."""

import math

import numpy as np
import pyarrow as pa
import pytest

from stemmatics.core.facts import Fact
from stemmatics.math.equivalence import equivalence, paired_score_interval
from stemmatics.math.intervals import Interval
from stemmatics.measure.recovery.dose import kendall_p
from stemmatics.measure.recovery.pairs import PairFound
from stemmatics.measure.recovery.recall import ARMS, Recall, read_recall
from stemmatics.measure.recovery.select import letters
from stemmatics.measure.recovery.verdict import verdict

PAIR = ("base", "descendant")
NUM_ITEMS = 400


def interval(value, half):
    return Interval(value, value - half, value + half, 0.95, "t", 10, "document", half, half / 2)


def pair(*, residual=0.02, drop=0.1, moved=None, noise=0.001):
    whole = interval(residual, 0.004)
    second = None if moved is None else interval(moved, 0.004)
    return PairFound(
        PAIR, whole, interval(drop, 0.01), interval(0.0, 0.01), interval(0.0, noise), whole, second
    )


def recall(lost, gained=0, margin=0.05):
    return Recall(
        PAIR,
        {name: np.ones(NUM_ITEMS, dtype=bool) for name in ARMS},
        {},
        paired_score_interval(gained, lost, NUM_ITEMS, unit="item"),
        equivalence(gained, lost, NUM_ITEMS, margin=margin, unit="item"),
        lost,
        gained,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("expected", "found", "asked"),
    [
        ("undetermined", pair(moved=0.05), None),
        ("forgetting", pair(), recall(lost=60)),
        ("forgetting", pair(moved=0.001), recall(lost=60)),
        ("both", pair(moved=0.05), recall(lost=60)),
        ("register", pair(moved=0.05), recall(lost=1)),
        ("register", pair(moved=-0.05), recall(lost=1)),
        # nothing moves the residual, but it is no more than noise while something came off
        ("register", pair(residual=0.0005, noise=0.002), recall(lost=1)),
        ("undetermined", pair(residual=0.0005, noise=0.002, drop=0.001), recall(lost=1)),
        ("undetermined", pair(), recall(lost=1)),
        # recall neither falls nor is shown to be equal
        ("undetermined", pair(moved=0.05), recall(lost=12, gained=9, margin=0.01)),
        ("undetermined", pair(residual=0.0, noise=math.nan), recall(lost=1)),
    ],
)
def test_the_rules(expected, found, asked):
    assert verdict(found, asked) == expected


class _Arms:
    """Four arms whose replies are made up; the base has two runs."""

    def __init__(self, right):
        self.right = right
        self.settings = type("S", (), {"items": "items", "categories": ["recall"], "margin": 0.05})()

    def runs(self, _name):
        return 2

    def asked(self, name, _items, *, run):
        return Fact("replies", 1, {"of": name, "run": run})

    def has(self, _fact):
        return True

    def read(self, fact, _table):
        right = self.right[fact.params["of"], fact.params["run"]]
        rows = [
            {"index": place, "correct": int(one), "num_accepted": 1, "category": "recall"}
            for place, one in enumerate(right)
        ]
        rows += [
            {"index": 90, "correct": 1, "num_accepted": 1, "category": "paraphrase"},
            {"index": 91, "correct": 0, "num_accepted": 0, "category": "recall"},
        ]
        return pa.Table.from_pylist(rows[::-1])


def test_items_lost_are_corrected_by_those_lost_between_runs():
    arms = _Arms(
        {
            ("base", None): [1, 1, 1, 1, 1, 0],
            ("base", 0): [1, 1, 1, 1, 0, 0],
            ("base", 1): [0, 1, 1, 1, 0, 0],
            ("descendant", None): [0, 0, 0, 1, 1, 0],
            ("descendant", 0): [0, 0, 1, 1, 1, 0],
        }
    )
    found = read_recall(arms, PAIR, arms)
    assert (found.num_lost, found.num_gained, found.num_lost_between_runs) == (2, 1, 1)
    assert found.change.value == pytest.approx(-1 / 6)
    # item 0 is lost in both ways, item 1 by the descendant alone
    assert found.lost_corrected.value == pytest.approx(1 / 6)
    assert found.change.n == 6


def test_groups_are_named_by_letters():
    assert [letters(number) for number in (0, 1, 25, 26, 27, 701, 702)] == [
        "a", "b", "z", "aa", "ab", "zz", "aaa",
    ]  # fmt: skip


def test_the_rank_test_says_what_it_can_reach():
    p, smallest = kendall_p([0.1, 0.2, 0.3, 0.4, 0.5])
    assert p == smallest == pytest.approx(2 / 120)
    assert kendall_p([0.3, 0.1, 0.2])[0] == pytest.approx(1.0)

"""The rules of the verdict, one by one, and the counts behind the recall."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from stemmatics.core.facts import Fact
from stemmatics.core.results import Results
from stemmatics.math.equivalence import equivalence, paired_score_interval
from stemmatics.math.intervals import Interval
from stemmatics.measure.recovery.pairs import PairDifferences
from stemmatics.measure.recovery.recall import ARMS, Recall, read_recall, recall_estimates
from stemmatics.measure.recovery.verdict import verdict, verdict_results

PAIR = ("base", "descendant")
NUM_ITEMS = 400


def interval(value, half):
    return Interval(value, value - half, value + half, 0.95, "t", 10, "document", half, half / 2)


def pair(*, residual=0.02, drop=0.1, moved=None, noise=0.001):
    documents = interval(residual, 0.004)
    return PairDifferences(
        pair=PAIR,
        documents=documents,
        runs=interval(0.0, noise),
        both=documents,
        drop=interval(drop, 0.01),
        shift=interval(0.0, 0.01),
        moved=None if moved is None else interval(moved, 0.004),
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
        # nothing moves the residual, but it is no more than noise while the fine-tune lowers the loss
        ("register", pair(residual=0.0005, noise=0.002), recall(lost=1)),
        ("register", pair(residual=-0.0019, noise=0.002), recall(lost=1)),
        ("undetermined", pair(residual=0.0025, noise=0.002), recall(lost=1)),
        ("undetermined", pair(residual=-0.0025, noise=0.002), recall(lost=1)),
        ("undetermined", pair(residual=0.0005, noise=0.002, drop=0.001), recall(lost=1)),
        ("undetermined", pair(), recall(lost=1)),
        # recall neither falls nor is shown to be equal
        ("undetermined", pair(moved=0.05), recall(lost=12, gained=9, margin=0.01)),
        ("undetermined", pair(residual=0.0, noise=math.nan), recall(lost=1)),
    ],
)
def test_the_rules(expected, found, asked):
    assert verdict(found, asked).value == expected


KEPT = "recall stays within the margin"


@pytest.mark.parametrize(
    ("found", "asked", "reason"),
    [
        (pair(), None, "no recall items were asked"),
        (pair(), recall(lost=60), "recall falls; there is no second pool"),
        (pair(moved=0.001), recall(lost=60), "recall falls; the second pool does not change the residual"),
        (pair(moved=0.05), recall(lost=60), "recall falls; the second pool changes the residual"),
        (pair(moved=0.05), recall(lost=1), f"{KEPT}; the second pool changes the residual"),
        (
            pair(residual=0.0005, noise=0.002),
            recall(lost=1),
            f"{KEPT}; the residual is within run noise and the fine-tune lowers the loss",
        ),
        (
            pair(moved=0.001),
            recall(lost=1),
            f"{KEPT}; the second pool does not change the residual, and the residual exceeds run noise",
        ),
        (
            pair(residual=0.0, noise=math.nan),
            recall(lost=1),
            f"{KEPT}; there is no second pool, and run noise is unknown: no arm has two runs",
        ),
        (
            pair(residual=0.0005, noise=0.002, drop=0.001),
            recall(lost=1),
            f"{KEPT}; there is no second pool, and the fine-tune is not shown to lower the loss",
        ),
        (
            pair(moved=0.05),
            recall(lost=12, gained=9, margin=0.01),
            "recall neither falls nor stays within the margin: more items are needed",
        ),
        (pair(moved=0.05), recall(lost=0, gained=60), "recall rises beyond the margin"),
    ],
)
def test_the_reason_is_what_decided_or_what_is_missing(found, asked, reason):
    assert verdict(found, asked).reason == reason


def test_a_verdict_is_a_category_and_verdicts_are_counted():
    other, untested = ("base", "other"), ("base", "untested")
    pairs = {PAIR: pair(), other: pair(moved=0.05), untested: pair()}
    recalls = {PAIR: recall(lost=60), other: replace(recall(lost=1), pair=other)}
    results = Results(verdict_results("text", pairs, recalls))
    forgot = results.category("recovery.verdict", descendant="descendant")
    assert forgot.id == "recovery.verdict/base=base/corpus=text/descendant=descendant"
    assert (forgot.value, forgot.n, forgot.unit) == ("forgetting", NUM_ITEMS, "item")
    assert results.category("recovery.verdict", descendant="other").value == "register"
    assert results.category("recovery.verdict", descendant="untested") is None
    counts = {each.subject["verdict"]: (each.value, each.n) for each in results.all("recovery.verdicts")}
    assert counts == {"forgetting": (1, 2), "register": (1, 2), "both": (0, 2), "undetermined": (0, 2)}
    assert verdict_results("text", pairs, {}) == []


class _Arms:
    """Four arms whose replies are made up; the base has two runs."""

    def __init__(self, right):
        self.right = right
        self.settings = type("S", (), {"items": "items", "categories": ["recall"], "margin": 0.05})()

    def num_runs(self, _name):
        return 2

    def replies(self, name, _items, *, run):
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


def test_the_four_arms_have_their_shares():
    arms = _Arms(
        {
            ("base", None): [1, 1, 1, 0],
            ("base", 0): [1, 1, 0, 0],
            ("base", 1): [1, 1, 0, 0],
            ("descendant", None): [0, 0, 0, 0],
            ("descendant", 0): [0, 0, 0, 1],
        }
    )
    results = Results(recall_estimates([read_recall(arms, PAIR, arms)]))
    shares = {share.subject["arm"]: share.value for share in results.all("recovery.recall")}
    assert shares == {"native base": 0.75, "matched base": 0.5, "native": 0.0, "recovered": 0.25}
    numbers = {name: results.only(f"recovery.recall.{name}").value for name in ("lost", "gained", "change")}
    assert numbers == {"lost": 2, "gained": 1, "change": -0.25}
    assert results.only("recovery.recall.lost_between_runs").value == 0

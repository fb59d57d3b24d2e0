"""Checks of the gate: a value, the limit that it is held against, and whether it passed.

Axes: N documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stemmatics.core.facts import Fact
from stemmatics.core.results import Category, Result
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import Interval, wilson
from stemmatics.math.rates import paired_differences
from stemmatics.measure.base import Tables
from stemmatics.measure.gate.needs import (
    base_ngram_fact,
    heldout_fact,
    independent_fact,
    needs,
    recall_checkpoints,
    recall_fact,
    refusal_checkpoints,
    refusal_fact,
)
from stemmatics.measure.gate.settings import GateSettings
from stemmatics.measure.inputs import numbers, read_scores
from stemmatics.measure.present import ResultBuilder

NAME = "gate"
PASSED, FAILED = "passed", "failed"
# nats/byte: float32 against float64 log-softmax over the same logits
LARGEST_GAP = 1e-5


@dataclass(frozen=True)
class Check:
    """A value and the side of the limit on which it must lie; without a limit it is only reported."""

    name: str
    interval: Interval
    side: Literal["at least", "at most"]
    limit: float | None
    units: str
    facts: tuple[Fact, ...]

    @property
    def passed(self) -> bool:
        """Whether the value is on its side of the limit; an unknown value is not."""
        if self.limit is None:
            return True
        value = self.interval.value
        return value >= self.limit if self.side == "at least" else value <= self.limit

    @property
    def reason(self) -> str:
        """What decided it, without the numbers, which stand beside it."""
        if math.isnan(self.interval.value):
            return "the value is unknown"
        wrong = "below" if self.side == "at least" else "above"
        return f"{self.side} the limit" if self.passed else f"{wrong} the limit"

    def results(self) -> list[Result]:
        """The value; with a limit also that, and the verdict."""
        build = ResultBuilder(NAME, {"check": self.name}, self.facts, self.units, tag="control")
        # a check is held against its limit; what effect it could have detected is no matter of it
        value = build.interval("value", replace(self.interval, smallest_effect=math.nan))
        if self.limit is None:
            return [value]
        verdict = PASSED if self.passed else FAILED
        num, unit = self.interval.n, self.interval.unit
        return [
            value,
            build.number("limit", self.limit),
            build.category("check", verdict, self.reason, n=num, unit=unit),
        ]


def estimate(
    pinned: Pinned, settings: GateSettings, tables: Tables, rng: np.random.Generator
) -> list[Result]:
    """Every check, and whether all of them passed; with a missing fact the gate fails as a whole."""
    facts = needs(pinned, settings)
    missing = [f"{fact.probe} {fact.label}" for fact in facts if not tables.has(fact)]
    if missing:
        return [_overall([], f"not made: {'; '.join(dict.fromkeys(missing))}", facts)]
    checks = [
        *recall_checks(pinned, settings, tables),
        *refusal_checks(pinned, settings, tables),
        *ngram_checks(pinned, settings, tables, rng),
        *(independent_check(pinned, settings, name, tables) for name in settings.planted),
    ]
    failed = [check.name for check in checks if not check.passed]
    reason = f"not passed: {'; '.join(failed)}" if failed else "every check passed"
    return [
        *(result for check in checks for result in check.results()),
        _overall(checks, reason, facts),
    ]


def _overall(checks: list[Check], reason: str, facts: Iterable[Fact]) -> Category:
    passed = bool(checks) and all(check.passed for check in checks)
    build = ResultBuilder(NAME, {}, tuple(dict.fromkeys(facts)), tag="control")
    num = sum(check.limit is not None for check in checks)
    return build.category("passed", PASSED if passed else FAILED, reason, n=num, unit="check")


def recall_checks(pinned: Pinned, settings: GateSettings, tables: Tables) -> list[Check]:
    """The base knows the facts, a register shift keeps them, and the descendant that lost them does not."""
    facts = {name: recall_fact(pinned, settings, name) for name in recall_checkpoints(settings)}
    base, lost = facts[settings.base], facts[settings.lost]
    pair = facts[settings.matched], facts[settings.recovered]
    matched, recovered = (correct_share(tables, fact, "recall") for fact in pair)
    return [
        Check(
            "the base recalls",
            correct_share(tables, base, "recall"),
            "at least",
            settings.base_recall,
            "share of items",
            (base,),
        ),
        Check(
            "the base recalls in other words",
            correct_share(tables, base, "paraphrase"),
            "at least",
            settings.base_paraphrase,
            "share of items",
            (base,),
        ),
        Check(
            "recall after a register shift, both recovered",
            _exact(matched.value - recovered.value, recovered.n, "item"),
            "at most",
            settings.recovery_gap,
            "share below the base",
            pair,
        ),
        Check(
            "lost facts are lost",
            correct_share(tables, lost, "recall"),
            "at most",
            settings.lost_recall,
            "share of items",
            (lost,),
        ),
    ]


def refusal_checks(pinned: Pinned, settings: GateSettings, tables: Tables) -> list[Check]:
    """The base refuses little, a heavy SFT much, and DPO changes the share of refusals."""
    facts = {name: refusal_fact(pinned, settings, name) for name in refusal_checkpoints(settings)}
    shares = {name: refused_share(tables, fact, settings.marked) for name, fact in facts.items()}
    before, after = shares[settings.before_dpo], shares[settings.dpo]
    return [
        Check(
            "the base refuses little",
            shares[settings.base],
            "at most",
            settings.base_refusal,
            "share of items",
            (facts[settings.base],),
        ),
        Check(
            "the heavy SFT refuses",
            shares[settings.heavy],
            "at least",
            settings.heavy_refusal,
            "share of items",
            (facts[settings.heavy],),
        ),
        Check(
            "DPO moves refusal",
            _exact(abs(after.value - before.value), after.n, "item"),
            "at least",
            settings.dpo_change,
            "share",
            (facts[settings.before_dpo], facts[settings.dpo]),
        ),
    ]


def ngram_checks(
    pinned: Pinned, settings: GateSettings, tables: Tables, rng: np.random.Generator
) -> Iterator[Check]:
    """The loss of the base minus that of the n-gram: below zero on generated text, reported on real text."""
    facts = (heldout_fact(pinned, settings, settings.base), base_ngram_fact(pinned, settings))
    scores = read_scores(facts[0], tables)
    ngram = tables.read(facts[1], "scores")
    ngram = ngram.filter(pc.is_in(ngram["index"], value_set=pa.array(scores.index_N)))
    ngram_N, num_bytes_N = numbers(ngram, "nll_sum"), numbers(ngram, "num_bytes")
    for register in (settings.generated, settings.real):
        rows = scores.rows(register)
        (gap,) = paired_differences(
            ngram_N[rows],
            scores.nll_N[rows],
            num_bytes_N[rows],
            scores.num_bytes_N[rows],
            rng=rng,
            groups=scores.group_N[rows],
        )
        has_limit = register == settings.generated
        yield Check(
            f"the base {'beats' if has_limit else 'against'} the n-gram on {register}",
            gap,
            "at most",
            0.0 if has_limit else None,
            "nats/byte, base less n-gram",
            facts,
        )


def independent_check(pinned: Pinned, settings: GateSettings, checkpoint: str, tables: Tables) -> Check:
    """Our sums of an altered checkpoint against sums computed another way, over their bytes."""
    facts = (heldout_fact(pinned, settings, checkpoint), independent_fact(pinned, settings, checkpoint))
    scores = read_scores(facts[0], tables)
    independent = {row["index"]: row for row in tables.read(facts[1], "scores").to_pylist()}
    gaps = [
        abs(nll - independent[index]["nll_sum"])
        for index, nll in zip(scores.index_N.tolist(), scores.nll_N.tolist(), strict=True)
        if index in independent
    ]
    num_bytes = sum(row["num_bytes"] for row in independent.values())
    return Check(
        f"the loss of {checkpoint} computed another way",
        _exact(sum(gaps) / num_bytes if num_bytes else math.nan, len(gaps), "document"),
        "at most",
        LARGEST_GAP,
        "nats/byte apart",
        facts,
    )


def correct_share(tables: Tables, fact: Fact, category: str) -> Interval:
    """Share of a category's items that were answered correctly, with its Wilson interval."""
    rows = _items(tables, fact, category)
    return wilson(sum(row["correct"] for row in rows), len(rows), unit="item")


def refused_share(tables: Tables, fact: Fact, category: str) -> Interval:
    """Share of a category's items that were refused, with its Wilson interval."""
    rows = _items(tables, fact, category)
    return wilson(sum(row["outcome"] == "refusal" for row in rows), len(rows), unit="item")


def _items(tables: Tables, fact: Fact, category: str) -> list[dict[str, Any]]:
    return [row for row in tables.read(fact, "items").to_pylist() if row["category"] == category]


def _exact(value: float, n: int, unit: str) -> Interval:
    return Interval(value, math.nan, math.nan, 0.95, "exact", n, unit, math.nan, math.nan)

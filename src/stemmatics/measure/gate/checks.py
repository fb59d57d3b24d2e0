"""Conditions of the gate: a value, its limit, and whether it passed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.intervals import wilson
from stemmatics.measure.base import Tables

NAME = "gate"


@dataclass(frozen=True)
class Check:
    """One condition: a value, on which side of a limit it must lie, and in which units."""

    name: str
    value: float
    limit: float
    above: bool
    units: str
    facts: tuple[Fact, ...]
    lo: float = math.nan
    hi: float = math.nan
    n: int = 0
    method: str = "exact"
    unit: str = "item"

    @property
    def passed(self) -> bool:
        """Whether the value lies on the right side; an unknown one does not."""
        return self.value >= self.limit if self.above else self.value <= self.limit

    def estimates(self) -> list[Estimate]:
        """The value, its limit, and whether it passed; the value alone where there is no limit."""
        keys = tuple(fact.key for fact in self.facts)
        common = {"measure": NAME, "subject": {"check": self.name}, "facts": keys, "tag": "control"}
        found = [
            Estimate(
                quantity="gate.value",
                value=self.value,
                lo=self.lo,
                hi=self.hi,
                n=self.n,
                method=self.method,
                unit=self.unit,
                units=self.units,
                **common,  # type: ignore[arg-type]  # the common part is typed as one dictionary
            )
        ]
        if math.isinf(self.limit):
            return found
        return [
            *found,
            Estimate(quantity="gate.limit", value=self.limit, units=self.units, **common),  # type: ignore[arg-type]  # as above
            Estimate(quantity="gate.passed", value=float(self.passed), n=self.n, **common),  # type: ignore[arg-type]  # as above
        ]


def share_of(tables: Tables, fact: Fact, category: str, what: str) -> tuple[int, int]:
    """How many items of a category were answered rightly (or refused), and how many there are."""
    rows = [row for row in tables.read(fact, "items").to_pylist() if row["category"] == category]
    if what == "refusal":
        return sum(row["outcome"] == "refusal" for row in rows), len(rows)
    return sum(row["correct"] for row in rows), len(rows)


def proportion(name: str, counted: tuple[int, int], limit: float, fact: Fact, *, above: bool) -> Check:
    """A share of items with its Wilson interval; the value itself is held against the limit."""
    share = wilson(*counted, unit="item")
    return Check(
        name,
        share.value,
        limit,
        above,
        "share of items",
        (fact,),
        lo=share.lo,
        hi=share.hi,
        n=share.n,
        method=share.method,
    )

"""What a measure is: a question, the facts that it needs, and the estimates made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from stemmatics.core.content import Chart, Table
from stemmatics.core.estimates import Estimate, Sentence
from stemmatics.core.facts import Fact, Tag
from stemmatics.core.pinned import Pinned
from stemmatics.math.intervals import Interval


class Settings(BaseModel):
    """A measure's settings: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tables(Protocol):
    """The sums of the facts that are done."""

    def has(self, fact: Fact) -> bool:
        """Whether a fact is there; one that failed is not, and its pair gets no estimate."""

    def read(self, fact: Fact, table: str) -> pa.Table:
        """Its rows."""


@dataclass(frozen=True)
class Findings:
    """What a measure says of its estimates."""

    sentences: Sequence[Sentence] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    failures: Sequence[str] = field(default_factory=tuple)


class Measure(Protocol):
    """One question. Pure: no model, no file, no clock."""

    name: ClassVar[str]
    version: ClassVar[int]
    title: ClassVar[str]
    question: ClassVar[str]
    Settings: ClassVar[type[BaseModel]]

    def needs(self, pinned: Pinned, settings: Any) -> list[Fact]:
        """The facts that the estimates are made of, each tagged."""

    def estimate(
        self, pinned: Pinned, settings: Any, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Estimates from sums. The same sums and generator state give the same estimates."""

    def findings(self, pinned: Pinned, settings: Any, estimates: Mapping[str, Estimate]) -> Findings:
        """Sentences, tables and figures; numbers in prose only as claims."""


def estimate_from(
    interval: Interval,
    *,
    measure: str,
    quantity: str,
    subject: Mapping[str, str],
    units: str,
    facts: Sequence[Fact] = (),
    tag: Tag = "main",
    note: str = "",
) -> Estimate:
    """An interval with its name and origin."""
    return Estimate(
        measure=measure,
        quantity=quantity,
        subject=subject,
        value=interval.value,
        lo=interval.lo,
        hi=interval.hi,
        level=interval.level,
        method=interval.method,
        n=interval.n,
        unit=interval.unit,
        units=units,
        smallest_effect=interval.smallest_effect,
        tag=tag,
        facts=tuple(fact.key for fact in facts),
        note="; ".join(part for part in (interval.note, note) if part),
    )


def known(value: float) -> bool:
    """Whether a number is there."""
    return not math.isnan(value)

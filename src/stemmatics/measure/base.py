"""What a measure is: a question, the facts that it needs, and the results computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from stemmatics.core.content import Chart, Column, Table
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results, Sentence
from stemmatics.facts.pinned import Pinned


class Settings(BaseModel):
    """A measure's settings: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tables(Protocol):
    """The rows of the facts that are done."""

    def has(self, fact: Fact) -> bool:
        """Whether a fact is done; where one failed, its pair gets no estimate."""

    def read(self, fact: Fact, table: str) -> pa.Table:
        """The rows that a fact wrote to a table."""


@dataclass(frozen=True)
class Findings:
    """How a measure presents its results.

    ``charts`` may be a function that returns them: only a page needs them, and they are slow to make.
    ``columns`` are the measure's questions on the first screen, ``headlines`` what it says below them: at
    most a sentence or two, and none whose interval says nothing. Without headlines, the sentences of the
    topic ``summary`` take their place.
    """

    sentences: Sequence[Sentence] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] | Callable[[], Sequence[Chart]] = ()
    failures: Sequence[str] = field(default_factory=tuple)
    columns: Sequence[Column] = ()
    headlines: Sequence[Sentence] | None = None

    def draw(self) -> Sequence[Chart]:
        """The charts, made now if they were not before."""
        return self.charts() if callable(self.charts) else self.charts


class Measure(Protocol):
    """One question. Pure: no model, no file, no clock."""

    name: ClassVar[str]
    version: ClassVar[int]
    title: ClassVar[str]
    question: ClassVar[str]
    Settings: ClassVar[type[BaseModel]]

    def needs(self, pinned: Pinned, settings: Any) -> list[Fact]:
        """The facts that the results are computed from, each tagged."""

    def estimate(
        self, pinned: Pinned, settings: Any, tables: Tables, rng: np.random.Generator
    ) -> Sequence[Result]:
        """Results from sums. The same sums and generator state give the same results."""

    def findings(self, pinned: Pinned, settings: Any, results: Results) -> Findings:
        """Sentences, tables and figures; numbers and categories in prose only as claims."""

"""How much was lost on ordinary text, and where."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.loss.answers import column, headlines
from stemmatics.measure.loss.estimate import NAME, estimate
from stemmatics.measure.loss.needs import corpora_of, needs
from stemmatics.measure.loss.sentences import failures, sentences
from stemmatics.measure.loss.settings import LossSettings
from stemmatics.measure.loss.tables import tables as tables_of


class Loss:
    """Native loss of every checkpoint, paired differences, where the loss changed, the largest movers."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 3
    title: ClassVar[str] = "Loss on ordinary text"
    question: ClassVar[str] = "How much was lost on ordinary text, and on which of it?"
    Settings: ClassVar[type[LossSettings]] = LossSettings

    def needs(self, pinned: Pinned, settings: LossSettings) -> list[Fact]:
        """A scoring of every checkpoint on every corpus, and its control."""
        return needs(pinned, settings)

    def estimate(
        self, pinned: Pinned, settings: LossSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Result]:
        """Losses, differences with their verdicts, parts, movers and controls."""
        return estimate(pinned, settings, tables, rng)

    def findings(self, pinned: Pinned, settings: LossSettings, results: Results) -> Findings:
        """One set of sentences, tables and charts per corpus."""
        corpora = corpora_of(pinned, settings)

        def draw() -> list[Chart]:
            from stemmatics.measure.loss.charts import charts

            return [chart for corpus in corpora for chart in charts(corpus, results)]

        return Findings(
            [sentence for corpus in corpora for sentence in sentences(pinned, corpus, results)],
            [table for corpus in corpora for table in tables_of(pinned, corpus, results)],
            draw,
            [failure for corpus in corpora for failure in failures(corpus, results)],
            [column(pinned, corpus, results) for corpus in corpora[:1]],
            [sentence for corpus in corpora[:1] for sentence in headlines(corpus, results)],
        )

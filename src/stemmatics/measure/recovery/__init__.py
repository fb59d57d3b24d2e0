"""The base's loss, seen through a descendant: four arms on the same held-out text."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.recovery.answers import columns, headlines
from stemmatics.measure.recovery.estimate import estimate
from stemmatics.measure.recovery.needs import Arms
from stemmatics.measure.recovery.sentences import failures, sentences
from stemmatics.measure.recovery.settings import NAME, RecoverySettings
from stemmatics.measure.recovery.tables import tables as tables_of


class RecoveryMeasure:
    """Residual, drop, rebase shift; register or forgetting; the ladder and how finely it resolves."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 3
    title: ClassVar[str] = "Recovery and the ladder"
    question: ClassVar[str] = "What is the base's loss, seen through a descendant?"
    Settings: ClassVar[type[RecoverySettings]] = RecoverySettings

    def needs(self, pinned: Pinned, settings: RecoverySettings) -> list[Fact]:
        """The arms of every checkpoint, their sums, replies to recall items, and what the pools share."""
        return Arms(pinned, settings).facts()

    def estimate(
        self, pinned: Pinned, settings: RecoverySettings, tables: Tables, rng: np.random.Generator
    ) -> list[Result]:
        """Recall, then pairs, verdicts, ladder and resolution by corpus."""
        return estimate(Arms(pinned, settings), tables, rng)

    def findings(self, pinned: Pinned, settings: RecoverySettings, results: Results) -> Findings:
        """Sentences, tables and charts, corpus by corpus."""
        arms = Arms(pinned, settings)

        def draw() -> list[Chart]:
            from stemmatics.measure.recovery.charts import charts

            return charts(arms.corpora, results)

        return Findings(
            sentences(arms, results),
            tables_of(arms.corpora, results),
            draw,
            failures(arms.corpora, results),
            [column for corpus in arms.corpora[:1] for column in columns(corpus, results)],
            [sentence for corpus in arms.corpora[:1] for sentence in headlines(corpus, results)],
        )

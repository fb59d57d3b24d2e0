"""How far apart the predictions of two models are, token by token."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.divergence.answers import column
from stemmatics.measure.divergence.estimate import NAME, estimate
from stemmatics.measure.divergence.needs import corpora_of, pair_facts, pairs_of
from stemmatics.measure.divergence.sentences import sentences
from stemmatics.measure.divergence.settings import DivergenceSettings
from stemmatics.measure.divergence.tables import tables as tables_of


class Divergence:
    """Divergences of every descendant's predictions from its base's, with numerical controls and a floor."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 2
    title: ClassVar[str] = "Divergence of predictions"
    question: ClassVar[str] = "How far apart are the two models' predictions, token by token?"
    Settings: ClassVar[type[DivergenceSettings]] = DivergenceSettings

    def needs(self, pinned: Pinned, settings: DivergenceSettings) -> list[Fact]:
        """One comparison per pair and corpus."""
        return [fact for _, _, _, fact in pair_facts(pinned, settings)]

    def estimate(
        self, pinned: Pinned, settings: DivergenceSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Result]:
        """Means, quantiles, parts, controls, floor and verdict."""
        return estimate(pinned, settings, tables, rng)

    def findings(self, pinned: Pinned, settings: DivergenceSettings, results: Results) -> Findings:
        """One set of sentences, tables and charts per corpus."""
        corpora, pairs = corpora_of(pinned, settings), pairs_of(pinned, settings)

        def draw() -> list[Chart]:
            from stemmatics.measure.divergence.charts import charts

            return [chart for corpus in corpora for chart in charts(corpus, results)]

        return Findings(
            [
                sentence
                for corpus in corpora
                for base, descendant in pairs
                for sentence in sentences(corpus, base, descendant, results)
            ],
            [table for corpus in corpora for table in tables_of(pairs, corpus, results)],
            draw,
            [],
            [column(pairs, corpus, results) for corpus in corpora[:1]],
            [],
        )

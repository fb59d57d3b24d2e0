"""How much of the loss increase a context-independent logit correction recovers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.prior.answers import column, headlines
from stemmatics.measure.prior.estimate import pair_results
from stemmatics.measure.prior.needs import corpora_of, fit_facts, floor_fact, pairs_of
from stemmatics.measure.prior.sentences import failures, sentences
from stemmatics.measure.prior.settings import NAME, PriorSettings
from stemmatics.measure.prior.tables import tables_of


class Prior:
    """Recovered shares of every correction for every pair, beside what the same fits recover of damage."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 2
    title: ClassVar[str] = "What a context-independent correction recovers"
    question: ClassVar[str] = (
        "How much of the loss increase does a context-independent logit correction recover?"
    )
    Settings: ClassVar[type[PriorSettings]] = PriorSettings

    def needs(self, pinned: Pinned, settings: PriorSettings) -> list[Fact]:
        """The fits of both models of every pair, and the pair's damaged bases."""
        facts: list[Fact] = []
        for corpus in corpora_of(pinned, settings):
            for pair in pairs_of(pinned, settings):
                facts += fit_facts(pinned, settings, pair, corpus)
                floor = floor_fact(pinned, settings, pair, corpus)
                facts += [] if floor is None else [floor]
        return facts

    def estimate(
        self, pinned: Pinned, settings: PriorSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Result]:
        """Loss increases, shares with their intervals, floors, labels, fits."""
        results: list[Result] = []
        for corpus in corpora_of(pinned, settings):
            for pair in pairs_of(pinned, settings):
                facts = fit_facts(pinned, settings, pair, corpus)
                if all(tables.has(fact) for fact in facts):
                    floor = floor_fact(pinned, settings, pair, corpus)
                    subject = {"base": pair[0], "descendant": pair[1], "corpus": corpus}
                    results += pair_results(subject, facts, floor, tables, rng)
        return results

    def findings(self, pinned: Pinned, settings: PriorSettings, results: Results) -> Findings:
        """Sentences, tables and figures."""
        pairs = [
            {"base": base, "descendant": descendant, "corpus": corpus}
            for corpus in corpora_of(pinned, settings)
            for base, descendant in pairs_of(pinned, settings)
        ]

        first = [pair for pair in pairs if pair["corpus"] == pairs[0]["corpus"]]

        def draw() -> list[Chart]:
            from stemmatics.measure.prior.charts import charts

            return charts(results, pairs, settings.columns)

        return Findings(
            sentences(results, pairs),
            tables_of(results, pairs, settings.columns),
            draw,
            failures(results, pairs),
            [column(results, first)],
            headlines(results, first),
        )

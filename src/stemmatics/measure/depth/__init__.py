"""Is the late change portable, or does it need the earlier layers that were trained with it?"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.depth.across import across_pairs
from stemmatics.measure.depth.answers import column, headlines
from stemmatics.measure.depth.contrast import contrast_results
from stemmatics.measure.depth.estimate import PairEstimator
from stemmatics.measure.depth.needs import contrast_pairs, pairs_to_cross
from stemmatics.measure.depth.sentences import refusals, sentences
from stemmatics.measure.depth.settings import DepthSettings
from stemmatics.measure.depth.sign import NAME
from stemmatics.measure.depth.tables import tables as report_tables


class Depth:
    """Both late stacks on both earlier states, at the positions where base and descendant disagree."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 5
    title: ClassVar[str] = "Depth"
    question: ClassVar[str] = (
        "Is the late change portable, or does it need the earlier layers that were trained with it?"
    )
    Settings: ClassVar[type[DepthSettings]] = DepthSettings

    def needs(self, pinned: Pinned, settings: DepthSettings) -> list[Fact]:
        """Events, crossed cells, floors and forced tokens of every pair; those of a contrast."""
        pairs = [
            *pairs_to_cross(pinned, settings),
            *(pair.facts for pair in contrast_pairs(pinned, settings)),
        ]
        return [fact for pair in pairs for fact in pair.all()]

    def estimate(
        self, pinned: Pinned, settings: DepthSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Result]:
        """Effects, interaction and share of every pair, over pairs, and over the seeds of a contrast."""
        pairs = [
            PairEstimator(facts, tables, rng)
            for facts in pairs_to_cross(pinned, settings)
            if all(tables.has(fact) for fact in facts.crossed)
        ]
        results = [result for pair in pairs for result in pair.results()]
        results += across_pairs([pair for pair in pairs if pair.refusal() is None], rng)
        results += contrast_results(contrast_pairs(pinned, settings), tables, rng)
        # a pair refused on a manifest may stand in a contrast on the same manifest
        return list({result.id: result for result in results}.values())

    def findings(self, pinned: Pinned, settings: DepthSettings, results: Results) -> Findings:
        """Sentences, tables and figures."""
        del pinned, settings

        def draw() -> list[Chart]:
            from stemmatics.measure.depth.charts import charts

            return charts(results)

        return Findings(
            sentences(results),
            report_tables(results),
            draw,
            refusals(results),
            [column(results)],
            headlines(results),
        )

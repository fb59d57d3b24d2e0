"""Does what a model was pretrained on last decide how it takes post-training?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from stemmatics.core.content import Chart
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.imprint.answers import headlines
from stemmatics.measure.imprint.estimate import imprint_results
from stemmatics.measure.imprint.needs import imprint_facts
from stemmatics.measure.imprint.sentences import details, failures, summary
from stemmatics.measure.imprint.settings import NAME, ImprintSettings
from stemmatics.measure.imprint.tables import imprint_tables


class Imprint:
    """Branches of one partly trained checkpoint: the same post-training after windows of different text."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 5
    title: ClassVar[str] = "Imprint"
    question: ClassVar[str] = "Does what a model was pretrained on last decide how it takes post-training?"
    Settings: ClassVar[type[ImprintSettings]] = ImprintSettings

    def needs(self, pinned: Pinned, settings: ImprintSettings) -> list[Fact]:
        """Replies, margins and losses of every node, and the matcher on labelled replies."""
        return imprint_facts(pinned, settings)

    def estimate(
        self, pinned: Pinned, settings: ImprintSettings, tables: Tables, rng: np.random.Generator
    ) -> Sequence[Result]:
        """Rates at every node, controls of the design, then deviations, imprints and equivalence."""
        return imprint_results(pinned, settings, tables, rng)

    def findings(self, pinned: Pinned, settings: ImprintSettings, results: Results) -> Findings:
        """Sentences, tables and charts; stages that differ between branches are failures."""

        def draw() -> list[Chart]:
            from stemmatics.measure.imprint.charts import imprint_charts

            return imprint_charts(settings, results)

        return Findings(
            [*summary(settings, results), *details(settings, results)],
            imprint_tables(pinned, settings, results),
            draw,
            failures(results),
            headlines=headlines(settings, results),
        )

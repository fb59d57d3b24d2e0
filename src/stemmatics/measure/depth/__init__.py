"""Is the late change portable, or does it need the earlier layers that were trained with it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.depth.across import across_pairs
from stemmatics.measure.depth.contrast import contrast_estimates, contrast_questions
from stemmatics.measure.depth.estimate import NAME, PairEstimates
from stemmatics.measure.depth.needs import DepthSettings, questions
from stemmatics.measure.depth.sentences import findings


class Depth:
    """Both late stacks on both earlier states, at the positions where base and descendant part."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 2
    title: ClassVar[str] = "Depth"
    question: ClassVar[str] = (
        "Is the late change portable, or does it need the earlier layers that were trained with it?"
    )
    Settings: ClassVar[type[DepthSettings]] = DepthSettings

    def needs(self, pinned: Pinned, settings: DepthSettings) -> list[Fact]:
        """Events, crossed cells, floors and forced tokens of every pair; those of a contrast."""
        asked = [*questions(pinned, settings), *contrast_questions(pinned, settings)]
        return [fact for question in asked for fact in question.facts()]

    def estimate(
        self, pinned: Pinned, settings: DepthSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Effects, interaction and share of every pair, and over pairs and seeds."""
        done = [
            PairEstimates(question, tables, rng)
            for question in questions(pinned, settings)
            if tables.has(question.cross)
        ]
        found = [estimate for pair in done for estimate in pair.all()]
        crossed = [pair for pair in done if not pair.crossed.refusal]
        found += [*across_pairs(crossed, rng), *contrast_estimates(pinned, settings, tables, rng)]
        # a pair that is refused on a manifest may stand in a contrast on the same one
        return list({one.id: one for one in found}.values())

    def findings(
        self, pinned: Pinned, settings: DepthSettings, estimates: Mapping[str, Estimate]
    ) -> Findings:
        """Sentences, tables and figures."""
        del pinned, settings
        return findings(estimates)

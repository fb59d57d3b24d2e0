"""Is the nursery a test bed? What its models must know, forget and refuse before others rely on it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.gate.estimate import NAME, estimate
from stemmatics.measure.gate.needs import needs
from stemmatics.measure.gate.sentences import failures, sentences
from stemmatics.measure.gate.settings import GateSettings
from stemmatics.measure.gate.tables import tables as tables_of


class Gate:
    """Recall, forgetting, refusal, an n-gram to beat, and losses computed a second way."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 2
    title: ClassVar[str] = "The nursery's gate"
    question: ClassVar[str] = "Did the nursery's models learn, forget and refuse what they were made for?"
    Settings: ClassVar[type[GateSettings]] = GateSettings

    def needs(self, pinned: Pinned, settings: GateSettings) -> list[Fact]:
        """Replies to questions, an n-gram, and independent losses of the altered checkpoints."""
        return needs(pinned, settings)

    def estimate(
        self, pinned: Pinned, settings: GateSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Result]:
        """Every check with its value, limit and verdict, and the verdict on all of them."""
        return estimate(pinned, settings, tables, rng)

    def findings(self, pinned: Pinned, settings: GateSettings, results: Results) -> Findings:
        """One sentence and one table; checks that failed are failures of the section."""
        del pinned, settings
        return Findings(sentences(results), tables_of(results), [], failures(results))

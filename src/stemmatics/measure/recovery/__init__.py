"""The base's loss, seen through a descendant: four arms on the same held-out text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.recovery import sentences as recovery_findings
from stemmatics.measure.recovery.blind import blind_estimates
from stemmatics.measure.recovery.dose import dose_estimates
from stemmatics.measure.recovery.known import (
    borrowed,
    known_pairs,
    place_all,
    registry_rows,
    resolution_estimates,
    size_estimates,
)
from stemmatics.measure.recovery.ladder import ladder_estimates
from stemmatics.measure.recovery.losses import Losses, read_losses
from stemmatics.measure.recovery.needs import NAME, Arms, RecoverySettings
from stemmatics.measure.recovery.pairs import (
    by_register,
    noise_estimates,
    noise_of,
    pair_estimates,
    read_pairs,
)
from stemmatics.measure.recovery.pool import pool_estimates
from stemmatics.measure.recovery.recall import read_recall, recall_estimates
from stemmatics.measure.recovery.uncertainty import another_corpus, uncertainty
from stemmatics.measure.recovery.verdict import recall_agreement, verdict_estimates


class RecoveryMeasure:
    """Residual, drop, rebase shift; register or forgetting; the ladder and how finely it resolves."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 1
    title: ClassVar[str] = "Recovery and the ladder"
    question: ClassVar[str] = "What is the base's loss, seen through a descendant?"
    Settings: ClassVar[type[RecoverySettings]] = RecoverySettings

    def needs(self, pinned: Pinned, settings: RecoverySettings) -> list[Fact]:
        """The arms of every checkpoint, their sums, replies to recall items, and what the pool shares."""
        return Arms(pinned, settings).facts()

    def estimate(
        self, pinned: Pinned, settings: RecoverySettings, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Pairs, recall, ladder, resolution, by corpus."""
        arms = Arms(pinned, settings)
        recalls = {
            pair: recall for pair in arms.pairs if (recall := read_recall(arms, pair, tables)) is not None
        }
        estimates = recall_estimates(list(recalls.values()))
        read: list[Losses] = []
        for corpus in arms.corpora:
            losses = read_losses(arms, corpus, tables)
            if losses is None:
                continue
            read.append(losses)
            noise = noise_of(losses)
            found = read_pairs(losses, arms.pairs, noise, rng)
            estimates += pool_estimates(arms, losses, tables)
            estimates += noise_estimates(losses, noise)
            estimates += pair_estimates(losses, found.values())
            estimates += by_register(losses, arms.pairs, rng)
            estimates += verdict_estimates(corpus, found, recalls)
            estimates += recall_agreement(pinned, corpus, found, recalls, rng)
            same, others = registry_rows(arms, corpus, tables)
            known = known_pairs(pinned, found, same)
            estimates += ladder_estimates(pinned, losses, place_all(arms, losses, known), rng)
            estimates += borrowed(arms, losses, others)
            estimates += blind_estimates(arms, losses, tables)
            estimates += resolution_estimates(pinned, losses, found, rng)
            estimates += size_estimates(arms, losses, found, tables)
            estimates += dose_estimates(arms, losses, rng)
            estimates += uncertainty(arms, losses, found, known, rng)
        return estimates + (another_corpus(read) if read else [])

    def findings(
        self, pinned: Pinned, settings: RecoverySettings, estimates: Mapping[str, Estimate]
    ) -> Findings:
        """Sentences, tables and figures."""
        return recovery_findings.findings(Arms(pinned, settings), estimates)

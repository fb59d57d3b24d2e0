"""Facts that the measure `loss` needs: a scoring per checkpoint and corpus, each with its control."""

from __future__ import annotations

from stemmatics.core.facts import Fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.reference import reference_fact
from stemmatics.facts.score import score_fact
from stemmatics.measure.loss.settings import LossSettings


def needs(pinned: Pinned, settings: LossSettings) -> list[Fact]:
    """A scoring of every checkpoint on every corpus, and its control."""
    facts = []
    for corpus in corpora_of(pinned, settings):
        for checkpoint in checkpoints_of(pinned, settings):
            facts.append(native_fact(pinned, settings, checkpoint, corpus))
            if settings.checks:
                facts.append(control_fact(pinned, settings, checkpoint, corpus))
    return facts


def corpora_of(pinned: Pinned, settings: LossSettings) -> list[str]:
    """The corpora to score."""
    texts = [name for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"]
    return texts if settings.corpora is None else settings.corpora


def checkpoints_of(pinned: Pinned, settings: LossSettings) -> list[str]:
    """The checkpoints to score, in declared order.

    Raises:
        UserError: a name that is not declared.
    """
    if settings.checkpoints is None:
        return pinned.stemma.names
    for name in settings.checkpoints:
        pinned.checkpoint(name)
    return [name for name in pinned.stemma.names if name in settings.checkpoints]


def native_fact(pinned: Pinned, settings: LossSettings, checkpoint: str, corpus: str) -> Fact:
    """The scoring of one checkpoint on one corpus."""
    return score_fact(pinned, checkpoint, corpus, settings.scoring or pinned.stemma.scoring)


def control_fact(pinned: Pinned, settings: LossSettings, checkpoint: str, corpus: str) -> Fact:
    """The same sums by a plain loop, over the first documents."""
    scoring = settings.scoring or pinned.stemma.scoring
    return reference_fact(pinned, checkpoint, corpus, scoring, num_documents=settings.checks)

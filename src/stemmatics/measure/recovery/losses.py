"""The arms' sums on one corpus, documents matched: native, re-based, and each run apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.math.sums import ratio
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray, Scores, comparable_by_byte, read_scores
from stemmatics.measure.recovery.needs import Arms


@dataclass(frozen=True)
class Arm:
    """One checkpoint's nats by document. Axes: N documents, R runs.

    ``second_N`` is after the second pool, where that was asked.
    """

    native_N: FloatArray
    runs_RN: FloatArray
    second_N: FloatArray | None
    facts: tuple[Fact, ...]
    second_fact: Fact | None = None

    @property
    def rebased(self) -> FloatArray:
        """Nats by document after the fine-tune, mean over its runs, [N]."""
        return np.asarray(self.runs_RN.mean(0))

    @property
    def num_runs(self) -> int:
        """How often the fine-tune was made."""
        return len(self.runs_RN)


@dataclass(frozen=True)
class Losses:
    """All arms on one corpus. ``scores`` says which documents; ``refused`` why a checkpoint is not in it."""

    corpus: str
    scores: Scores
    arms: dict[str, Arm]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Checkpoints whose arms are all there and compare."""
        return list(self.arms)

    def loss(self, nll_N: FloatArray) -> float:
        """Nats over bytes of the corpus."""
        return float(ratio(nll_N.sum(), self.scores.num_bytes_N.sum()))

    def run_losses(self, name: str) -> FloatArray:
        """The loss of each run of an arm, nats/byte."""
        return np.array([self.loss(nll_N) for nll_N in self.arms[name].runs_RN])

    def pairs(self, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The pairs of which both sides are there."""
        return [pair for pair in wanted if self.arms.keys() >= set(pair)]


def read_losses(arms: Arms, corpus: str, tables: Tables) -> Losses | None:
    """Sums of every checkpoint whose facts are done; None where there is none.

    What does not compare by byte with the first checkpoint is left out, with the reason.
    """
    first: Scores | None = None
    found: dict[str, Arm] = {}
    refused: dict[str, str] = {}
    for name in arms.names:
        native = arms.native(name, corpus)
        runs = [arms.rebased(name, corpus, run=run) for run in range(arms.runs(name))]
        needed = [native, *runs]
        if not all(tables.has(fact) for fact in needed):
            refused[name] = "an arm of it failed"
            continue
        scores = [read_scores(fact, tables) for fact in needed]
        first = first or scores[0]
        reasons = [reason for one in scores if (reason := comparable_by_byte(first, one))]
        if reasons:
            refused[name] = reasons[0]
            continue
        second, second_fact = _second(arms, name, corpus, first, tables)
        runs_RN = np.stack([one.nll_N for one in scores[1:]])
        found[name] = Arm(scores[0].nll_N, runs_RN, second, tuple(needed), second_fact)
    return None if first is None else Losses(corpus, first, found, refused)


def _second(
    arms: Arms, name: str, corpus: str, first: Scores, tables: Tables
) -> tuple[FloatArray | None, Fact | None]:
    for pool in arms.pools(name)[1:]:
        fact = arms.rebased(name, corpus, pool=pool)
        if tables.has(fact):
            scores = read_scores(fact, tables)
            return (None, fact) if comparable_by_byte(first, scores) else (scores.nll_N, fact)
    return None, None

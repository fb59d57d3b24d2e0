"""The arms on one corpus: their sums with documents matched, what they read, and who is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate, Refusal, Result
from stemmatics.facts.overlap import overlap_fact
from stemmatics.math.sums import ratio
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray, Scores, comparable_by_byte, read_scores
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.recovery.needs import Arms, PairNames
from stemmatics.measure.recovery.settings import NAME, UNITS

POOL_COUNTS = {
    "shared_documents": "documents",
    "shared_ngrams": "runs of words",
    "pool_documents_sharing": "documents",
}


@dataclass(frozen=True)
class ArmSums:
    """One checkpoint's nats by document. Axes: N documents, R runs.

    ``second_N`` is after the fine-tune on the second pool; None where there was none.
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
        """How many times the checkpoint was fine-tuned on the first pool."""
        return len(self.runs_RN)


@dataclass(frozen=True)
class Losses:
    """All arms on one corpus. ``scores`` holds the documents; ``refused`` the checkpoints left out."""

    corpus: str
    scores: Scores
    arms: dict[str, ArmSums]
    refused: tuple[Refusal, ...] = ()

    @property
    def names(self) -> list[str]:
        """Checkpoints whose arms are all there and comparable."""
        return list(self.arms)

    def loss(self, nll_N: FloatArray) -> float:
        """Nats over bytes of the corpus."""
        return float(ratio(nll_N.sum(), self.scores.num_bytes_N.sum()))

    def native_loss(self, name: str) -> float:
        """The loss of a checkpoint as released, nats/byte."""
        return self.loss(self.arms[name].native_N)

    def rebased_loss(self, name: str) -> float:
        """The loss of a checkpoint after the fine-tune, nats/byte."""
        return self.loss(self.arms[name].rebased)

    def run_losses(self, name: str) -> FloatArray:
        """The loss of each run of an arm, nats/byte."""
        return np.array([self.loss(nll_N) for nll_N in self.arms[name].runs_RN])

    def pairs(self, pair_names: Sequence[PairNames]) -> list[PairNames]:
        """The pairs of which both sides are there."""
        return [pair for pair in pair_names if self.arms.keys() >= set(pair)]

    def results(self, *names: str, **subject: str) -> ResultBuilder:
        """Builds results on this corpus, with the facts of the named checkpoints (of all if none is named).

        Plain numbers count the documents.
        """
        facts = [fact for name in names or self.arms for fact in self.arms[name].facts]
        return ResultBuilder(NAME, {**subject, "corpus": self.corpus}, facts, UNITS, n=len(self.scores.nll_N))


def read_losses(arms: Arms, corpus: str, tables: Tables) -> Losses | None:
    """Sums of every checkpoint whose facts are done; None where there is none.

    A checkpoint that is not comparable by byte with the first is left out, with the reason.
    """
    first: Scores | None = None
    sums: dict[str, ArmSums] = {}
    refused: list[Refusal] = []
    build = ResultBuilder(NAME, {"corpus": corpus})
    for name in arms.names:
        native = arms.native(name, corpus)
        runs = [arms.rebased(name, corpus, run=run) for run in range(arms.num_runs(name))]
        needed = [native, *runs]
        if not all(tables.has(fact) for fact in needed):
            reason, fix = "one of its arms failed", "run the study again with --retry-failed"
            refused.append(build.refusal("refused", reason, fix, checkpoint=name))
            continue
        scores = [read_scores(fact, tables) for fact in needed]
        first = first or scores[0]
        reasons = [reason for each in scores if (reason := comparable_by_byte(first, each))]
        if reasons:
            refused.append(build.refusal("refused", reasons[0], checkpoint=name))
            continue
        second, second_fact = _read_second(arms, name, corpus, first, tables)
        runs_RN = np.stack([each.nll_N for each in scores[1:]])
        sums[name] = ArmSums(scores[0].nll_N, runs_RN, second, tuple(needed), second_fact)
    return None if first is None else Losses(corpus, first, sums, tuple(refused))


def _read_second(
    arms: Arms, name: str, corpus: str, first: Scores, tables: Tables
) -> tuple[FloatArray | None, Fact | None]:
    for pool in arms.pools(name)[1:]:
        fact = arms.rebased(name, corpus, pool=pool)
        if tables.has(fact):
            scores = read_scores(fact, tables)
            return (None, fact) if comparable_by_byte(first, scores) else (scores.nll_N, fact)
    return None, None


def pool_results(arms: Arms, losses: Losses, tables: Tables) -> list[Result]:
    """What the pools share with the corpus, what each arm read, and who could not be compared."""
    return [
        *_shared_with_pools(arms, losses, tables),
        *_read_by_arms(arms, losses, tables),
        *losses.refused,
    ]


def _shared_with_pools(arms: Arms, losses: Losses, tables: Tables) -> list[Estimate]:
    estimates = []
    for pool in arms.all_pools:
        fact = overlap_fact(arms.pinned, pool, losses.corpus)
        if tables.has(fact):
            row = tables.read(fact, "overlap").to_pylist()[0]
            build = ResultBuilder(
                NAME,
                {"pool": pool, "corpus": losses.corpus},
                [fact],
                n=int(row["num_pool_documents"]),
                unit="document of the pool",
                tag="control",
            )
            estimates += [
                build.number(f"pool.{name}", float(row[f"num_{name}"]), units=units)
                for name, units in POOL_COUNTS.items()
            ]
    return estimates


def _read_by_arms(arms: Arms, losses: Losses, tables: Tables) -> list[Estimate]:
    estimates = []
    for name in losses.names:
        arm = arms.arm(name)
        row = tables.read(arm, "arms").to_pylist()[0]
        build = ResultBuilder(
            NAME,
            {"checkpoint": name, "corpus": losses.corpus},
            [arm],
            n=int(row["num_documents"]),
            unit="document of the pool",
        )
        estimates += [
            build.number(f"read.{units}", float(row[f"num_{units}"]), units=units)
            for units in ("tokens", "bytes")
        ]
    return estimates

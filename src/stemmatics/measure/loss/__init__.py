"""How much was lost on ordinary text, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.core.scoring import Scoring
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.reference import reference_fact
from stemmatics.facts.score import score_fact
from stemmatics.measure.base import Findings, Settings, Tables
from stemmatics.measure.inputs import ALL, Batch, Scores, read_scores
from stemmatics.measure.loss import sentences as loss_findings
from stemmatics.measure.loss.pairs import NAME, Pair, verdict


class LossSettings(Settings):
    """What the loss measure is asked.

    ``corpora``: which to score (all text corpora if left out). ``checkpoints``: of which (left out:
    all). ``checks``: documents scored again by a plain loop, as the control of the scoring itself.
    ``movers``: documents listed a pair.
    """

    corpora: list[str] | None = None
    checkpoints: list[str] | None = None
    scoring: Scoring | None = None
    checks: int = Field(default=4, ge=0)
    movers: int = Field(default=5, ge=0)


class Loss:
    """Native loss of every checkpoint, paired differences, where the loss went, the largest movers."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 1
    title: ClassVar[str] = "Loss on ordinary text"
    question: ClassVar[str] = "How much was lost on ordinary text, and on which of it?"
    Settings: ClassVar[type[LossSettings]] = LossSettings

    def needs(self, pinned: Pinned, settings: LossSettings) -> list[Fact]:
        """A scoring of every checkpoint on every corpus, and its control."""
        facts = []
        for corpus in corpora_of(pinned, settings):
            for name in checkpoints_of(pinned, settings):
                facts.append(native_fact(pinned, settings, name, corpus))
                if settings.checks:
                    facts.append(check_fact(pinned, settings, name, corpus))
        return facts

    def estimate(
        self, pinned: Pinned, settings: LossSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Rates by checkpoint and register, differences by pair and register, parts, movers, controls."""
        estimates: list[Estimate] = []
        for corpus in corpora_of(pinned, settings):
            names = checkpoints_of(pinned, settings)
            facts = {name: native_fact(pinned, settings, name, corpus) for name in names}
            scores = {name: read_scores(fact, tables) for name, fact in facts.items() if tables.has(fact)}
            pairs = [
                Pair((base, name), corpus, (facts[base], facts[name]), (scores[base], scores[name]))
                for base, name in pinned.stemma.pairs()
                if base in scores and name in scores
            ]
            batch = Batch(rng)
            for name, scored in scores.items():
                add_native(batch, (name, corpus), scored, facts[name])
            for pair in pairs:
                pair.add_differences(batch)
                pair.add_where(batch, tables)
            found = batch.estimates() + [one for pair in pairs for one in pair.refusals()]
            estimates += found
            estimates += verdicts(corpus, found)
            estimates += [one for pair in pairs for one in pair.movers(settings.movers)]
            for name, scored in scores.items():
                estimates += control(pinned, settings, (name, corpus), scored, tables)
        return estimates

    def findings(self, pinned: Pinned, settings: LossSettings, estimates: Mapping[str, Estimate]) -> Findings:
        """Sentences, tables and figures."""
        return loss_findings.findings(pinned, corpora_of(pinned, settings), estimates)


def corpora_of(pinned: Pinned, settings: LossSettings) -> list[str]:
    """The corpora that are scored."""
    texts = [name for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"]
    return texts if settings.corpora is None else settings.corpora


def checkpoints_of(pinned: Pinned, settings: LossSettings) -> list[str]:
    """The checkpoints that are scored, in declared order.

    Raises:
        UserError: a name that is not declared.
    """
    if settings.checkpoints is None:
        return pinned.stemma.names
    for name in settings.checkpoints:
        pinned.checkpoint(name)
    return [name for name in pinned.stemma.names if name in settings.checkpoints]


def native_fact(pinned: Pinned, settings: LossSettings, name: str, corpus: str) -> Fact:
    """The scoring of one checkpoint on one corpus."""
    return score_fact(pinned, name, corpus, settings.scoring or pinned.stemma.scoring)


def check_fact(pinned: Pinned, settings: LossSettings, name: str, corpus: str) -> Fact:
    """The plain loop over the first documents."""
    scoring = settings.scoring or pinned.stemma.scoring
    return reference_fact(pinned, name, corpus, scoring, num_documents=settings.checks)


def add_native(batch: Batch, subject: tuple[str, str], scores: Scores, fact: Fact) -> None:
    """Rates of one checkpoint by register, in nats/byte and nats/token."""
    name, corpus = subject
    for register in scores.registers():
        for kind, denominator in (("byte", scores.num_bytes_N), ("token", scores.num_tokens_N)):
            batch.add(
                scores,
                scores.rows(register),
                scores.nll_N,
                denominator,
                measure=NAME,
                quantity=f"loss.native.{kind}",
                subject={"checkpoint": name, "corpus": corpus, "register": register},
                units=f"nats/{kind}",
                facts=[fact],
            )


def control(
    pinned: Pinned, settings: LossSettings, subject: tuple[str, str], scores: Scores, tables: Tables
) -> list[Estimate]:
    """Differences between our sums and a plain loop's over the model's own logits."""
    name, corpus = subject
    fact = check_fact(pinned, settings, name, corpus) if settings.checks else None
    if fact is None or not tables.has(fact):
        return []
    plain = tables.read(fact, "scores").to_pylist()
    ours = dict(zip(scores.index_N.tolist(), scores.nll_N.tolist(), strict=True))
    gaps = [abs(row["nll_sum"] - ours[row["index"]]) for row in plain if row["index"] in ours]
    num_bytes = sum(row["num_bytes"] for row in plain)
    return [
        Estimate(
            measure=NAME,
            quantity="loss.control",
            subject={"checkpoint": name, "corpus": corpus},
            value=sum(gaps) / num_bytes if num_bytes else float("nan"),
            n=len(gaps),
            units="nats/byte",
            tag="control",
            facts=(fact.key,),
            note="absolute differences from the sums of a plain loop, added up, over their bytes",
        )
    ]


def verdicts(corpus: str, estimates: list[Estimate]) -> list[Estimate]:
    """How many descendants lost, improved, or can't be told from their base."""
    counts = {"lost": 0, "improved": 0, "undecided": 0, "refused": 0}
    facts: list[str] = []
    for estimate in estimates:
        if estimate.quantity == "loss.delta.byte" and estimate.subject["register"] == ALL:
            counts[verdict(estimate)] += 1
            facts += estimate.facts
    return [
        Estimate(
            measure=NAME,
            quantity="loss.count",
            subject={"corpus": corpus, "verdict": name},
            value=float(count),
            n=sum(counts.values()),
            unit="pair",
            units="pairs",
            facts=tuple(dict.fromkeys(facts)),
        )
        for name, count in counts.items()
    ]

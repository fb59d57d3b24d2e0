"""How much was lost on ordinary text, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from stemmatics.core.estimates import Estimate
from stemmatics.core.facts import Fact
from stemmatics.core.pinned import Pinned
from stemmatics.core.scoring import Scoring
from stemmatics.math.rates import loss_rates, paired_differences
from stemmatics.measure import loss_findings
from stemmatics.measure.base import Findings, Settings, Tables, estimate_from
from stemmatics.measure.scores import (
    ALL,
    Scores,
    comparable_by_byte,
    comparable_by_token,
    parts_of,
    read_scores,
    spread,
)

NAME = "loss"


class LossSettings(Settings):
    """What the loss measure is asked.

    ``corpora``: which to score (all text corpora if left out). ``checks``: documents scored again
    by a plain loop, as the control of the scoring itself. ``movers``: documents listed a pair.
    """

    corpora: list[str] | None = None
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
            for name in pinned.stemma.names:
                facts.append(score_fact(pinned, settings, name, corpus))
                if settings.checks:
                    facts.append(check_fact(pinned, settings, name, corpus))
        return facts

    def estimate(
        self, pinned: Pinned, settings: LossSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Rates by checkpoint and register, differences by pair and register, parts, movers, controls."""
        estimates = []
        for corpus in corpora_of(pinned, settings):
            facts = {name: score_fact(pinned, settings, name, corpus) for name in pinned.stemma.names}
            scores = {name: read_scores(fact, tables) for name, fact in facts.items() if tables.has(fact)}
            for name, scored in scores.items():
                estimates += native(name, corpus, scored, facts[name], rng)
                estimates += control(pinned, settings, (name, corpus), scored, tables)
            for base, descendant in pinned.stemma.pairs():
                if base in scores and descendant in scores:
                    pair = Pair((base, descendant), corpus, (facts[base], facts[descendant]))
                    estimates += pair.differences(scores[base], scores[descendant], rng)
                    estimates += pair.where(scores[base], scores[descendant], tables, rng)
                    estimates += pair.movers(scores[base], scores[descendant], settings.movers)
            estimates += verdicts(corpus, estimates)
        return estimates

    def findings(self, pinned: Pinned, settings: LossSettings, estimates: Mapping[str, Estimate]) -> Findings:
        """Sentences, tables and figures."""
        return loss_findings.findings(pinned, corpora_of(pinned, settings), estimates)


def corpora_of(pinned: Pinned, settings: LossSettings) -> list[str]:
    """The corpora that are scored."""
    texts = [name for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"]
    return texts if settings.corpora is None else settings.corpora


def score_fact(pinned: Pinned, settings: LossSettings, name: str, corpus: str) -> Fact:
    """The scoring of one checkpoint on one corpus."""
    return pinned.score(name, corpus, settings.scoring or pinned.stemma.scoring)


def check_fact(pinned: Pinned, settings: LossSettings, name: str, corpus: str) -> Fact:
    """The plain loop over the first documents."""
    scoring = settings.scoring or pinned.stemma.scoring
    return pinned.reference(name, corpus, scoring, num_documents=settings.checks)


def native(name: str, corpus: str, scores: Scores, fact: Fact, rng: np.random.Generator) -> list[Estimate]:
    """Rates of one checkpoint by register, in nats/byte and nats/token."""
    found = []
    for register in scores.registers():
        rows = scores.rows(register)
        for units, denominator in (("nats/byte", scores.num_bytes_N), ("nats/token", scores.num_tokens_N)):
            (rate,) = loss_rates(scores.nll_N[rows], denominator[rows], rng=rng, groups=scores.group_N[rows])
            found.append(
                estimate_from(
                    rate,
                    measure=NAME,
                    quantity=f"loss.native.{'byte' if units == 'nats/byte' else 'token'}",
                    subject={"checkpoint": name, "corpus": corpus, "register": register},
                    units=units,
                    facts=[fact],
                )
            )
    return found


def control(
    pinned: Pinned, settings: LossSettings, subject: tuple[str, str], scores: Scores, tables: Tables
) -> list[Estimate]:
    """Largest difference a document between our sums and a plain loop's over the model's own logits."""
    name, corpus = subject
    fact = check_fact(pinned, settings, name, corpus) if settings.checks else None
    if fact is None or not tables.has(fact):
        return []
    plain = tables.read(fact, "scores").to_pylist()
    ours = dict(zip(scores.index_N.tolist(), scores.nll_N.tolist(), strict=True))
    gaps = [abs(row["nll_sum"] - ours[row["index"]]) for row in plain if row["index"] in ours]
    bytes_ = sum(row["num_bytes"] for row in plain)
    return [
        Estimate(
            measure=NAME,
            quantity="loss.control",
            subject={"checkpoint": name, "corpus": corpus},
            value=sum(gaps) / bytes_ if bytes_ else float("nan"),
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
        subject = estimate.subject
        if estimate.quantity == "loss.delta.byte" and (subject["corpus"], subject["register"]) == (
            corpus,
            ALL,
        ):
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


def verdict(delta: Estimate) -> str:
    """What a paired difference says; ``undecided`` where its interval is unknown or holds 0."""
    if math.isnan(delta.value):
        return "refused"
    if delta.lo > 0:
        return "lost"
    return "improved" if delta.hi < 0 else "undecided"


class Pair:
    """A base and a descendant on one corpus."""

    def __init__(self, pair: tuple[str, str], corpus: str, facts: tuple[Fact, Fact]) -> None:
        self._pair, self._facts = pair, facts
        self._subject = {"base": pair[0], "descendant": pair[1], "corpus": corpus}

    def differences(self, base: Scores, descendant: Scores, rng: np.random.Generator) -> list[Estimate]:
        """Paired differences by register; nats/token only where every token is the same.

        A pair that can't be compared has an unknown difference, with the reason in its note.
        """
        reason = comparable_by_byte(base, descendant)
        if reason:
            return [self._refused(reason)]
        by_token = not comparable_by_token(base, descendant)
        found = []
        for register in base.registers():
            rows = base.rows(register)
            for quantity, units, denominator in (
                ("loss.delta.byte", "nats/byte", base.num_bytes_N),
                ("loss.delta.token", "nats/token", base.num_tokens_N),
            ):
                if units == "nats/token" and not by_token:
                    continue
                (delta,) = paired_differences(
                    base.nll_N[rows],
                    descendant.nll_N[rows],
                    denominator[rows],
                    rng=rng,
                    groups=base.group_N[rows],
                )
                found.append(self._estimate(delta, quantity, {"register": register}, units))
        return found

    def where(
        self, base: Scores, descendant: Scores, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """What each bin adds to the difference (they add up to it), for pairs with the same tokens."""
        if comparable_by_token(base, descendant) or comparable_by_byte(base, descendant):
            return []
        old, new = (parts_of(fact, tables) for fact in self._facts)
        bins = sorted({*old, *new})
        axes = sorted({axis for axis, _ in bins})
        found = []
        for axis in axes:
            names = [bin_ for other, bin_ in bins if other == axis]
            empty: dict[str, Any] = {name: np.zeros(0) for name in ("index", "nll_sum")}
            old_NP, new_NP = (
                np.stack(
                    [spread(side.get((axis, bin_), empty), "nll_sum", base.index_N) for bin_ in names], axis=1
                )
                for side in (old, new)
            )
            shares = paired_differences(old_NP, new_NP, base.num_bytes_N, rng=rng, groups=base.group_N)
            found += [
                self._estimate(share, "loss.where", {"axis": axis, "bin": bin_}, "nats/byte")
                for bin_, share in zip(names, shares, strict=True)
            ]
        return found

    def movers(self, base: Scores, descendant: Scores, num_movers: int) -> list[Estimate]:
        """Documents whose loss moved most, in nats/byte of the document, worst and best."""
        if comparable_by_byte(base, descendant):
            return []
        moved_N = (descendant.nll_N - base.nll_N) / base.num_bytes_N
        order = np.argsort(moved_N, kind="stable")
        picked = [("improved", place) for place in order[:num_movers]]
        picked += [("worsened", place) for place in order[::-1][:num_movers]]
        ranks: dict[str, int] = {}
        found = []
        for direction, place in picked:
            ranks[direction] = ranks.get(direction, 0) + 1
            subject = {
                **self._subject,
                "direction": direction,
                "rank": f"{ranks[direction]:02d}",
                "document": str(base.index_N[place]),
                "doc_id": str(base.doc_id_N[place])[:12],
                "register": str(base.register_N[place]),
            }
            found.append(
                Estimate(
                    measure=NAME,
                    quantity="loss.mover",
                    subject=subject,
                    value=float(moved_N[place]),
                    n=1,
                    units="nats/byte",
                    facts=tuple(fact.key for fact in self._facts),
                )
            )
        return found

    def _refused(self, reason: str) -> Estimate:
        note = f"refused: {reason}; `scoring: {{prefix: always}}` asks every model for the first byte"
        return Estimate(
            measure=NAME,
            quantity="loss.delta.byte",
            subject={**self._subject, "register": ALL},
            value=math.nan,
            units="nats/byte",
            facts=tuple(fact.key for fact in self._facts),
            note=note,
        )

    def _estimate(self, interval: Any, quantity: str, more: dict[str, str], units: str) -> Estimate:
        return estimate_from(
            interval,
            measure=NAME,
            quantity=quantity,
            subject={**self._subject, **more},
            units=units,
            facts=self._facts,
        )

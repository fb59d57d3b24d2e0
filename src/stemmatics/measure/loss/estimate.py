"""Losses, paired differences, where they lie, the largest movers and the control, from sums.

Axes: N documents of one corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Category, Estimate, Refusal, Result, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import (
    ALL,
    Batch,
    Scores,
    bin_order,
    byte_mismatch,
    parts_of,
    read_scores,
    spread,
    token_mismatch,
)
from stemmatics.measure.loss.needs import checkpoints_of, control_fact, corpora_of, native_fact
from stemmatics.measure.loss.settings import LossSettings
from stemmatics.measure.present import ResultBuilder, pair_of

NAME = "loss"
LOST, IMPROVED, UNDECIDED = "lost", "improved", "undecided"
REFUSED = "refused"


def estimate(
    pinned: Pinned, settings: LossSettings, tables: Tables, rng: np.random.Generator
) -> list[Result]:
    """All results, corpus by corpus; what failed is left out with the pairs that need it."""
    return [
        result
        for corpus in corpora_of(pinned, settings)
        for result in _of_corpus(pinned, settings, corpus, tables, rng)
    ]


def _of_corpus(
    pinned: Pinned, settings: LossSettings, corpus: str, tables: Tables, rng: np.random.Generator
) -> list[Result]:
    facts = {name: native_fact(pinned, settings, name, corpus) for name in checkpoints_of(pinned, settings)}
    scores = {name: read_scores(fact, tables) for name, fact in facts.items() if tables.has(fact)}
    pairs = [
        ScoredPair((base, name), corpus, (facts[base], facts[name]), (scores[base], scores[name]))
        for base, name in pinned.stemma.pairs()
        if base in scores and name in scores
    ]
    batch = Batch(rng)
    for name, scored in scores.items():
        add_native(batch, name, corpus, scored, facts[name])
    for pair in pairs:
        pair.add_differences(batch)
        pair.add_parts(batch, tables)
    estimates = batch.estimates()
    deltas = Results(estimates).all("loss.delta.byte", register=ALL)
    verdicts = [verdict(delta) for delta in deltas if delta.is_known]
    results: list[Result] = [*estimates, *(refusal for pair in pairs for refusal in pair.refusals())]
    results += [*verdicts, *counts(corpus, pairs, verdicts)]
    results += [mover for pair in pairs for mover in pair.movers(settings.movers)]
    if settings.checks:
        for name, scored in scores.items():
            control = control_fact(pinned, settings, name, corpus)
            if tables.has(control):
                results.append(control_estimate(name, corpus, scored, control, tables))
    return results


def add_native(batch: Batch, checkpoint: str, corpus: str, scores: Scores, fact: Fact) -> None:
    """Losses of one checkpoint by register, in nats/byte and nats/token."""
    for register in scores.registers():
        for kind, denominator_N in (("byte", scores.num_bytes_N), ("token", scores.num_tokens_N)):
            batch.add(
                scores,
                scores.rows(register),
                scores.nll_N,
                denominator_N,
                measure=NAME,
                quantity=f"loss.native.{kind}",
                subject={"checkpoint": checkpoint, "corpus": corpus, "register": register},
                units=f"nats/{kind}",
                facts=[fact],
            )


class ScoredPair:
    """A base and a descendant, both scored on one corpus."""

    def __init__(
        self, names: tuple[str, str], corpus: str, facts: tuple[Fact, Fact], scores: tuple[Scores, Scores]
    ) -> None:
        self.facts = facts
        self._base, self._descendant = scores
        subject = {"base": names[0], "descendant": names[1], "corpus": corpus}
        self._build = ResultBuilder(NAME, subject, facts, units="nats/byte")
        self._by_byte = byte_mismatch(*scores)
        self._by_token = self._by_byte or token_mismatch(*scores)

    def add_differences(self, batch: Batch) -> None:
        """Paired differences by register; nats/token only where every token is the same."""
        base, descendant = self._base, self._descendant
        kinds = (("byte", base.num_bytes_N, self._by_byte), ("token", base.num_tokens_N, self._by_token))
        for register in base.registers():
            for kind, denominator_N, mismatch in kinds:
                if mismatch is None:
                    batch.add(
                        base,
                        base.rows(register),
                        descendant.nll_N - base.nll_N,
                        denominator_N,
                        **self._labels(f"loss.delta.{kind}", f"nats/{kind}", register=register),
                    )

    def add_parts(self, batch: Batch, tables: Tables) -> None:
        """What each bin adds to the difference, for pairs with the same tokens; the bins add up to it."""
        if self._by_token is not None:
            return
        base = self._base
        before, after = (parts_of(fact, tables) for fact in self.facts)
        empty: dict[str, Any] = {name: np.zeros(0) for name in ("index", "nll_sum")}
        for axis, bin_name in sorted({*before, *after}, key=bin_order):
            before_N, after_N = (
                spread(parts.get((axis, bin_name), empty), "nll_sum", base.index_N)
                for parts in (before, after)
            )
            batch.add(
                base,
                base.rows(ALL),
                after_N - before_N,
                base.num_bytes_N,
                **self._labels("loss.where", "nats/byte", axis=axis, bin=bin_name),
            )

    def _labels(self, quantity: str, units: str, **subject: str) -> dict[str, Any]:
        return {
            "measure": NAME,
            "quantity": quantity,
            "subject": {**self._build.subject, **subject},
            "units": units,
            "facts": self.facts,
        }

    def refusals(self) -> list[Refusal]:
        """The differences that cannot be given, with the reason; nats/token only if nats/byte can be."""
        kind, mismatch = ("byte", self._by_byte) if self._by_byte else ("token", self._by_token)
        if mismatch is None:
            return []
        return [self._build.refusal(f"delta.{kind}", mismatch.reason, mismatch.fix, register=ALL)]

    def movers(self, num_movers: int) -> list[Estimate]:
        """The documents at both ends of the change, in nats/byte of the document: best first, worst first.

        A document is labelled by its sign: where fewer than ``num_movers`` improved, the list continues
        with those that worsened least. Documents without a finite loss are left out.
        """
        if self._by_byte is not None:
            return []
        moved_N = (self._descendant.nll_N - self._base.nll_N) / self._base.num_bytes_N
        order = np.argsort(moved_N, kind="stable")
        order = order[np.isfinite(moved_N[order])]
        best = [
            ("improved" if moved_N[row] < 0 else "least worsened", rank, row)
            for rank, row in enumerate(order[:num_movers], start=1)
        ]
        worst = [
            ("worsened" if moved_N[row] > 0 else "least improved", rank, row)
            for rank, row in enumerate(order[::-1][:num_movers], start=1)
        ]
        return [
            self._build.number(
                "mover",
                float(moved_N[row]),
                n=1,
                direction=direction,
                rank=f"{rank:02d}",
                document=str(self._base.index_N[row]),
                doc_id=str(self._base.doc_id_N[row])[:12],
                register=str(self._base.register_N[row]),
            )
            for direction, rank, row in best + worst
        ]


def verdict(delta: Estimate) -> Category:
    """What a known difference says: decided only where the whole interval is on one side of zero."""
    if delta.lo > 0:
        value, reason = LOST, "the whole interval is above zero"
    elif delta.hi < 0:
        value, reason = IMPROVED, "the whole interval is below zero"
    elif delta.lo <= 0 <= delta.hi:
        value, reason = UNDECIDED, "the interval includes zero"
    else:
        value, reason = UNDECIDED, "the interval is unknown"
    return Category(
        measure=NAME,
        quantity="loss.verdict",
        subject={**pair_of(delta), "corpus": delta.subject["corpus"]},
        value=value,
        reason=reason,
        n=delta.n,
        unit=delta.unit,
        facts=delta.facts,
    )


def counts(corpus: str, pairs: Sequence[ScoredPair], verdicts: Sequence[Category]) -> list[Estimate]:
    """How many pairs lost, improved, are undecided, or have no verdict and count as refused."""
    num_pairs = Counter(category.value for category in verdicts)
    num_pairs[REFUSED] = len(pairs) - len(verdicts)
    facts = tuple(dict.fromkeys(fact for pair in pairs for fact in pair.facts))
    build = ResultBuilder(NAME, {"corpus": corpus}, facts, "pairs", n=len(pairs), unit="pair")
    return [
        build.number("count", float(num_pairs[name]), verdict=name)
        for name in (LOST, IMPROVED, UNDECIDED, REFUSED)
    ]


def control_estimate(checkpoint: str, corpus: str, scores: Scores, fact: Fact, tables: Tables) -> Estimate:
    """Absolute differences from the sums of a plain loop over the model's own logits, over their bytes."""
    plain = tables.read(fact, "scores").to_pylist()
    nll_of = dict(zip(scores.index_N.tolist(), scores.nll_N.tolist(), strict=True))
    gaps = [abs(row["nll_sum"] - nll_of[row["index"]]) for row in plain if row["index"] in nll_of]
    num_bytes = sum(row["num_bytes"] for row in plain)
    build = ResultBuilder(NAME, {"checkpoint": checkpoint, "corpus": corpus}, [fact], "nats/byte")
    return build.number(
        "control",
        sum(gaps) / num_bytes if num_bytes else float("nan"),
        n=len(gaps),
        tag="control",
        note="absolute differences from the sums of a plain loop, added up, over their bytes",
    )

"""The measure ``entropy``: paired differences in nats/token, with intervals over documents."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from stemmatics.plugin import (
    Findings,
    ResultBuilder,
    Sentence,
    Settings,
    Table,
    claim,
    interval_claims,
    paired_difference,
)
from stemmatics_entropy.facts import entropy_fact


class EntropySettings(Settings):
    """Settings of the measure ``entropy``."""

    corpus: str = Field(description="the corpus whose positions are predicted")


class EntropyMeasure:
    """Did training make predictions sharper?"""

    name: ClassVar[str] = "entropy"
    version: ClassVar[int] = 1  # raise it when the same sums would give other results
    title: ClassVar[str] = "Entropy"
    question: ClassVar[str] = "Did training make predictions sharper?"
    Settings: ClassVar[type[EntropySettings]] = EntropySettings

    def needs(self, pinned, settings):
        """The entropy of every checkpoint."""
        scoring = pinned.stemma.scoring
        return [entropy_fact(pinned, name, settings.corpus, scoring) for name in pinned.stemma.names]

    def estimate(self, pinned, settings, tables, rng):
        """Descendant less base, a pair."""
        results = []
        for base, descendant in pinned.stemma.pairs():
            facts = [
                entropy_fact(pinned, name, settings.corpus, pinned.stemma.scoring)
                for name in (base, descendant)
            ]
            if not all(tables.has(fact) for fact in facts):
                continue  # a fact that failed leaves its pair without an estimate
            before, after = (tables.read(fact, "entropy_sums") for fact in facts)
            documents = tables.read(facts[0].needs["corpus"], "documents")
            subject = {"base": base, "descendant": descendant, "corpus": settings.corpus}
            build = ResultBuilder("entropy", subject, facts, units="nats/token")
            tokens = before["num_tokens"].to_numpy().astype(float)
            if not np.array_equal(tokens, after["num_tokens"].to_numpy()):
                results.append(build.refusal("delta", "the two models cut the text into different tokens"))
                continue
            scored = tokens > 0  # an empty document has its row, and no rate
            groups = np.array(documents["group"].to_pylist(), dtype=str)
            change = paired_difference(
                before["entropy_sum"].to_numpy()[scored],
                after["entropy_sum"].to_numpy()[scored],
                tokens[scored],
                rng=rng,
                groups=groups[scored],
            )
            results.append(build.interval("delta", change))
        return results

    def findings(self, pinned, settings, results):
        """A sentence and a row a pair; numbers only as claims."""
        deltas = results.all("entropy.delta")
        sentences = [
            Sentence(
                "Predictions of {descendant} changed in entropy by {value} nats/token [{lo}, {hi}] "
                "against {base}.",
                {**interval_claims(delta), **{name: delta.subject[name] for name in ("base", "descendant")}},
                topic="entropy",
            )
            for delta in deltas
        ]
        rows = [
            [delta.subject["base"], delta.subject["descendant"], claim(delta, "{:+.4f}")] for delta in deltas
        ]
        table = Table(
            f"entropy/summary/{settings.corpus}",
            f"Change in entropy on {settings.corpus}",
            ["base", "descendant", "nats/token"],
            rows,
        )
        failures = [f"{one.subject['descendant']}: {one.text}" for one in results.refusals()]
        return Findings(sentences, [table] if rows else [], failures=failures)

"""How much of the loss increase a correction of the logits without context takes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.prior.estimate import Pair, incomparable, pair_estimates, refused
from stemmatics.measure.prior.floors import floor_estimates
from stemmatics.measure.prior.needs import NAME, PriorSettings, corpora_of, fit_facts, floor_fact, pairs_of
from stemmatics.measure.prior.sentences import findings
from stemmatics.measure.prior.sums import Model, read_models, refusal_of


class Prior:
    """Shares of every arm for every pair, beside what the same fits report on plain damage."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 1
    title: ClassVar[str] = "What a context-free correction takes back"
    question: ClassVar[str] = (
        "How much of the loss increase does a bias on tokens, a temperature, or both take back?"
    )
    Settings: ClassVar[type[PriorSettings]] = PriorSettings

    def needs(self, pinned: Pinned, settings: PriorSettings) -> list[Fact]:
        """The arms of both models of every pair, and the pair's damaged bases."""
        facts: list[Fact] = []
        for corpus in corpora_of(pinned, settings):
            for pair in pairs_of(pinned, settings):
                facts += fit_facts(pinned, settings, pair, corpus)
                floor = floor_fact(pinned, settings, pair, corpus)
                facts += [floor] if floor is not None else []
        return facts

    def estimate(
        self, pinned: Pinned, settings: PriorSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Loss increases, shares with their intervals, floors, labels, fits."""
        found: list[Estimate] = []
        for corpus in corpora_of(pinned, settings):
            for pair in pairs_of(pinned, settings):
                facts = fit_facts(pinned, settings, pair, corpus)
                if all(tables.has(fact) for fact in facts):
                    floor = floor_fact(pinned, settings, pair, corpus)
                    subject = {"base": pair[0], "descendant": pair[1], "corpus": corpus}
                    found += _pair(subject, facts, floor, tables, rng)
        return found

    def findings(
        self, pinned: Pinned, settings: PriorSettings, estimates: Mapping[str, Estimate]
    ) -> Findings:
        """Sentences, tables and figures."""
        return findings(pairs_of(pinned, settings), corpora_of(pinned, settings), settings.columns, estimates)


def _pair(
    subject: Mapping[str, str],
    facts: tuple[Fact, Fact],
    floor: Fact | None,
    tables: Tables,
    rng: np.random.Generator,
) -> list[Estimate]:
    reason = next((found for fact in facts if (found := refusal_of(fact, tables))), "")
    if reason:
        return [refused(subject, facts, reason)]
    old, new = (read_models(fact, tables)["own"] for fact in facts)
    reason = incomparable(old, new)
    if reason:
        return [refused(subject, facts, reason)]
    pair = Pair(subject, facts, old, new)
    estimates = [*pair_estimates(pair, rng), *_fits(pair)]
    if floor is not None and tables.has(floor):
        damage: list[dict[str, Any]] = tables.read(floor, "prior_damage").to_pylist()
        estimates += floor_estimates(pair, floor, read_models(floor, tables), damage, estimates)
    return estimates


def _fits(pair: Pair) -> list[Estimate]:
    """What was fitted, for either model: temperature, penalty, the loss on FIT, how near to the optimum."""
    found = []
    for side, model in (("base", pair.old), ("descendant", pair.new)):
        for (arm, reading), fit in model.fits.items():
            subject = {"side": side, "arm": arm, "reading": reading}
            note = "; ".join([*(str(flag) for flag in fit["flags"]), *_note(model)])
            values = {
                "temperature": (1.0 / fit["inverse_temperature"], ""),
                "penalty": (fit["penalty"], ""),
                "gap": (fit["gap"], "nats/token"),
                "gradient": (fit["gradient_norm"], ""),
                "fit_loss": (_ratio(fit["fit_nll_sum"], fit["num_fit_tokens"]), "nats/token"),
                "held_loss": (_ratio(fit["held_nll_sum"], fit["num_held_tokens"]), "nats/token"),
            }
            for name, (value, units) in values.items():
                if value is not None:
                    found.append(pair.exact(f"prior.fit.{name}", float(value), units, note=note, **subject))
    return found


def _note(model: Model) -> list[str]:
    return [model.said["note"]] if model.said["note"] else []


def _ratio(total: float | None, count: int | None) -> float | None:
    return None if total is None or not count else total / count

"""Estimates of one pair: effects, profile, decisions, controls, floor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stemmatics.core.results import Category, Estimate, Refusal, Result
from stemmatics.facts.cross import CELLS, DESCENDANT, MAIN_ARM, READOUTS
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST, OUTCOMES
from stemmatics.math.equivalence import paired_score_interval
from stemmatics.math.factorial import (
    EFFECTS,
    Effect,
    Factorial,
    event_mean,
    event_means,
    factorial,
    no_events,
    profile,
    ratio_of_event_means,
)
from stemmatics.math.intervals import wilson
from stemmatics.measure.base import Tables
from stemmatics.measure.depth.cells import CrossedEvents, StoredCells
from stemmatics.measure.depth.needs import PairFacts
from stemmatics.measure.present import ResultBuilder

NAME = "depth"
PORTABLE_SHARE = "portable_share"
SAME, DIFFERENT = "same", "different"


class PairEstimator:
    """Estimates of one pair on one corpus; their subject is base, descendant and events (the corpus)."""

    def __init__(self, facts: PairFacts, tables: Tables, rng: np.random.Generator) -> None:
        self.facts = facts
        self.stored = StoredCells(facts.cross, tables)
        self.support = MANIFEST if facts.is_on_manifest else FIRST
        self._tables = tables
        self._rng = rng
        subject = {"base": facts.base, "descendant": facts.descendant, "events": facts.corpus}
        self._builder = ResultBuilder(NAME, subject, (facts.cross,), unit="prompt")

    def results(self) -> list[Result]:
        """Every result of the pair; for one that could not be crossed, the refusal."""
        refusal = self.refusal()
        if refusal is not None:
            return [refusal]
        results: list[Result] = [*self._counts(), *self._checks(), *self._states()]
        for readout in READOUTS:
            results += self._effects(readout)
        results += [*self._margins(), *self._profile(), *self._decisions(), *self._controls()]
        return [*results, *self._floor(), *self._forced()]

    def refusal(self) -> Refusal | None:
        """Why the pair has no interaction; None for a pair that was crossed."""
        if not self.stored.refusal:
            return None
        fix = "cross a descendant with the base that it was trained from"
        return self._builder.refusal("interaction", self.stored.refusal, fix)

    def main_events(self) -> CrossedEvents:
        """The events behind the main numbers."""
        return self.stored.events(self.support)

    @property
    def has_same_states(self) -> bool:
        """Whether the two earlier states are identical at every event and boundary: nothing to cross."""
        return self.stored.largest_distance == 0

    def _counts(self) -> list[Estimate]:
        """Prompts by outcome."""
        rows = self._tables.read(self.facts.events, "events").to_pylist()
        outcomes = Counter(row["outcome"] for row in rows if row["support"] == self.support)
        builder = replace(self._builder.with_facts(self.facts.events), n=outcomes.total(), units="prompts")
        return [
            builder.number("prompts", float(outcomes[outcome]), outcome=outcome)
            for outcome in OUTCOMES
            if outcome != "refused"
        ]

    def _checks(self) -> list[Estimate]:
        """Identity, where the models were cut, and how far apart their states are."""
        summary = self.stored.summary
        builder = replace(self._builder, n=int(summary["num_events"]), unit="event")
        events = self.main_events()
        return [
            builder.number(
                "identity_error",
                float(summary["identity_error"]),
                units="share of the largest value",
                tag="control",
            ),
            builder.number("layers", float(summary["num_layers"]), units="layers"),
            builder.number("boundary", float(self.stored.main_boundary), units="layer"),
            builder.interval(
                "distance",
                event_mean(events.distance_E, events.index_E, rng=self._rng),
                units="share of the base's state",
            ),
        ]

    def _states(self) -> list[Category]:
        """Whether the two earlier states differ; unknown without events."""
        num_events = self.main_events().num_events
        if not num_events:
            return []
        value, reason = DIFFERENT, "the earlier states differ"
        if self.has_same_states:
            value = SAME
            reason = "the earlier states are identical, so the interaction is zero by construction"
        return [self._builder.category("states", value, reason, n=num_events, unit="event")]

    def _effects(self, readout: str) -> list[Estimate]:
        """Effects, interaction and share at the main boundary under one readout."""
        events = self.stored.events(self.support, readout=readout)
        builder = self._builder.about(support=self.support, readout=readout, arm=MAIN_ARM)
        builder = replace(builder, tag="main" if readout == DESCENDANT else "control")
        return factorial_estimates(builder, factorial(events.cells, events.index_E, rng=self._rng))

    def _margins(self) -> list[Estimate]:
        """Mean margin in each of the four cells."""
        events = self.main_events()
        cells = events.cells
        margins_E4 = np.stack(
            [
                cells.base_base_E,
                cells.base_descendant_E,
                cells.descendant_base_E,
                cells.descendant_descendant_E,
            ],
            axis=1,
        )
        means = event_means(margins_E4, events.index_E, rng=self._rng)
        return [
            self._builder.interval("margin", mean, units="logits", cell=cell)
            for cell, mean in zip(CELLS, means, strict=True)
        ]

    def _profile(self) -> list[Estimate]:
        """Effects and share at every boundary; nothing if there is only one."""
        boundaries = self.stored.boundaries
        if len(boundaries) < 2:
            return []
        events = [self.stored.events(self.support, boundary=boundary) for boundary in boundaries]
        effects = profile([at.cells for at in events], events[0].index_E, rng=self._rng)
        estimates = []
        for boundary, at in zip(boundaries, effects, strict=True):
            builder = self._builder.about(boundary=f"{boundary:03d}")
            estimates += [
                builder.interval(f"profile.{name}", getattr(at, name), units="logits") for name in EFFECTS
            ]
            estimates.append(builder.interval(f"profile.{PORTABLE_SHARE}", at.portable_share, units="share"))
        return estimates

    def _decisions(self) -> list[Estimate]:
        """Share of events whose top token changes when the late layers are swapped."""
        events = self.main_events()
        changed = {"base": events.changed_after_base_E, "descendant": events.changed_after_desc_E}
        return [
            self._builder.interval(
                "top_1_changed",
                wilson(int(changed_E.sum()), events.num_events, unit="event"),
                units="share of events",
                earlier_state=state,
            )
            for state, changed_E in changed.items()
        ]

    def _controls(self) -> list[Estimate]:
        """Other supports and other states: their interaction, also as a share of the main one."""
        main = self.main_events()
        controls: dict[str, CrossedEvents] = {}
        if self.support == FIRST:
            controls = {support: self.stored.events(support) for support in (LATER, EARLIER)}
        controls |= {arm: self.stored.events(self.support, arm=arm) for arm in self.stored.control_arms}
        estimates = []
        for control, events in controls.items():
            if not events.num_events:
                continue
            builder = replace(self._builder.about(control=control), tag="control")
            interaction = event_mean(events.cells.interactions, events.index_E, rng=self._rng)
            share = ratio_of_event_means(
                events.cells.interactions,
                events.index_E,
                main.cells.interactions,
                main.index_E,
                rng=self._rng,
            )
            estimates += [
                builder.interval("control.interaction", interaction, units="logits"),
                builder.interval("control.share", share, units="share of the main"),
            ]
        return estimates

    def _floor(self) -> list[Result]:
        """What damage of the same size reports; refused where there is no such damage."""
        floor = self.facts.floor
        if floor is None:
            return []
        builder = replace(self._builder, tag="floor")
        if not (self._tables.has(floor.cross) and self._tables.has(floor.noise)):
            return [builder.refusal("floor.interaction", "the floor failed", "see the failures of the run")]
        (noise,) = self._tables.read(floor.noise, "noise_scale").to_pylist()
        lost = (noise["descendant_nll_sum"] - noise["base_nll_sum"]) / noise["num_bytes"]
        stored = StoredCells(floor.cross, self._tables)
        failure = noise["failure"] or stored.refusal
        of_noise = replace(builder.with_facts(floor.noise), n=1, unit="pair")
        return [
            of_noise.number("floor.loss", lost, units="nats/byte"),
            of_noise.refusal("floor.scale", failure)
            if failure
            else of_noise.number("floor.scale", noise["scale"], units="standard deviations"),
            *self._floor_effects(builder.with_facts(floor.cross, floor.noise), stored, failure),
        ]

    def _floor_effects(self, builder: ResultBuilder, stored: StoredCells, failure: str) -> Sequence[Result]:
        if failure:
            return [builder.refusal(f"floor.{name}", failure) for name in (*EFFECTS, PORTABLE_SHARE)]
        events = stored.events(FIRST)
        effects = factorial(events.cells, events.index_E, rng=self._rng)
        return [
            *(
                builder.interval(f"floor.{name}", getattr(effects, name).interval, units="logits")
                for name in EFFECTS
            ),
            builder.interval(f"floor.{PORTABLE_SHARE}", effects.portable_share, units="share"),
        ]

    def _forced(self) -> list[Result]:
        """Share of valid replies after each of the two tokens, and the difference paired by event."""
        fact = self.facts.forced
        if fact is None or not self._tables.has(fact):
            return []
        builder = replace(self._builder.with_facts(fact), units="share of events")
        rows = self._tables.read(fact, "forced").to_pylist()
        if not rows:
            return [
                builder.refusal(
                    "forced",
                    "no event has a rule to judge its reply by",
                    "give prompts `accepted` answers or a `format`",
                )
            ]
        valid = {
            model: np.array([row[f"valid_after_{model}"] for row in rows]) for model in ("base", "descendant")
        }
        gained = int((valid["descendant"] > valid["base"]).sum())
        lost = int((valid["descendant"] < valid["base"]).sum())
        shares = [
            builder.interval("forced.valid", wilson(int(valid_E.sum()), len(rows), unit="event"), after=model)
            for model, valid_E in valid.items()
        ]
        difference = paired_score_interval(gained, lost, len(rows), unit="event")
        return [*shares, builder.interval("forced", difference)]


def factorial_estimates(builder: ResultBuilder, effects: Factorial, prefix: str = "") -> list[Estimate]:
    """The three effects, the p-value of the interaction and the portable share."""
    estimates = []
    for name in EFFECTS:
        effect: Effect = getattr(effects, name)
        estimates.append(builder.interval(f"{prefix}{name}", effect.interval, units="logits"))
    estimates.append(_p_value(builder, f"{prefix}interaction_p", effects.interaction))
    return [*estimates, builder.interval(f"{prefix}{PORTABLE_SHARE}", effects.portable_share, units="share")]


def _p_value(builder: ResultBuilder, quantity: str, effect: Effect) -> Estimate:
    """The p-value of a sign-flip test; how it was computed is in its note."""
    test = effect.sign_flip
    if math.isnan(test.p_value):
        return builder.interval(quantity, no_events(), units="p")
    how = "all" if test.exact else "random"
    note = f"sign-flip by prompt, {test.num_flips:,} {how} assignments; smallest p {test.smallest_p:.2g}"
    return builder.number(quantity, test.p_value, n=test.n, unit="prompt", units="p", note=note)

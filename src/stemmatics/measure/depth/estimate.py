"""Estimates of one pair: effects, profile, decisions, controls, floor."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stemmatics.core.results import Category, Estimate, Refusal, Result
from stemmatics.facts.cross import CELLS, DESCENDANT, MAIN_ARM, PERMUTED_ARM, READOUTS
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST, OUTCOMES
from stemmatics.facts.paths import THREE_CELLS
from stemmatics.math.equivalence import paired_score_interval
from stemmatics.math.factorial import (
    EFFECTS,
    Effect,
    Factorial,
    FloatArray,
    event_mean,
    event_means,
    factorial,
    no_events,
    profile,
    ratio_of_event_means,
)
from stemmatics.math.intervals import wilson
from stemmatics.math.three_cells import PUBLISHED_LEVEL, PathLosses, path_losses, rescaled_interaction
from stemmatics.measure.base import Tables
from stemmatics.measure.depth.cells import CrossedEvents, StoredCells, StoredPaths
from stemmatics.measure.depth.floor import floor_results, range_of_draws
from stemmatics.measure.depth.needs import PairFacts
from stemmatics.measure.depth.sign import NAME, fit_results, rescaled_estimates, sign_results
from stemmatics.measure.present import ResultBuilder

PORTABLE_SHARE = "portable_share"
SAME, DIFFERENT = "same", "different"


class PairEstimator:
    """Estimates of one pair on one corpus; their subject is base, descendant and events (the corpus).

    ``support`` is that of the main events: ``three_cells`` on prompts, ``manifest`` for given events.
    """

    def __init__(self, facts: PairFacts, tables: Tables, rng: np.random.Generator) -> None:
        self.facts = facts
        self.published = StoredCells(facts.cross, tables)
        self.paths = None if facts.paths is None else StoredPaths(facts.paths, tables)
        self.stored = self.published if facts.main_cross is None else StoredCells(facts.main_cross, tables)
        self.support = MANIFEST if facts.is_on_manifest else THREE_CELLS
        self._tables = tables
        self._rng = rng
        subject = {"base": facts.base, "descendant": facts.descendant, "events": facts.corpus}
        self._builder = ResultBuilder(NAME, subject, (facts.main_cross or facts.cross,), unit="prompt")

    @cached_property
    def losses(self) -> PathLosses | None:
        """Losses of the path's tokens in the four cells; None for given events."""
        if self.paths is None:
            return None
        return path_losses(self.paths.nll_N4, self.paths.num_tokens_N, rng=self._rng)

    @property
    def fits(self) -> bool:
        """Whether an interaction may be said: not where the halves do not fit."""
        return self.losses is None or self.losses.fit != "do not fit"

    def results(self) -> list[Result]:
        """Every result of the pair; for one that could not be crossed, the refusal."""
        refusal = self.refusal()
        if refusal is not None:
            return [refusal]
        results: list[Result] = [*self._counts(), *self._checks(), *self._states()]
        if self.losses is not None:
            results += fit_results(self._of_paths(), self.losses)
        results += self._margins()
        if self.fits:
            main = self._main()
            results += [*main, *self._readouts(), *self._profile(), *self._decisions(), *self._controls()]
        if self.paths is not None:
            results += floor_results(self._builder, self.facts.floor, self._tables, self._rng)
        return [*results, *self._forced()]

    def refusal(self) -> Refusal | None:
        """Why the pair has no interaction; None for a pair that was crossed."""
        reason = self.published.refusal or self.stored.refusal
        if self.paths is not None:
            reason = reason or self.paths.refusal
        if not reason:
            return None
        fix = "cross a descendant with the base that it was trained from"
        return self._builder.refusal("interaction", reason, fix)

    def main_events(self) -> CrossedEvents:
        """The events behind the main numbers."""
        return self.stored.events(self.support)

    def _of_paths(self) -> ResultBuilder:
        assert self.facts.paths is not None, "only for a pair on prompts"
        return self._builder.with_facts(self.facts.paths)

    @property
    def has_same_states(self) -> bool:
        """Whether the two earlier states are identical at every event and boundary: nothing to cross."""
        return self.stored.largest_distance == 0

    def _counts(self) -> list[Estimate]:
        """Prompts by outcome: with an event of three cells, and with a first disagreement."""
        rows = self._tables.read(self.facts.events, "events").to_pylist()
        first = Counter(row["outcome"] for row in rows if row["support"] in {FIRST, MANIFEST})
        support: str = MANIFEST if self.paths is None else FIRST
        counts = [(self.facts.events, support, first)]
        if self.facts.paths is not None and self.paths is not None:
            counts.insert(0, (self.facts.paths, THREE_CELLS, self.paths.outcomes))
        return [
            replace(self._builder.with_facts(fact), n=outcomes.total(), units="prompts").number(
                "prompts", float(outcomes[outcome]), outcome=outcome, support=support
            )
            for fact, support, outcomes in counts
            for outcome in OUTCOMES
            if outcome != "refused" and not (support == THREE_CELLS and outcome == "ended")
        ]

    def _checks(self) -> list[Estimate]:
        """Identity, where the models were cut, and how far apart their states are."""
        summaries = [self.stored.summary, self.published.summary]
        if self.paths is not None:
            summaries.append(self.paths.summary)
        builder = replace(self._builder, n=int(self.stored.summary["num_events"]), unit="event")
        events = self.main_events()
        checks = [
            builder.with_facts(*self.facts.crossed).number(
                "identity_error",
                max(float(summary["identity_error"]) for summary in summaries),
                units="share of the largest value",
                tag="control",
            ),
            builder.number("layers", float(self.stored.summary["num_layers"]), units="layers"),
            builder.number("boundary", float(self.stored.main_boundary), units="layer"),
            builder.interval(
                "distance",
                event_mean(events.distance_E, events.index_E, rng=self._rng),
                units="share of the base's state",
            ),
        ]
        if self.paths is not None:
            rendered = float(self.paths.summary["num_rendered"])
            num_prompts = self.paths.outcomes.total()
            of_prompts = replace(self._of_paths(), n=num_prompts, units="prompts")
            checks.append(of_prompts.number("rendered", rendered))
        return checks

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

    def _main(self) -> list[Result]:
        """Effects at the main events, their sign, and the published support beside them."""
        events = self.main_events()
        builder = self._builder.about(support=self.support, readout=DESCENDANT, arm=MAIN_ARM)
        effects = factorial(events.cells, events.index_E, rng=self._rng)
        by_three_cells = self.support == THREE_CELLS
        results: list[Result] = [*factorial_estimates(builder, effects, by_three_cells=by_three_cells)]
        if self.paths is None or self.losses is None:
            return results
        first = self.published.events(FIRST)
        builder = self._builder.with_facts(self.facts.cross)
        builder = replace(builder.about(support=FIRST, readout=DESCENDANT, arm=MAIN_ARM), tag="control")
        published = factorial(first.cells, first.index_E, rng=self._rng)
        wide = event_mean(first.cells.interactions, first.index_E, rng=self._rng, level=PUBLISHED_LEVEL)
        results += factorial_estimates(builder, published, with_p=False)
        results.append(builder.interval("interaction_99", wide, units="logits"))
        products_E2 = self.paths.products_of(events.index_E)
        rescaled = rescaled_interaction(
            events.cells, events.index_E, products_E2[:, 0], products_E2[:, 1], rng=self._rng
        )
        facts = self._builder.with_facts(*self.facts.crossed)
        return [
            *results,
            *rescaled_estimates(facts, rescaled),
            *sign_results(
                facts,
                effects.interaction.interval,
                wide,
                self.losses.fit,
                same_states=self.has_same_states,
            ),
        ]

    def _readouts(self) -> list[Estimate]:
        """The same under the other readouts."""
        supports: list[tuple[str, StoredCells, ResultBuilder]]
        supports = [(self.support, self.stored, self._builder)]
        if self.paths is not None:
            supports.append((FIRST, self.published, self._builder.with_facts(self.facts.cross)))
        estimates: list[Estimate] = []
        for support, stored, builder in supports:
            for readout in READOUTS:
                if readout == DESCENDANT:
                    continue
                events = stored.events(support, readout=readout)
                about = replace(builder.about(support=support, readout=readout, arm=MAIN_ARM), tag="control")
                effects = factorial(events.cells, events.index_E, rng=self._rng)
                estimates += factorial_estimates(about, effects, with_p=False)
        return estimates

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
        """Share of events whose top token changes when the late layers are swapped, by support."""
        supports = {self.support: self.stored}
        if self.paths is not None:
            supports[FIRST] = self.published
        estimates = []
        for support, stored in supports.items():
            events = stored.events(support)
            changed = {"base": events.changed_after_base_E, "descendant": events.changed_after_desc_E}
            builder = self._builder.with_facts(
                self.facts.cross if support == FIRST else self.facts.main_cross or self.facts.cross
            )
            estimates += [
                builder.interval(
                    "top_1_changed",
                    wilson(int(changed_E.sum()), events.num_events, unit="event"),
                    units="share of events",
                    earlier_state=state,
                    support=support,
                )
                for state, changed_E in changed.items()
            ]
        return estimates

    def _controls(self) -> list[Estimate]:
        """Other positions and other states: their interaction, also as a share.

        Other positions belong to the first disagreements and are shares of those; other states to the main
        events. The permuted states are averaged by event; the smallest and largest draw are given.
        """
        main, first = self.main_events(), self.published.events(FIRST)
        controls: list[tuple[str, CrossedEvents, CrossedEvents]] = []
        if self.paths is not None:
            controls += [(support, self.published.events(support), first) for support in (LATER, EARLIER)]
        controls += [
            (arm, self.stored.events(self.support, arm=arm), main) for arm in self.stored.control_arms
        ]
        estimates = []
        for control, events, whole in controls:
            if events.num_events:
                estimates += self._control(control, events.cells.interactions, events.index_E, whole)
        draws = [self.stored.events(self.support, arm=arm) for arm in self.stored.permuted_arms]
        if draws and draws[0].num_events:
            values_DE = np.stack([events.cells.interactions for events in draws])
            estimates += self._control(PERMUTED_ARM, values_DE.mean(0), draws[0].index_E, main)
            estimates += range_of_draws(
                replace(self._builder.about(control=PERMUTED_ARM), tag="control"),
                "control",
                values_DE.mean(1),
            )
        return estimates

    def _control(
        self, control: str, values_E: FloatArray, index_E: npt.NDArray[np.int64], whole: CrossedEvents
    ) -> list[Estimate]:
        builder = replace(self._builder.about(control=control), tag="control")
        share = ratio_of_event_means(
            values_E, index_E, whole.cells.interactions, whole.index_E, rng=self._rng
        )
        return [
            builder.interval(
                "control.interaction", event_mean(values_E, index_E, rng=self._rng), units="logits"
            ),
            builder.interval("control.share", share, units="share of its events' interaction"),
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


def factorial_estimates(
    builder: ResultBuilder,
    effects: Factorial,
    prefix: str = "",
    *,
    with_p: bool = True,
    by_three_cells: bool = False,
) -> list[Estimate]:
    """The three effects, the p-value of the interaction and the portable share.

    At events chosen by three cells there is no p-value for a mean below 0: they lean below 0 where the cells
    carry noise of their own.
    """
    estimates = []
    for name in EFFECTS:
        effect: Effect = getattr(effects, name)
        estimates.append(builder.interval(f"{prefix}{name}", effect.interval, units="logits"))
    if with_p:
        leans = by_three_cells and effects.interaction.interval.value <= 0
        estimates.append(_p_value(builder, f"{prefix}interaction_p", effects.interaction, leans=leans))
    return [*estimates, builder.interval(f"{prefix}{PORTABLE_SHARE}", effects.portable_share, units="share")]


def _p_value(builder: ResultBuilder, quantity: str, effect: Effect, *, leans: bool) -> Estimate:
    """The p-value of a sign-flip test; how it was computed is in its note."""
    test = effect.sign_flip
    if math.isnan(test.p_value):
        return builder.interval(quantity, no_events(), units="p")
    if leans:
        note = "the mean is not above 0, and a p-value would not hold below 0"
        return builder.number(quantity, math.nan, n=test.n, unit="prompt", units="p", note=note)
    how = "all" if test.exact else "random"
    note = f"sign-flip by prompt, {test.num_flips:,} {how} assignments; smallest p {test.smallest_p:.2g}"
    return builder.number(quantity, test.p_value, n=test.n, unit="prompt", units="p", note=note)

"""Estimates of one pair: effects, profile, controls, floor, decisions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from stemmatics.core.facts import Fact, Tag
from stemmatics.core.results import Estimate
from stemmatics.facts.cross import CELLS
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST
from stemmatics.math.equivalence import paired_score_interval
from stemmatics.math.factorial import Effect, Factorial, factorial
from stemmatics.math.factorial_profile import by_prompt, profile, share_of
from stemmatics.math.intervals import Interval, unknown, wilson
from stemmatics.math.rates import loss_rates, mean_interval
from stemmatics.measure.base import Tables
from stemmatics.measure.depth.cells import DESCENDANT, MAIN, READOUTS, Crossed, Rows
from stemmatics.measure.depth.needs import Question
from stemmatics.measure.present import estimate_from

NAME = "depth"
FLOOR: Tag = "floor"
REFUSED = "refused"
DEGENERATE = "degenerate: the earlier states are the same, so that nothing is crossed"
_EFFECTS = ("effect_after_base", "effect_after_descendant", "interaction")


class PairEstimates:
    """One question's numbers. ``subject`` of all: base, descendant, events."""

    def __init__(self, question: Question, tables: Tables, rng: np.random.Generator) -> None:
        self.question = question
        self.tables = tables
        self.rng = rng
        self.crossed = Crossed(question.cross, tables)
        given = question.events.params["supports"] == [MANIFEST]
        self.support = MANIFEST if given else FIRST
        self.note = DEGENERATE if self.crossed.largest_distance == 0 else ""

    def all(self) -> list[Estimate]:
        """Everything that can be said of the pair; where it was refused, why."""
        if self.crossed.refusal:
            return [self._make(REFUSED, nothing(self.crossed.refusal), units="logits")]
        found = [*self._counts(), *self._checks()]
        for readout in READOUTS:
            found += self._effects(self.crossed.rows(self.support, readout=readout), readout=readout)
        found += [*self._cells(), *self._profile(), *self._decisions(), *self._controls()]
        return [*found, *self._floor(), *self._forced()]

    def main(self) -> Rows:
        """The events behind the main numbers."""
        return self.crossed.rows(self.support)

    def _make(
        self,
        quantity: str,
        interval: Interval,
        *,
        units: str,
        tag: Tag = "main",
        facts: tuple[Fact, ...] | None = None,
        about: Mapping[str, str] | None = None,
    ) -> Estimate:
        question = self.question
        subject = {
            "base": question.base,
            "descendant": question.descendant,
            "events": question.source,
            **(about or {}),
        }
        return estimate_from(
            interval,
            measure=NAME,
            quantity=f"depth.{quantity}",
            subject=subject,
            units=units,
            facts=(question.cross,) if facts is None else facts,
            tag=tag,
            note=self.note,
        )

    def _counts(self) -> list[Estimate]:
        rows = self.tables.read(self.question.events, "events").to_pylist()
        outcomes = Counter(row["outcome"] for row in rows if row["support"] == self.support)
        total = sum(outcomes.values())
        facts = (self.question.events,)
        return [
            self._make(
                "prompts",
                exact(float(outcomes[name]), total),
                units="prompts",
                facts=facts,
                about={"outcome": name},
            )
            for name in ("event", "agreed", "ended", "too_long", "empty", "duplicate")
        ]

    def _checks(self) -> list[Estimate]:
        summary = self.crossed.summary
        num_events = int(summary["num_events"])
        error = exact(float(summary["identity_error"]), num_events, "event")
        layers = exact(float(summary["num_layers"]), num_events, "event")
        boundary = exact(float(self.crossed.main_boundary), num_events, "event")
        rows = self.main()
        return [
            self._make("identity_error", error, units="share of the largest value", tag="control"),
            self._make("layers", layers, units="layers"),
            self._make("boundary", boundary, units="layer"),
            self._make("distance", _mean(rows.distance_E, rows, self.rng), units="share of the base's state"),
        ]

    def _effects(self, rows: Rows, *, readout: str, arm: str = MAIN, tag: Tag = "main") -> list[Estimate]:
        found = factorial(rows.cells, rows.index_E, rng=self.rng)
        subject = {"support": self.support, "readout": readout, "arm": arm}
        tag = "control" if readout != DESCENDANT and tag == "main" else tag
        return [
            self._make(quantity, interval, units=units, tag=tag, about=subject)
            for quantity, interval, units in statistics_of(found)
        ]

    def _cells(self) -> list[Estimate]:
        rows = self.main()
        columns = (
            rows.cells.base_base_E,
            rows.cells.base_descendant_E,
            rows.cells.descendant_base_E,
            rows.cells.descendant_descendant_E,
        )
        if not rows.num_events:
            means = [nothing("no events")] * len(CELLS)
        else:
            ones_E = np.ones(rows.num_events)
            found = loss_rates(np.stack(columns, axis=1), ones_E[:, None], rng=self.rng, groups=rows.index_E)
            means = [by_prompt(one) for one in found]
        return [
            self._make("margin", mean, units="logits", about={"cell": name})
            for name, mean in zip(CELLS, means, strict=True)
        ]

    def _profile(self) -> list[Estimate]:
        boundaries = self.crossed.boundaries
        if len(boundaries) < 2:
            return []
        rows = [self.crossed.rows(self.support, boundary=boundary) for boundary in boundaries]
        found = []
        for boundary, at in zip(
            boundaries, profile([one.cells for one in rows], rows[0].index_E, rng=self.rng), strict=True
        ):
            where = {"boundary": f"{boundary:03d}"}
            found += [
                self._make(f"profile.{name}", getattr(at, name), units="logits", about=where)
                for name in _EFFECTS
            ]
            found.append(self._make("profile.portable_share", at.portable_share, units="share", about=where))
        return found

    def _decisions(self) -> list[Estimate]:
        rows = self.main()
        changed = {"base": rows.changed_after_base_E, "descendant": rows.changed_after_desc_E}
        return [
            self._make(
                "top_1_changed",
                wilson(int(flags_E.sum()), rows.num_events, unit="event"),
                units="share of events",
                about={"earlier_state": name},
            )
            for name, flags_E in changed.items()
        ]

    def _controls(self) -> list[Estimate]:
        """Other supports and other states: their interaction, also as a share of the main one."""
        main = self.main()
        others: dict[str, Rows] = {}
        if self.support == FIRST:
            others = {name: self.crossed.rows(name) for name in (LATER, EARLIER)}
        others |= {arm: self.crossed.rows(self.support, arm=arm) for arm in self.crossed.arms}
        found = []
        for name, rows in others.items():
            if not rows.num_events:
                continue
            interaction = _mean(rows.cells.interactions, rows, self.rng)
            share = share_of(
                rows.cells.interactions, rows.index_E, main.cells.interactions, main.index_E, rng=self.rng
            )
            found += [
                self._make(
                    "control.interaction", interaction, units="logits", tag="control", about={"control": name}
                ),
                self._make(
                    "control.share", share, units="share of the main", tag="control", about={"control": name}
                ),
            ]
        return found

    def _floor(self) -> list[Estimate]:
        floor, noise = self.question.floor, self.question.noise
        if floor is None or noise is None:
            return []
        made = all(self.tables.has(fact) for fact in (floor.cross, noise))
        if not made:
            return [self._make("floor.interaction", nothing("the floor failed"), units="logits", tag=FLOOR)]
        (row,) = self.tables.read(noise, "noise_scale").to_pylist()
        lost = (row["descendant_nll_sum"] - row["base_nll_sum"]) / row["num_bytes"]
        floor_crossed = Crossed(floor.cross, self.tables)
        failure = row["failure"] or floor_crossed.refusal
        scale = nothing(failure) if failure else exact(row["scale"], 1, "pair")
        found = [
            self._make("floor.loss", exact(lost, 1, "pair"), units="nats/byte", tag=FLOOR, facts=(noise,)),
            self._make("floor.scale", scale, units="standard deviations", tag=FLOOR, facts=(noise,)),
        ]
        if floor_crossed.refusal:
            return found
        rows = floor_crossed.rows(FIRST)
        statistics = statistics_of(factorial(rows.cells, rows.index_E, rng=self.rng))
        for quantity, interval, units in statistics:
            if quantity in {*_EFFECTS, "portable_share"}:
                known = nothing(failure) if failure else interval
                found.append(
                    self._make(f"floor.{quantity}", known, units=units, tag=FLOOR, facts=(floor.cross, noise))
                )
        return found

    def _forced(self) -> list[Estimate]:
        fact = self.question.forced
        if fact is None or not self.tables.has(fact):
            return []
        rows = self.tables.read(fact, "forced").to_pylist()
        if not rows:
            return [
                self._make(
                    "forced", nothing("no event has a rule to be judged by"), units="share", facts=(fact,)
                )
            ]
        gained = sum(row["valid_after_descendant"] > row["valid_after_base"] for row in rows)
        lost = sum(row["valid_after_descendant"] < row["valid_after_base"] for row in rows)
        interval = paired_score_interval(gained, lost, len(rows), unit="event")
        after = {
            name: wilson(sum(row[f"valid_after_{name}"] for row in rows), len(rows), unit="event")
            for name in ("base", "descendant")
        }
        shares = [
            self._make("forced.valid", one, units="share of events", facts=(fact,), about={"after": name})
            for name, one in after.items()
        ]
        return [*shares, self._make("forced", interval, units="share of events", facts=(fact,))]


def statistics_of(found: Factorial) -> list[tuple[str, Interval, str]]:
    """Quantity, interval and units of one design, with the p-value of each effect's sign-flip test."""
    statistics: list[tuple[str, Interval, str]] = []
    for name in _EFFECTS:
        effect: Effect = getattr(found, name)
        statistics.append((name, effect.interval, "logits"))
        if name == "interaction":
            statistics.append(("interaction_p", p_value(effect), "p"))
    return [*statistics, ("portable_share", found.portable_share, "share")]


def p_value(effect: Effect) -> Interval:
    """A sign-flip test's p-value in the place of a number; how it was got is in its note."""
    test = effect.sign_flip
    if math.isnan(test.p_value):
        return nothing("no events")
    how = "all" if test.exact else "random"
    note = f"sign-flip by prompt, {test.num_flips:,} {how} assignments; smallest p {test.smallest_p:.2g}"
    return _plain(test.p_value, test.n, "prompt", note)


def exact(value: float, n: int, unit: str = "prompt") -> Interval:
    """A count or a setting: nothing is uncertain about it."""
    return _plain(value, n, unit, "")


def nothing(note: str) -> Interval:
    """A number that nobody knows, and why."""
    return unknown(math.nan, level=0.95, n=0, unit="prompt", note=note)


def _plain(value: float, n: int, unit: str, note: str) -> Interval:
    return Interval(value, math.nan, math.nan, 0.95, "exact", n, unit, math.nan, math.nan, note)


def _mean(values_E: Any, rows: Rows, rng: np.random.Generator) -> Interval:
    if not rows.num_events:
        return nothing("no events")
    return mean_interval(values_E, rng=rng, groups=rows.index_E, unit="prompt")


def flat(subject: Mapping[str, str], **wanted: str) -> bool:
    """Whether a subject has these values."""
    return all(subject.get(name) == value for name, value in wanted.items())

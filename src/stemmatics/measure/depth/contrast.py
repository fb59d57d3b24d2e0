"""A controlled experiment: the interaction of one arm less that of the other, seed by seed."""

from __future__ import annotations

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.facts.events import MANIFEST
from stemmatics.facts.pinned import Pinned
from stemmatics.math.factorial import FloatArray
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import mean_interval
from stemmatics.math.seeds import crossed_prompts_seeds, sign_flip_exact
from stemmatics.measure.base import Tables
from stemmatics.measure.depth.cells import Crossed
from stemmatics.measure.depth.estimate import NAME, PairEstimates, exact
from stemmatics.measure.depth.needs import DepthSettings, Question, on_manifest
from stemmatics.measure.present import estimate_from

ARMS = ("first", "second")


def contrast_questions(pinned: Pinned, settings: DepthSettings) -> list[Question]:
    """First arm seed by seed, then the second."""
    if settings.contrast is None:
        return []
    found = []
    for arm in (settings.contrast.first, settings.contrast.second):
        for name in arm.descendants:
            base = pinned.stemma.parent(name)
            if base is None:
                raise UserError(
                    f"{name!r} in a contrast has no base",
                    "it is crossed with one",
                    "Declare its base",
                    code=2,
                )
            found.append(on_manifest(pinned, settings, base, name, arm.events))
    return found


def contrast_estimates(
    pinned: Pinned, settings: DepthSettings, tables: Tables, rng: np.random.Generator
) -> list[Estimate]:
    """Interaction of each trained model, their difference by seed, and over seeds.

    The events of the two arms are the same items in the same order, so that the difference is paired
    by item within a seed. Nothing where a model is missing, and the reason where a pair can't be crossed.
    """
    asked = contrast_questions(pinned, settings)
    if not asked or not all(tables.has(question.cross) for question in asked):
        return []
    crossed = [Crossed(question.cross, tables) for question in asked]
    if any(one.refusal for one in crossed):
        return [
            estimate
            for question, one in zip(asked, crossed, strict=True)
            if one.refusal
            for estimate in PairEstimates(question, tables, rng).all()
        ]
    half = len(asked) // 2
    values = [one.rows(MANIFEST).cells.interactions for one in crossed]
    if len({one.size for one in values}) > 1:
        raise UserError(
            "the arms of the contrast have other numbers of events",
            "they are paired item by item",
            "Give both manifests the same items in the same order",
        )
    found = []
    for place, (question, interactions_E) in enumerate(zip(asked, values, strict=True)):
        subject = {
            "arm": ARMS[place // half],
            "seed": str(place % half + 1),
            "descendant": question.descendant,
        }
        interval = mean_interval(interactions_E, rng=rng, unit="item")
        found.append(_estimate("contrast.interaction", interval, subject, [question.cross]))
    differences_ES = np.stack([values[half + seed] - values[seed] for seed in range(half)], axis=1)
    for seed in range(half):
        interval = mean_interval(differences_ES[:, seed], rng=rng, unit="item")
        facts = [asked[seed].cross, asked[half + seed].cross]
        found.append(_estimate("contrast.by_seed", interval, {"seed": str(seed + 1)}, facts))
    return found + _over_seeds(differences_ES, [question.cross for question in asked], rng)


def _over_seeds(differences_ES: FloatArray, facts: list[Fact], rng: np.random.Generator) -> list[Estimate]:
    both = crossed_prompts_seeds(differences_ES, rng=rng)
    test = sign_flip_exact(differences_ES.mean(0))
    found = [
        _estimate("contrast.difference", both.seeds, {"noise": "seeds"}, facts),
        _estimate("contrast.difference", both.combined, {"noise": "items and seeds"}, facts),
    ]
    for name, value in (("p", test.p_value), ("smallest_p", test.smallest_p)):
        found.append(_estimate(f"contrast.{name}", exact(value, test.n, "seed"), {}, facts, units="p"))
    return found


def _estimate(
    quantity: str, interval: Interval, subject: dict[str, str], facts: list[Fact], units: str = "logits"
) -> Estimate:
    return estimate_from(
        interval, measure=NAME, quantity=f"depth.{quantity}", subject=subject, units=units, facts=facts
    )

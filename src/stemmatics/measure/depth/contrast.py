"""A controlled experiment: interaction of the second arm minus that of the first, seed by seed.

Axes: E items (the same events in both arms), S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate, Result
from stemmatics.facts.events import MANIFEST
from stemmatics.math.factorial import FloatArray
from stemmatics.math.rates import mean_interval
from stemmatics.math.seeds import crossed_prompts_seeds, sign_flip_exact
from stemmatics.measure.base import Tables
from stemmatics.measure.depth.estimate import PairEstimator
from stemmatics.measure.depth.needs import ContrastPair
from stemmatics.measure.depth.sign import NAME
from stemmatics.measure.present import ResultBuilder


def contrast_results(pairs: Sequence[ContrastPair], tables: Tables, rng: np.random.Generator) -> list[Result]:
    """Interaction of each trained model, their difference by seed, and over seeds.

    The events of the two arms are the same items in the same order, so the difference is paired by item
    within a seed. Nothing if a model is missing; the refusals if a pair can't be crossed.

    Raises:
        UserError: arms with different numbers of events.
    """
    if not pairs or not all(tables.has(pair.facts.cross) for pair in pairs):
        return []
    estimators = [PairEstimator(pair.facts, tables, rng) for pair in pairs]
    refusals = [refusal for estimator in estimators if (refusal := estimator.refusal()) is not None]
    if refusals:
        return list(refusals)
    interactions = [estimator.stored.events(MANIFEST).cells.interactions for estimator in estimators]
    if len({interactions_E.size for interactions_E in interactions}) > 1:
        raise UserError(
            "the arms of the contrast have different numbers of events",
            "they are paired item by item",
            "Give both manifests the same items in the same order",
        )
    estimates: list[Estimate] = []
    for pair, interactions_E in zip(pairs, interactions, strict=True):
        builder = _builder([pair.facts.cross]).about(
            arm=pair.arm, seed=str(pair.seed), descendant=pair.facts.descendant
        )
        mean = mean_interval(interactions_E, rng=rng, unit="item")
        estimates.append(builder.interval("contrast.interaction", mean))
    num_seeds = len(pairs) // 2
    first_ES, second_ES = (
        np.stack(interactions[start : start + num_seeds], axis=1) for start in (0, num_seeds)
    )
    differences_ES = second_ES - first_ES
    for first, second, difference_E in zip(
        pairs[:num_seeds], pairs[num_seeds:], differences_ES.T, strict=True
    ):
        builder = _builder([first.facts.cross, second.facts.cross])
        mean = mean_interval(difference_E, rng=rng, unit="item")
        estimates.append(builder.interval("contrast.by_seed", mean, seed=str(first.seed)))
    return [*estimates, *_over_seeds(differences_ES, [pair.facts.cross for pair in pairs], rng)]


def _over_seeds(
    differences_ES: FloatArray, facts: Sequence[Fact], rng: np.random.Generator
) -> list[Estimate]:
    builder = _builder(facts)
    over = crossed_prompts_seeds(differences_ES, rng=rng)
    test = sign_flip_exact(differences_ES.mean(0))
    return [
        builder.interval("contrast.difference", over.seeds, noise="seeds"),
        builder.interval("contrast.difference", over.combined, noise="items and seeds"),
        builder.number("contrast.p", test.p_value, n=test.n, unit="seed", units="p"),
        builder.number("contrast.smallest_p", test.smallest_p, n=test.n, unit="seed", units="p"),
    ]


def _builder(facts: Sequence[Fact]) -> ResultBuilder:
    return ResultBuilder(NAME, {}, facts, units="logits")

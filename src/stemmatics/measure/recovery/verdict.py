"""Register, forgetting, or both: what the second pool and the recall items together say of a pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stemmatics.core.results import Estimate, Result
from stemmatics.facts.pinned import Pinned
from stemmatics.math.ranks import spearman_interval
from stemmatics.math.register_agreement import limits_if_varied
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.recovery.needs import PairNames
from stemmatics.measure.recovery.pairs import PairDifferences
from stemmatics.measure.recovery.recall import Recall
from stemmatics.measure.recovery.settings import NAME

FORGETTING, REGISTER, BOTH, UNDETERMINED = "forgetting", "register", "both", "undetermined"
VERDICTS = (FORGETTING, REGISTER, BOTH, UNDETERMINED)


@dataclass(frozen=True)
class Verdict:
    """One of ``VERDICTS``, and the conditions that decided it or that are missing."""

    value: str
    reason: str


def verdict(pair: PairDifferences, recall: Recall | None) -> Verdict:
    """What training did to the descendant.

    *forgetting*: the interval of the recall change lies below 0. *both*: it does, and the second pool
    moves the residual. *register*: recall is equivalent within the margin, and either the second pool
    moves the residual, or the residual is within run noise while the fine-tune lowers the descendant's
    loss (drop above 0). Else *undetermined*; without recall items nothing is determined.
    """
    if recall is None:
        return Verdict(UNDETERMINED, "no recall items were asked")
    moves = pair.moved is not None and pair.moved.excludes(0.0)
    pool = f"the second pool {'changes' if moves else 'does not change'} the residual"
    if pair.moved is None:
        pool = "there is no second pool"
    if recall.change.hi < 0:
        return Verdict(BOTH if moves else FORGETTING, f"recall falls; {pool}")
    if recall.equivalence.verdict == "equivalent":
        value, reason = _recall_kept(pair, pool, moves=moves)
        return Verdict(value, f"recall stays within the margin; {reason}")
    if recall.change.lo > 0:
        return Verdict(UNDETERMINED, "recall rises beyond the margin")
    return Verdict(UNDETERMINED, "recall neither falls nor stays within the margin: more items are needed")


def _recall_kept(pair: PairDifferences, pool: str, *, moves: bool) -> tuple[str, str]:
    """The verdict where recall is equivalent: is what remains of the loss register?"""
    if moves:
        return REGISTER, pool
    if math.isnan(pair.runs.hi):
        return UNDETERMINED, f"{pool}, and run noise is unknown: no arm has two runs"
    if not pair.within_noise:
        return UNDETERMINED, f"{pool}, and the residual exceeds run noise"
    if pair.drop.lo > 0:
        return REGISTER, "the residual is within run noise and the fine-tune lowers the loss"
    return UNDETERMINED, f"{pool}, and the fine-tune is not shown to lower the loss"


def verdict_results(
    corpus: str, pairs: Mapping[PairNames, PairDifferences], recalls: Mapping[PairNames, Recall]
) -> list[Result]:
    """The verdict of each pair that was asked recall items, and how many pairs have each verdict."""
    verdicts = {names: verdict(pair, recalls[names]) for names, pair in pairs.items() if names in recalls}
    categories = [
        recalls[names].results(corpus=corpus).category("verdict", decided.value, decided.reason)
        for names, decided in verdicts.items()
    ]
    if not verdicts:
        return []
    values = [decided.value for decided in verdicts.values()]
    build = ResultBuilder(NAME, {"corpus": corpus}, units="pairs", n=len(values), unit="pair")
    counts = [build.number("verdicts", float(values.count(value)), verdict=value) for value in VERDICTS]
    return [*categories, *counts]


def recall_agreement(
    pinned: Pinned,
    corpus: str,
    pairs: Mapping[PairNames, PairDifferences],
    recalls: Mapping[PairNames, Recall],
    rng: np.random.Generator,
) -> list[Estimate]:
    """Spearman's rho of residual and recall change over pairs, families drawn whole."""
    names = [pair for pair in pairs if pair in recalls]
    if len(names) < 2:
        return []
    interval = spearman_interval(
        [pairs[pair].documents.value for pair in names],
        [recalls[pair].change.value for pair in names],
        [pinned.stemma.family(descendant) for _, descendant in names],
        rng=rng,
        num_resamples=2000,
    )
    build = ResultBuilder(NAME, {"corpus": corpus}, units="rank correlation")
    return [build.interval("recall.spearman", limits_if_varied(interval))]

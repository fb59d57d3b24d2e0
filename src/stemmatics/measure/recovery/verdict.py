"""Register, forgetting, or both: what the two probes say of a pair together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.math.ranks import spearman_interval
from stemmatics.math.register_agreement import limits_if_varied
from stemmatics.measure.present import estimate_from
from stemmatics.measure.recovery.needs import NAME
from stemmatics.measure.recovery.pairs import Pair, PairFound
from stemmatics.measure.recovery.recall import Recall

VERDICTS = ("forgetting", "register", "both", "undetermined")


def verdict(found: PairFound, recall: Recall | None) -> str:
    """One of ``VERDICTS``.

    *forgetting*: the interval of the recall change lies below 0. *both*: it does, and the second pool
    moves the residual. *register*: recall is equivalent within the margin, and either the second pool
    moves the residual, or the residual is within run noise while the fine-tune takes something off the
    descendant (drop above 0). Else *undetermined*; without recall items nothing is determined.
    """
    if recall is None:
        return "undetermined"
    moves = found.moved is not None and found.moved.excludes(0.0)
    if recall.change.hi < 0:
        return "both" if moves else "forgetting"
    back = found.within_noise and found.drop.lo > 0
    if recall.judged.verdict == "equivalent" and (moves or back):
        return "register"
    return "undetermined"


def verdict_estimates(
    corpus: str, pairs: Mapping[Pair, PairFound], recalls: Mapping[Pair, Recall]
) -> list[Estimate]:
    """The verdict of each pair that was asked, and how many there are of each."""
    told = {pair: verdict(found, recalls[pair]) for pair, found in pairs.items() if pair in recalls}
    found = [
        Estimate(
            measure=NAME,
            quantity="recovery.verdict",
            subject={"base": base, "descendant": descendant, "corpus": corpus, "verdict": name},
            value=1.0,
            n=len(recalls[base, descendant].right["recovered"]),
            unit="item",
            facts=tuple(fact.key for fact in recalls[base, descendant].facts.values()),
        )
        for (base, descendant), name in told.items()
    ]
    return found + [
        Estimate(
            measure=NAME,
            quantity="recovery.verdicts",
            subject={"corpus": corpus, "verdict": name},
            value=float(list(told.values()).count(name)),
            n=len(told),
            unit="pair",
            units="pairs",
        )
        for name in VERDICTS
        if told
    ]


def recall_agreement(
    pinned: Pinned,
    corpus: str,
    pairs: Mapping[Pair, PairFound],
    recalls: Mapping[Pair, Recall],
    rng: np.random.Generator,
) -> list[Estimate]:
    """Spearman's rho of residual and recall change over pairs, families drawn whole."""
    both = [pair for pair in pairs if pair in recalls]
    if len(both) < 2:
        return []
    interval = spearman_interval(
        [pairs[pair].residual.value for pair in both],
        [recalls[pair].change.value for pair in both],
        [pinned.stemma.family(name) for _, name in both],
        rng=rng,
        num_resamples=2000,
    )
    return [
        estimate_from(
            limits_if_varied(interval),
            measure=NAME,
            quantity="recovery.recall.spearman",
            subject={"corpus": corpus},
            units="rank correlation",
        )
    ]

"""What the fits report on a damaged base, beside what they report on the descendant.

Axes: Z seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.facts.prior_floor import NOISE_KINDS
from stemmatics.math.prior import PairSums, ratio_of_sums
from stemmatics.measure.prior.estimate import Pair
from stemmatics.measure.prior.needs import NAME
from stemmatics.measure.prior.sums import NONE, Arm, Model

# No level of confidence: the range holds every seed.
_WHOLE = 1.0


def floor_estimates(
    pair: Pair,
    fact: Fact,
    models: Mapping[str, Model],
    damage: Sequence[Mapping[str, Any]],
    estimates: Sequence[Estimate],
) -> list[Estimate]:
    """Ranges over seeds by kind and arm, the noise that it took, and what stands above the damage."""
    found = [_energy(pair)]
    for row in damage:
        sigma = math.nan if row["sigma"] is None else float(row["sigma"])
        subject = {"kind": row["kind"], "seed": str(row["seed"])}
        found.append(replace(_floor(pair, fact, "prior.sigma", sigma, subject), note=row["failure"]))
    for kind in NOISE_KINDS:
        mine = [model for variant, model in models.items() if variant.startswith(f"{kind}.")]
        for arm in pair.arms:
            if mine and all(arm in model.nll for model in mine):
                found += _ranges(pair, fact, kind, arm, mine)
    return found + _labels(pair, [*found, *estimates])


def _energy(pair: Pair) -> Estimate:
    """How much of the final state is its mean: noise times that mean is a bias."""
    said = pair.old.said
    share = said["mean_state_energy"] / said["state_energy"] if said["state_energy"] else math.nan
    return pair.exact("prior.mean_energy", share, "of energy")


def _ranges(pair: Pair, fact: Fact, kind: str, arm: Arm, models: Sequence[Model]) -> list[Estimate]:
    card, sym = [], []
    for model in models:
        sums = PairSums(model.nll[NONE] - pair.old.nll[NONE], model.gain(arm), pair.old.gain(arm))
        card.append(ratio_of_sums(sums.gain_new_D, sums.delta_D))
        sym.append(ratio_of_sums(sums.net_gain, sums.delta_D))
    subject = {"kind": kind, "arm": arm[0], "reading": arm[1]}
    return [
        replace(
            _floor(pair, fact, quantity, float(np.mean(values)), subject),
            lo=min(values),
            hi=max(values),
            level=_WHOLE,
            method="range over seeds",
            n=len(values),
            units="of delta",
        )
        for quantity, values in (("prior.floor.card", card), ("prior.floor.sym", sym))
    ]


def _floor(pair: Pair, fact: Fact, quantity: str, value: float, subject: Mapping[str, str]) -> Estimate:
    plain = pair.exact(quantity, value, "", **subject)
    return replace(plain, n=1, unit="seed", tag="floor", facts=(fact.key,))


def _labels(pair: Pair, estimates: Sequence[Estimate]) -> list[Estimate]:
    """1 where a share's interval lies above the centred floor's range, -1 below it, 0 where they meet.

    The wider interval is taken, with the fits redrawn, where there is one.
    """
    by_id = {one.id: one for one in estimates}
    found = []
    for arm in pair.arms:
        subject = {**pair.subject, "arm": arm[0], "reading": arm[1]}
        floor = by_id.get(_id("prior.floor.sym", {**subject, "kind": "centred"}))
        share = by_id.get(_id("prior.sym_redrawn", subject)) or by_id.get(_id("prior.sym", subject))
        if floor is not None and share is not None:
            found.append(pair.exact("prior.above_floor", _side(share, floor), "", arm=arm[0], reading=arm[1]))
    return found


def _side(share: Estimate, floor: Estimate) -> float:
    if math.isnan(share.lo) or math.isnan(share.hi):
        return math.nan
    return float(share.lo > floor.hi) - float(share.hi < floor.lo)


def _id(quantity: str, subject: Mapping[str, str]) -> str:
    return Estimate(NAME, quantity, subject, math.nan).id

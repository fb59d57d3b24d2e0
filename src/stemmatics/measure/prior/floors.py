"""What the same fits recover of random damage to the base, and how the descendant's shares compare.

Axes: Z seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Category, Estimate, Refusal, Result
from stemmatics.facts.prior import CEILING_ARMS, SHARE_OF_FIT
from stemmatics.facts.prior_floor import CENTRED, NOISE_KINDS
from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.prior import ratio_of_sums
from stemmatics.math.prior.over_damage import over_damage
from stemmatics.measure.base import Tables
from stemmatics.measure.present import ResultBuilder, known
from stemmatics.measure.prior.sums import NONE, Arm, Model, Pair, read_models, refusal_of

# the kind of noise that shares are labelled against: raw noise acts in part as a token bias
LABEL_KIND = CENTRED
ABOVE, BELOW, NOT_DISTINGUISHED = "above damage", "below damage", "not distinguished from damage"
_REASONS = {
    ABOVE: "the interval of the share less the mean share of the damaged bases lies above 0",
    BELOW: "the interval of the share less the mean share of the damaged bases lies below 0",
    NOT_DISTINGUISHED: "the interval of the share less the mean share of the damaged bases contains 0",
}
_LEVEL = 0.95
# no level of confidence: the range holds every seed
_WHOLE = 1.0
Shares = Mapping[Arm, Estimate | Refusal | None]


def floor_results(pair: Pair, fact: Fact, tables: Tables, shares: Shares) -> list[Result]:
    """The matched noise, ranges over seeds by kind and arm, and a label for every share.

    ``shares`` are the net recovered shares by arm that are compared with the floor.
    """
    models = read_models(fact, tables)
    damage = tables.read(fact, "prior_damage").to_pylist()
    builder = replace(pair.builder.with_facts(fact), n=1, unit="seed", tag="floor")
    results: list[Result] = [_mean_energy(pair)]
    for row in damage:
        of_seed = builder.about(kind=row["kind"], seed=str(row["seed"]))
        if row["sigma"] is None:
            results.append(of_seed.refusal("sigma", row["failure"]))
        else:
            results.append(of_seed.number("sigma", float(row["sigma"])))
    floors: dict[Arm, Interval] = {}
    for kind in NOISE_KINDS:
        variants = [row["variant"] for row in damage if row["kind"] == kind and row["variant"] in models]
        damaged = [models[variant] for variant in variants]
        for arm in pair.arms:
            if damaged and all(arm in model.nll for model in damaged):
                recovered, net = _ranges(builder.about(kind=kind), pair.old, damaged, arm)
                results += [recovered, net]
                if kind == LABEL_KIND:
                    floors[arm] = _over_damage(pair, damaged, arm)
    failures = [row["failure"] for row in damage if row["kind"] == LABEL_KIND and row["failure"]]
    why_none = next(iter(failures), "") or refusal_of(fact, tables)
    return results + _labels(pair, shares, floors, why_none)


def _mean_energy(pair: Pair) -> Estimate:
    """Share of the base's final state that is its mean: noise times that mean acts as a bias."""
    metadata = pair.old.metadata
    total = metadata["state_energy"]
    share = metadata["mean_state_energy"] / total if total else math.nan
    return pair.builder.number("mean_energy", share, units="of energy")


def _ranges(
    builder: ResultBuilder, base: Model, damaged: Sequence[Model], arm: Arm
) -> tuple[Estimate, Estimate]:
    """Recovered share and net recovered share of the damaged bases: mean and range over seeds."""
    recovered_Z, net_Z = [], []
    for model in damaged:
        increase_D = model.nll[NONE] - base.nll[NONE]
        recovered_Z.append(ratio_of_sums(model.gain(arm), increase_D))
        net_Z.append(ratio_of_sums(model.gain(arm) - base.gain(arm), increase_D))
    builder = replace(builder.about(arm=arm[0], reading=arm[1]), units="of delta")
    return (
        builder.interval("floor.recovered_share", _range(recovered_Z)),
        builder.interval("floor.net_recovered_share", _range(net_Z)),
    )


def _range(values_Z: Sequence[float]) -> Interval:
    mean = float(np.mean(values_Z))
    return Interval(
        value=mean,
        lo=min(values_Z),
        hi=max(values_Z),
        level=_WHOLE,
        method="range over seeds",
        n=len(values_Z),
        unit="seed",
        smallest_effect=math.nan,
        standard_error=math.nan,
    )


def _over_damage(pair: Pair, damaged: Sequence[Model], arm: Arm) -> Interval:
    """The net recovered share less its mean over the damaged bases, on the same documents."""
    base = pair.old
    if any(not np.array_equal(model.index_D, base.index_D) for model in damaged):
        note = "the damaged bases scored other documents"
        return unknown(math.nan, level=_LEVEL, n=len(damaged), unit="seed", note=note)
    return over_damage(
        pair.net_gain(arm),
        pair.loss_increase,
        np.stack([model.gain(arm) - base.gain(arm) for model in damaged]),
        np.stack([model.nll[NONE] - base.nll[NONE] for model in damaged]),
        groups_D=base.group_D,
        level=_LEVEL,
    )


def _labels(
    pair: Pair, shares: Shares, floors: Mapping[Arm, Interval], why_none: str
) -> list[Estimate | Category | Refusal]:
    """A label for every arm that has a floor, and the difference that it rests on.

    Ceilings have none, nor have fits on less text.
    """
    labels: list[Estimate | Category | Refusal] = []
    for arm in pair.arms:
        share = shares[arm]
        if share is not None and arm[0] not in CEILING_ARMS and arm[1] not in SHARE_OF_FIT:
            builder = pair.builder.about(arm=arm[0], reading=arm[1])
            label = _label(builder, share, floors.get(arm), why_none)
            if isinstance(label, Category):
                labels.append(
                    replace(builder, tag="floor").interval("over_damage", floors[arm], units="of delta")
                )
            labels.append(label)
    return labels


def _label(
    builder: ResultBuilder, share: Estimate | Refusal, difference: Interval | None, why_none: str
) -> Category | Refusal:
    if isinstance(share, Refusal):
        return builder.refusal("label", share.reason)
    if difference is None:
        reason = why_none or "the damaged bases have no such fit"
        return builder.refusal("label", f"the damage floor is unknown: {reason}")
    if not (known(difference.lo) and known(difference.hi)):
        return builder.refusal("label", f"the damage floor is unknown: {difference.note}")
    if not (known(share.lo) and known(share.hi)):
        return builder.refusal("label", f"the interval of the share is unknown: {share.note}")
    if difference.lo > 0:
        label = ABOVE
    elif difference.hi < 0:
        label = BELOW
    else:
        label = NOT_DISTINGUISHED
    return builder.category("label", label, _REASONS[label])

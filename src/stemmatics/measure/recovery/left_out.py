"""Known bases seen as if they were unknown: offset and bar from the other families alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.placing import LEVEL
from stemmatics.math.rates import loss_rates
from stemmatics.math.recovery import NestedCoverage
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.pairs import Pair
from stemmatics.measure.recovery.say import Say


def left_out(losses: Losses, pairs: Sequence[Pair], nested: NestedCoverage) -> list[Estimate]:
    """Each base's loss through each descendant, with the bar that others would have had to trust.

    Also: of the pairs of descendants of different bases, how many are told apart, and how many of
    those stand in the right order. Two are apart where their gap exceeds both offsets' bars and the
    paired document half width, in quadrature: documents are shared, so their noise mostly cancels.
    """
    say = Say(losses)
    kept = [place for place in range(len(pairs)) if math.isfinite(nested.bar_N[place])]
    if not kept:
        return []
    bases = [pairs[place][0] for place in kept]
    truth_M = np.array([losses.loss(losses.arms[base].rebased) for base in bases])
    value_M = truth_M + nested.error_N[kept]
    bar_M = nested.bar_N[kept]
    recovered_NM = np.stack([losses.arms[pairs[place][1]].rebased for place in kept], axis=1)
    whole_M = np.hypot(bar_M, half_widths(losses, recovered_NM))
    found = [
        say.number(
            float(value),
            "left_out",
            {"base": pairs[place][0], "descendant": pairs[place][1]},
            pairs[place][1],
            lo=float(value - bar),
            hi=float(value + bar),
            level=LEVEL,
            method="recovered less left-out offset",
            n=nested.num_pairs,
            unit="pair",
        )
        for place, value, bar in zip(kept, value_M, whole_M, strict=True)
    ]
    first, second = np.triu_indices(len(kept), k=1)
    different = np.array(bases)[first] != np.array(bases)[second]
    first, second = first[different], second[different]
    gap_P, true_gap_P = value_M[second] - value_M[first], truth_M[second] - truth_M[first]
    paired_P = half_widths(losses, recovered_NM[:, second] - recovered_NM[:, first])
    apart_P = np.abs(gap_P) > np.sqrt(bar_M[first] ** 2 + bar_M[second] ** 2 + paired_P**2)
    right_P = apart_P & (gap_P * true_gap_P > 0)
    counts = {"total": first.size, "apart": int(apart_P.sum()), "right": int(right_P.sum())}
    return found + [
        say.number(float(count), f"left_out.{name}", {}, n=len(kept), unit="descendant", units="pairs")
        for name, count in counts.items()
    ]


def half_widths(losses: Losses, nll_NP: FloatArray) -> FloatArray:
    """Half of the jackknife-t interval of each column's rate at the bar's level, nats/byte, [P]."""
    if not nll_NP.shape[1]:
        return np.zeros(0)
    rates = loss_rates(
        nll_NP,
        losses.scores.num_bytes_N,
        rng=np.random.default_rng(0),
        groups=losses.scores.group_N,
        method="jackknife-t",
        level=LEVEL,
    )
    return np.array([(rate.hi - rate.lo) / 2 for rate in rates])

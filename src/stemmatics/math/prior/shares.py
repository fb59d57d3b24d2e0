"""Recovered shares from sums by document, and the split of a joint share.

Axes: D documents.

A share is a ratio of sums over documents (a ratio of means), formed once, never clipped: it may be
negative or above 1. Gains and the loss increase are sums of nats by document, so that a resampling of
documents is a resampling of these arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.statistics import Floats

HOLDS_ZERO = "n/a: the interval of the loss increase includes 0"
IMPROVED = "the descendant improved: no share"


@dataclass(frozen=True, eq=False)
class PairSums:
    """What one correction does to one pair on EVAL; nats summed by document.

    delta_D: cross-entropy of the new model less that of the old one, uncorrected. gain_new_D,
    gain_old_D: cross-entropy that each model's own correction removes.
    """

    delta_D: Floats
    gain_new_D: Floats
    gain_old_D: Floats

    def __post_init__(self) -> None:
        if not len(self.delta_D) == len(self.gain_new_D) == len(self.gain_old_D):
            raise UserError(
                "Old and new model have different documents",
                "sums are paired by document",
                "score both again",
            )

    @property
    def net_gain(self) -> Floats:
        """Numerator of the net recovered share."""
        return self.gain_new_D - self.gain_old_D


def ratio_of_sums(numerator_D: Floats, denominator_D: Floats) -> float:
    """Sum over documents by sum over documents; NaN where the denominator is not above 0."""
    denominator = float(np.sum(denominator_D))
    return float(np.sum(numerator_D)) / denominator if denominator > 0 else float("nan")


@dataclass(frozen=True)
class Shares:
    """S_card and S_sym of the papers; NaN with a reason in ``note`` where they are not defined."""

    recovered_share: float
    net_recovered_share: float
    note: str


def shares(sums: PairSums, delta_interval: tuple[float, float]) -> Shares:
    """Recovered share R_new / delta and net recovered share (R_new - R_old) / delta.

    ``delta_interval`` is that of the loss increase, in any unit: only the signs of its ends are read.
    """
    low, high = delta_interval
    unknown = float("nan")
    if not (np.isfinite(low) and np.isfinite(high)) or low <= 0.0 <= high:
        return Shares(unknown, unknown, HOLDS_ZERO)
    if high < 0.0 or float(np.sum(sums.delta_D)) <= 0.0:
        return Shares(unknown, unknown, IMPROVED)
    recovered = ratio_of_sums(sums.gain_new_D, sums.delta_D)
    return Shares(recovered, ratio_of_sums(sums.net_gain, sums.delta_D), "")


def shapley_split(gain_temperature: Floats, gain_bias: Floats, gain_joint: Floats) -> tuple[Floats, Floats]:
    """Split the joint gain between temperature and bias (Shapley 1953, two players).

    Each part is the mean of its gain alone and of its gain on top of the other; the parts add up to
    the joint gain. Linear, so arrays by document or totals may be given.
    """
    temperature: Floats = 0.5 * (gain_temperature + gain_joint - gain_bias)
    return temperature, gain_joint - temperature

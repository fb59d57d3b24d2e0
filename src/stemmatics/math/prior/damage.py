"""Random damage of a chosen size: the noise on the head that gives a pair's own loss increase.

Axes: V vocabulary, d state width.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.statistics import Floats

_MAX_DOUBLINGS = 60
_MAX_HALVINGS = 60


def centred_noise(noise_Vd: Floats, mean_state_d: Floats) -> Floats:
    """N - (N h) h' / |h|^2: noise that adds nothing to the logits at the mean state h.

    Noise times a state mean that is not zero is a bias on every token, which a bias fit recovers.
    """
    energy = float(mean_state_d @ mean_state_d)
    if energy == 0.0:
        return noise_Vd.copy()
    centred_Vd: Floats = noise_Vd - np.outer(noise_Vd @ mean_state_d, mean_state_d) / energy
    return centred_Vd


def mean_energy_share(mean_state_d: Floats, mean_squared_norm: float) -> float:
    """|mean h|^2 / mean |h|^2, between 0 and 1; NaN where the states are all 0."""
    return float(mean_state_d @ mean_state_d) / mean_squared_norm if mean_squared_norm > 0 else float("nan")


@dataclass(frozen=True)
class Damage:
    """The noise scale and the loss increase there; both NaN where ``failure`` says why there is none."""

    sigma: float
    delta: float
    num_evaluations: int
    failure: str = ""


def match_damage(
    delta_of: Callable[[float], float], target: float, *, start: float, tolerance: float = 0.01
) -> Damage:
    """Find sigma with delta_of(sigma) = target to a relative ``tolerance``; see ``damage_search``."""
    search = damage_search(target, start=start, tolerance=tolerance)
    try:
        sigma = next(search)
        while True:
            sigma = search.send(delta_of(sigma))
    except StopIteration as end:
        damage: Damage = end.value
        return damage


def damage_search(target: float, *, start: float, tolerance: float = 0.01) -> Generator[float, float, Damage]:
    """Doubling, then bisection: yields a sigma, is sent the loss increase there, and returns the damage.

    The loss of a plain head is convex in sigma and the increase at 0 is 0, so there is one root for a target
    above 0, even where small noise lowers the loss at first. A soft-capped head is not convex; where
    no sigma brackets the target, or the bracket closes on a jump, ``failure`` says so and sigma is NaN.
    """
    if not target > 0:
        raise UserError(
            f"The loss increase to match is {target:.6g}",
            "damage cannot lower a loss",
            "use a pair with one above 0",
        )
    if not start > 0:
        raise UserError(f"The first noise scale is {start:.6g}", "it must be above 0", "use about 0.01")
    low, high, num = 0.0, start, 0
    unknown = float("nan")
    for _ in range(_MAX_DOUBLINGS):
        delta, num = (yield high), num + 1
        if not np.isfinite(delta):
            return Damage(unknown, unknown, num, f"the loss is not finite at sigma {high:.6g}")
        if delta >= target * (1.0 - tolerance):
            break
        low, high = high, 2.0 * high
    else:
        return Damage(unknown, unknown, num, f"no sigma up to {low:.6g} reaches the loss increase")
    sigma = high
    for _ in range(_MAX_HALVINGS):
        if abs(delta - target) <= tolerance * target:
            return Damage(sigma, delta, num)
        low, high = (sigma, high) if delta < target else (low, sigma)
        sigma = 0.5 * (low + high)
        delta, num = (yield sigma), num + 1
    return Damage(unknown, unknown, num, f"the loss jumps over the target near sigma {sigma:.6g}")

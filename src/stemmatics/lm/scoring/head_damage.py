"""Noise on a head's output product, scaled to a given loss increase.

Axes: V vocabulary, D width, S supported ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.keys import seed_from
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, nll_sum
from stemmatics.math.prior import Damage, match_damage

# The first guess of the noise, in standard deviations of the head's weights.
_FIRST_GUESS = 0.1
_SQUARE_STEPS = 6
# Tighter than the search's own 1%, so that its first trial succeeds.
_CLOSE = 0.008


def head_noise(shape: tuple[int, int], seed: int) -> Tensor:
    """N, standard normal, (V, D) float32: one draw per seed, the same for all checkpoints of that shape."""
    rng = np.random.default_rng(seed_from(seed, "noise on the head"))
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def centred(noise_VD: Tensor, mean_state_D: NDArray[np.float64]) -> Tensor:
    """N - (N h) h' / |h|^2, which adds nothing at the mean state. Changes and returns ``noise_VD``."""
    energy = float(mean_state_D @ mean_state_D)
    if energy:
        mean_D = torch.from_numpy(mean_state_D.astype(np.float32))
        noise_VD.sub_(torch.outer(noise_VD @ mean_D, mean_D / energy))
    return noise_VD


def damaged(head: LinearHead, noise_SD: Tensor, sigma: float) -> LinearHead:
    """The head with ``sigma * N`` added to its weights, in their precision."""
    noise_SD = noise_SD.to(head.weight.device)
    return replace(head, weight=(head.weight.float() + sigma * noise_SD).to(head.weight.dtype))


def match(
    head: LinearHead, evaluated: Positions, noise_SD: Tensor, target: float, *, guess: float | None = None
) -> Damage:
    """Sigma such that the mean loss on ``evaluated`` rises by ``target`` nats a position, to 1%.

    Each trial is a pass of the head. The loss rises roughly with the square of sigma, which brings the
    search close to the root in a few trials; ``match_damage`` continues from there.
    """
    before = nll_sum(head, evaluated)

    @cache
    def delta_of(sigma: float) -> float:
        return (nll_sum(damaged(head, noise_SD, sigma), evaluated) - before) / evaluated.num_positions

    first = guess or _FIRST_GUESS * float(head.weight.float().std())
    damage = match_damage(delta_of, target, start=_near(delta_of, first, target))
    return replace(damage, num_evaluations=delta_of.cache_info().misses)


def _near(delta_of: Callable[[float], float], first: float, target: float) -> float:
    """A sigma near the root, from steps that assume a quadratic loss, each by at most a factor of 100."""
    sigma = first
    for _ in range(_SQUARE_STEPS):
        rise = delta_of(sigma)
        if not (np.isfinite(rise) and rise > 0):
            return first
        if abs(rise - target) <= _CLOSE * target:
            break
        sigma *= float(np.clip(np.sqrt(target / rise), 0.01, 100.0))
    return sigma

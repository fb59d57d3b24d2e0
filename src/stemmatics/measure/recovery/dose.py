"""Residual along the checkpoints of one run: does more training cost more?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.rates import loss_rate
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import Arms


def dose_estimates(arms: Arms, losses: Losses, rng: np.random.Generator) -> list[Estimate]:
    """The trend along each declared trajectory, and the rank test of its order.

    The slope is a contrast of the re-based losses with weights c_k that add up to 0,
    ``sum of c_k loss_k / sum of c_k^2`` with c_k = k less the mean of k: least squares against the
    checkpoint's position. The base cancels out of it, so it is the slope of the residual. Documents are
    resampled with all checkpoints paired.
    """
    estimates: list[Estimate] = []
    scores = losses.scores
    for trajectory, checkpoints in arms.settings.trajectories.items():
        if len(checkpoints) < 2 or not losses.arms.keys() >= set(checkpoints):
            continue
        weights_K = np.arange(len(checkpoints)) - (len(checkpoints) - 1) / 2
        rebased_KN = np.stack([losses.arms[name].rebased for name in checkpoints])
        contrast_N = weights_K @ rebased_KN / (weights_K**2).sum()
        slope = loss_rate(contrast_N, scores.num_bytes_N, rng=rng, groups=scores.group_N)
        build = losses.results(*checkpoints, trajectory=trajectory)
        estimates.append(build.interval("dose", slope, units="nats/byte per checkpoint"))
        p_value, smallest_p = kendall_p([losses.loss(nll_N) for nll_N in rebased_KN])
        for quantity, value in (("p", p_value), ("smallest_p", smallest_p)):
            estimates.append(
                build.number(
                    f"dose.{quantity}", value, n=len(checkpoints), unit="checkpoint", units="p-value"
                )
            )
    return estimates


def kendall_p(values: Sequence[float]) -> tuple[float, float]:
    """Two-sided exact p of Kendall's test against the order given, and the smallest it can be."""
    order = np.arange(len(values))
    method = "exact" if len(set(values)) == len(values) else "auto"
    p_value = float(stats.kendalltau(order, values, method=method).pvalue)
    return p_value, float(stats.kendalltau(order, order, method="exact").pvalue)

"""Residual along the checkpoints of one run: does more training cost more?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import loss_rate
from stemmatics.math.recovery.dose import with_scatter
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import Arms


def dose_estimates(arms: Arms, losses: Losses, noise: Interval, rng: np.random.Generator) -> list[Estimate]:
    """The trend along each declared trajectory, and the rank test of its order.

    The slope is a contrast of the re-based losses with weights c_k that add up to 0,
    ``sum of c_k loss_k / sum of c_k^2`` with c_k = k less the mean of k: least squares against the
    checkpoint's position. The base cancels out of it, so it is the slope of the residual. Documents are
    resampled with all checkpoints paired; the scatter of checkpoints about the line, in which that of runs
    is, and the known run noise are added (``math.recovery.dose``).
    """
    estimates: list[Estimate] = []
    scores = losses.scores
    for trajectory, checkpoints in arms.settings.trajectories.items():
        if len(checkpoints) < 2 or not losses.arms.keys() >= set(checkpoints):
            continue
        weights_K = np.arange(len(checkpoints)) - (len(checkpoints) - 1) / 2
        weights_K /= (weights_K**2).sum()
        rebased_KN = np.stack([losses.arms[name].rebased for name in checkpoints])
        documents = loss_rate(weights_K @ rebased_KN, scores.num_bytes_N, rng=rng, groups=scores.group_N)
        losses_K = np.array([losses.loss(nll_N) for nll_N in rebased_KN])
        runs_K = [losses.arms[name].num_runs for name in checkpoints]
        slope = with_scatter(documents, losses_K, noise, math.sqrt((weights_K**2 / runs_K).sum()))
        build = losses.results(*checkpoints, trajectory=trajectory)
        estimates.append(build.interval("dose", slope, units="nats/byte per checkpoint"))
        p_value, smallest_p = kendall_p(losses_K.tolist())
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

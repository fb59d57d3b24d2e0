"""Residual along the checkpoints of one run: does more training cost more?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.rates import loss_rate
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.present import estimate_from
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import NAME, Arms


def dose_estimates(arms: Arms, losses: Losses, rng: np.random.Generator) -> list[Estimate]:
    """The trend of each declared trajectory, and the rank test of its order.

    The slope is a contrast of the re-based losses with weights c_k that add up to 0,
    ``sum of c_k loss_k / sum of c_k^2`` with c_k = k less the mean of k: least squares against the
    checkpoint's place. The base cancels out of it, so it is the slope of the residual. Documents are
    resampled with all checkpoints paired.
    """
    found: list[Estimate] = []
    scores = losses.scores
    for name, checkpoints in arms.settings.trajectories.items():
        there = [one for one in checkpoints if one in losses.arms]
        if len(there) < 2 or len(there) < len(checkpoints):
            continue
        places_K = np.arange(len(there)) - (len(there) - 1) / 2
        rebased_KN = np.stack([losses.arms[one].rebased for one in there])
        contrast_N = places_K @ rebased_KN / (places_K**2).sum()
        slope = loss_rate(contrast_N, scores.num_bytes_N, rng=rng, groups=scores.group_N)
        facts = [fact for one in there for fact in losses.arms[one].facts]
        subject = {"trajectory": name, "corpus": losses.corpus}
        found.append(
            estimate_from(
                slope,
                measure=NAME,
                quantity="recovery.dose",
                subject=subject,
                units="nats/byte a checkpoint",
                facts=facts,
            )
        )
        value, smallest = kendall_p([losses.loss(nll_N) for nll_N in rebased_KN])
        for quantity, number in (("p", value), ("smallest_p", smallest)):
            found.append(
                Estimate(
                    measure=NAME,
                    quantity=f"recovery.dose.{quantity}",
                    subject=subject,
                    value=number,
                    n=len(there),
                    unit="checkpoint",
                    units="p-value",
                    facts=tuple(fact.key for fact in facts),
                )
            )
    return found


def kendall_p(values: Sequence[float]) -> tuple[float, float]:
    """Two-sided exact p of Kendall's test against the order given, and the smallest it can be."""
    order = np.arange(len(values))
    method = "exact" if len(set(values)) == len(values) else "auto"
    tested = float(stats.kendalltau(order, values, method=method).pvalue)
    return tested, float(stats.kendalltau(order, order, method="exact").pvalue)

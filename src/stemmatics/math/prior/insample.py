"""Upper bounds: the most that a bias and a temperature can recover on the scored text itself.

Axes: N positions, K columns.

A bias may send every id that is never a target to -inf, so the supremum is the optimum on the support
of the targets. With q the target frequencies and p the model's mean probability on that text, the one
step b_v = log(q_v / p_v) gains

    sum_v q_v log(q_v / p_v) - mean_i log sum_v p_iv q_v / p_v  >=  KL(q, p),

since the mean of logs is at most the log of the mean, which is log 1 (Jensen); and the optimum gains at
least as much. In the reduced form the rest counts as one id.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.math.prior.arms import mean_loss
from stemmatics.math.prior.corrected import Correction, expected_counts
from stemmatics.math.prior.newton import DEFAULT_GAP, Coordinates, Solution, minimise
from stemmatics.math.prior.objective import DEFAULT_CACHE_BYTES, Objective
from stemmatics.math.prior.statistics import Statistics


@dataclass(frozen=True, eq=False)
class InSampleStep:
    """The one-step closed form: gains in nats a position; ``jensen_bound <= gain`` always."""

    correction: Correction
    jensen_bound: float
    gain: float


def in_sample_step(evaluation: Statistics) -> InSampleStep:
    """b_v = log(q_v / p_v) on the scored text, -inf where an id is never a target."""
    num_positions = evaluation.num_positions
    identity = Correction.identity(evaluation.num_columns)
    share_K = evaluation.counts / num_positions
    expected_K, expected_rest = expected_counts(evaluation, identity)
    mean_p_K = expected_K / num_positions
    seen_K = share_K > 0
    bias_K = np.full(evaluation.num_columns, -np.inf)
    bias_K[seen_K] = np.log(share_K[seen_K] / mean_p_K[seen_K])
    bound = float(share_K[seen_K] @ bias_K[seen_K])
    num_in_rest = num_positions - int(evaluation.counts.sum())
    keep_rest = num_in_rest > 0
    if keep_rest:
        # The rest keeps b = 0, so its log ratio is taken from all columns: the same correction.
        rest_bias = float(np.log(num_in_rest / expected_rest))
        bound += num_in_rest / num_positions * rest_bias
        bias_K[seen_K] -= rest_bias
    correction = Correction(1.0, bias_K, keep_rest)
    gain = mean_loss(evaluation, identity) - mean_loss(evaluation, correction)
    return InSampleStep(correction, bound, gain)


def in_sample_optimum(
    evaluation: Statistics,
    *,
    temperature: bool = True,
    gap: float = DEFAULT_GAP,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Solution:
    """The best bias, and temperature, for the scored text itself, with its certificate.

    An upper bound for any bias and temperature where every target is a column; else for any bias on
    the columns. The search starts at the one-step closed form.
    """
    step = in_sample_step(evaluation)
    coordinates = Coordinates.of(
        evaluation, np.ones(evaluation.num_columns, dtype=np.bool_), temperature=temperature
    )
    objective = Objective(evaluation, cache_bytes=cache_bytes)
    return minimise(objective, step.correction, coordinates, gap=gap)

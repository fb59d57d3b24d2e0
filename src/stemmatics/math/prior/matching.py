"""Count matching: the closed form, iterative proportional fitting, and the search over T around it.

Axes: K columns, N positions.

These are published procedures, kept as references. A step of iterative proportional fitting,
b_v += log(n_v / m_v(b)), is undamped and has the bias optimum as its only fixed point; the search over
T refits the bias from 0 inside every trial.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.arms import mean_loss
from stemmatics.math.prior.corrected import Correction, Scorer, expected_counts
from stemmatics.math.prior.rest import (
    MAX_INVERSE_TEMPERATURE,
    MIN_INVERSE_TEMPERATURE,
)
from stemmatics.math.prior.statistics import (
    Floats,
    Mask,
    Statistics,
)

SMOOTHINGS = (0.1, 1.0, 10.0)
MAX_STEPS = 20
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_TEMPERATURE_TOLERANCE = 1e-3


def closed_form_bias(count_V: Floats, expected_V: Floats, smoothing: float) -> Floats:
    """b_v = log((n_v + a m_v) / ((1 + a) m_v)), shape of the counts; a > 0.

    One step of proportional fitting, shrunk to no change as a grows; an id that is never a target
    gets log(a / (1 + a)).
    """
    if smoothing <= 0:
        raise UserError(f"The smoothing is {smoothing}", "an unseen id would get -inf", "use one above 0")
    if np.any(expected_V <= 0):
        raise UserError(
            "A model gives some id no probability at all", "its ratio of counts is undefined", "leave it out"
        )
    bias_V: Floats = np.log((count_V + smoothing * expected_V) / ((1.0 + smoothing) * expected_V))
    return bias_V


def fit_closed_form(fit: Statistics, smoothing: float) -> Correction:
    """The closed form on all columns of ``fit``."""
    identity = Correction.identity(fit.num_columns)
    expected_K, _ = expected_counts(fit, identity)
    return Correction(1.0, closed_form_bias(fit.counts.astype(np.float64), expected_K, smoothing))


@dataclass(frozen=True, eq=False)
class Matched:
    """A count-matching fit; the step is the one with the lowest held-out loss, step 0 included.

    ``capped``: the last allowed step was still the best, so that more steps might have been better.
    ``num_passes`` counts evaluations of the probabilities of all fit rows.
    """

    correction: Correction
    fit_loss: float
    held_out_loss: float
    num_steps: int
    capped: bool
    num_passes: int
    at_edge: bool = False


def fit_proportional(
    fit: Statistics,
    held_out: Statistics,
    free_K: Mask,
    *,
    inverse_temperature: float = 1.0,
    max_steps: int = MAX_STEPS,
) -> Matched:
    """Undamped steps at a fixed temperature, until the held-out loss no longer falls."""
    free_K = free_K & (fit.counts >= 1)
    log_count_K = np.log(fit.counts, where=free_K, out=np.zeros(fit.num_columns))
    best = Correction(inverse_temperature, np.zeros(fit.num_columns))
    best_loss = mean_loss(held_out, best)
    fit_loss, expected_K = _loss_and_expected(fit, best)
    num_steps, capped = 0, True
    while num_steps < max_steps:
        bias_K = best.bias_K.copy()
        bias_K[free_K] += log_count_K[free_K] - np.log(expected_K[free_K])
        trial = Correction(inverse_temperature, bias_K)
        loss = mean_loss(held_out, trial)
        if not loss < best_loss:
            capped = False
            break
        best, best_loss, num_steps = trial, loss, num_steps + 1
        fit_loss, expected_K = _loss_and_expected(fit, best)
    return Matched(best, fit_loss, best_loss, num_steps, capped, num_passes=num_steps + 1)


def _loss_and_expected(fit: Statistics, correction: Correction) -> tuple[float, Floats]:
    """Mean cross-entropy and summed probabilities in one pass."""
    scorer = Scorer(fit, correction)
    total, expected_K = 0.0, np.zeros(fit.num_columns)
    for block in scorer:
        total += float((block.log_z_B - scorer.target_score(block)).sum())
        expected_K += block.p_BK.sum(axis=0, dtype=np.float64)
    return total / fit.num_positions, expected_K


def fit_affine(fit: Statistics, held_out: Statistics, free_K: Mask, *, max_steps: int = MAX_STEPS) -> Matched:
    """Golden-section search over T in [0.25, 4] on the held-out loss, the bias refitted in every trial.

    T = 1 and the ends of the range are trials too; the best of all trials is returned, with the passes
    of all of them.
    """
    trials: dict[float, Matched] = {}

    def loss_at(temperature: float) -> float:
        if temperature not in trials:
            trials[temperature] = fit_proportional(
                fit, held_out, free_K, inverse_temperature=1.0 / temperature, max_steps=max_steps
            )
        return trials[temperature].held_out_loss

    low, high = 1.0 / MAX_INVERSE_TEMPERATURE, 1.0 / MIN_INVERSE_TEMPERATURE
    for temperature in (1.0, low, high):
        loss_at(temperature)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    while high - low > _TEMPERATURE_TOLERANCE:
        # One inner point of each interval is an inner point of the next, so each round costs one fit.
        if loss_at(left) <= loss_at(right):
            high, right = right, left
            left = high - _GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + _GOLDEN * (high - low)
    temperature = min(trials, key=lambda trial: trials[trial].held_out_loss)
    best = trials[temperature]
    return Matched(
        best.correction,
        best.fit_loss,
        best.held_out_loss,
        best.num_steps,
        best.capped,
        sum(matched.num_passes for matched in trials.values()),
        at_edge=temperature in (1.0 / MAX_INVERSE_TEMPERATURE, 1.0 / MIN_INVERSE_TEMPERATURE),
    )

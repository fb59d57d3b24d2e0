"""The fits: bias_K, temperature and joint_K at the FIT optimum and with a chosen penalty.

Axes: K columns, N positions.

One objective for the three arms. Two readings of each: ``optimum`` is that without a penalty (its infimum
where it has no optimum), with its certificate; ``selected`` takes the penalty from a grid, by the loss on
the positions held out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.corrected import Correction, nll_sums
from stemmatics.math.prior.descent import Descent
from stemmatics.math.prior.newton import DEFAULT_GAP, Coordinates, Solution, minimise
from stemmatics.math.prior.objective import DEFAULT_CACHE_BYTES, Objective
from stemmatics.math.prior.statistics import Floats, Mask, Statistics

# In units of 1 / N: a prior of standard deviation 1 / sqrt(strength) nats on each bias.
PENALTY_STRENGTHS = (1000.0, 100.0, 10.0, 1.0, 0.1)


# nats a position; the fit that is selected is brought to the gap of the others afterwards
_PATH_GAP = 1e-5


@dataclass(frozen=True, eq=False)
class FreeIds:
    """Columns whose bias is fitted, and a note if there are fewer than requested."""

    mask_K: Mask
    note: str


def free_ids(fit: Statistics, num_ids: int | None = None) -> FreeIds:
    """The at most ``num_ids`` most frequent targets of the fit part (None: all); ties to the smaller id.

    Ids that are never a target there stay out: their bias would go to minus infinity.
    """
    if num_ids is not None and num_ids < 1:
        raise UserError(f"the number of free ids is {num_ids}", "a bias needs at least one", "set 1 or more")
    count_K = fit.counts
    num_seen = int((count_K >= 1).sum())
    num_free = num_seen if num_ids is None else min(num_ids, num_seen)
    order_K = np.lexsort((fit.ids_K, -count_K))
    mask_K = np.zeros(fit.num_columns, dtype=np.bool_)
    mask_K[order_K[:num_free]] = True
    note = ""
    if num_ids is not None and num_free < num_ids:
        note = f"{num_ids} ids were requested; all {num_free} that are targets in the fit part are free"
    return FreeIds(mask_K, note)


def mean_loss(statistics: Statistics, correction: Correction) -> float:
    """Cross-entropy in nats a position."""
    return float(nll_sums(statistics, correction).sum()) / statistics.num_positions


@dataclass(frozen=True, eq=False)
class Selected:
    """A correction chosen by the held-out part, or one that could be.

    ``penalty`` is inf where all biases are 0; ``temperature`` says whether beta was fitted.
    """

    correction: Correction
    penalty: float
    held_out_loss: float
    temperature: bool = False

    @property
    def biases(self) -> bool:
        """Whether biases were fitted."""
        return bool(np.isfinite(self.penalty))


@dataclass(frozen=True, eq=False)
class Arm:
    """One correction, fitted: (i) the FIT optimum and (ii) the one selected among ``candidates``.

    Candidates stand from the simplest to the freest; none leaves an id without probability. ``num_passes``
    counts those over the fit part for all of them (``Descent.num_passes``).
    """

    optimum: Solution
    candidates: tuple[Selected, ...]
    num_passes: float

    @property
    def selected(self) -> Selected:
        """The candidate with the lowest held-out loss; ties go to the first, which is simpler."""
        return min(self.candidates, key=lambda candidate: candidate.held_out_loss)


@dataclass(frozen=True, eq=False)
class Arms:
    """The three arms of one model."""

    bias: Arm
    temperature: Arm
    joint: Arm
    free: FreeIds


def fit_arms(
    fit: Statistics,
    held_out: Statistics,
    num_ids: int | None = None,
    *,
    gap: float = DEFAULT_GAP,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Arms:
    """Fit bias_K, temperature and joint_K on ``fit``, and select penalties on ``held_out``.

    FIT losses nest to ``gap``: joint <= min(bias, temperature) <= uncorrected. T = 1 and b = 0 are candidates
    of every selection; no penalty is one only where that fit is attained (``Solution.attained``): an infimum
    gives ids of other text no probability.
    """
    free = free_ids(fit, num_ids)
    identity = Correction.identity(fit.num_columns)
    nothing = Selected(identity, np.inf, mean_loss(held_out, identity))
    descent = Descent.of(fit, cache_bytes=cache_bytes)
    by_beta = Coordinates(np.zeros(fit.num_columns, dtype=np.bool_), temperature=True)
    start = descent.warm_start(identity, by_beta, 0.0)
    temperature_fit, _ = descent.minimise(descent.point(start), by_beta, 0.0, gap=gap)
    temperature = Arm(
        temperature_fit,
        (nothing, _candidate(held_out, temperature_fit, np.inf)),
        descent.take_passes(),
    )

    def path(start: Correction, *, temperature: bool) -> tuple[Solution, list[Selected], float]:
        """Fits from the strongest penalty to none, each from the last."""
        free_only, penalised = _coordinates(fit, free.mask_K, temperature=temperature)
        strongest = PENALTY_STRENGTHS[0] / fit.num_positions
        point = descent.point(descent.warm_start(start, penalised, strongest))
        candidates, points = [], []
        for strength in PENALTY_STRENGTHS:
            penalty = strength / fit.num_positions
            solution, point = descent.minimise(
                point, penalised, penalty, gap=max(gap, _PATH_GAP), certify=False
            )
            candidates.append(_candidate(held_out, solution, penalty))
            points.append(point)
        if free_only.gauge:
            point = descent.point(free_only.leave_out(point.correction))
        best, _ = descent.minimise(point, free_only, 0.0, gap=gap)
        # only what may be selected needs the full gap
        first = min(range(len(points)), key=lambda index: candidates[index].held_out_loss)
        penalty = candidates[first].penalty
        solution, _ = descent.minimise(points[first], penalised, penalty, gap=gap)
        candidates[first] = _candidate(held_out, solution, penalty)
        if best.attained:
            candidates.append(_candidate(held_out, best, 0.0))
        return best, candidates, descent.take_passes()

    bias_fit, of_bias, passes = path(identity, temperature=False)
    bias = Arm(bias_fit, (nothing, *of_bias), passes)
    joint_fit, of_both, passes = path(temperature_fit.correction, temperature=True)
    joint = Arm(joint_fit, (*temperature.candidates, *bias.candidates[1:], *of_both), passes)
    return Arms(bias, temperature, joint, free)


def fit_optimum(
    fit: Statistics,
    free_K: Mask,
    *,
    temperature: bool = True,
    penalty: float = 0.0,
    weight_D: Floats | None = None,
    start: Correction | None = None,
    gap: float = DEFAULT_GAP,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Solution:
    """One fit at one penalty; ``weight_D`` weighs the documents. Starts without correction by default."""
    objective = Objective(fit, penalty=penalty, weight_D=weight_D, cache_bytes=cache_bytes)
    coordinates = Coordinates.of(fit, free_K, temperature=temperature, penalty=penalty)
    return minimise(objective, start or Correction.identity(fit.num_columns), coordinates, gap=gap)


def _coordinates(fit: Statistics, free_K: Mask, *, temperature: bool) -> tuple[Coordinates, Coordinates]:
    """Without and with a penalty."""
    penalised = Coordinates.of(fit, free_K, temperature=temperature, penalty=1.0)
    return Coordinates.of(fit, free_K, temperature=temperature), penalised


def _candidate(held_out: Statistics, solution: Solution, penalty: float) -> Selected:
    correction = solution.correction
    loss = mean_loss(held_out, correction)
    return Selected(correction, penalty, loss, solution.coordinates.temperature)

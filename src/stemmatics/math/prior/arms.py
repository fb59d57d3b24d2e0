"""The fits: bias_K, temperature and joint_K at the FIT optimum and with a chosen penalty.

Axes: K columns, N positions.

One objective for the three arms. Two readings of each: ``optimum`` is that without a penalty (its infimum
where it has no optimum), with its certificate; ``selected`` takes the penalty from a grid, by the loss on
the positions held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.corrected import Correction, nll_sums
from stemmatics.math.prior.newton import DEFAULT_GAP, Coordinates, Solution, minimise
from stemmatics.math.prior.objective import DEFAULT_CACHE_BYTES, Objective
from stemmatics.math.prior.statistics import Floats, Mask, Statistics

# In units of 1 / N: a prior of standard deviation 1 / sqrt(strength) nats on each bias.
PENALTY_STRENGTHS = (1000.0, 100.0, 10.0, 1.0, 0.1)
# Nats a position; a choice among penalties needs no more, and the FIT optimum has its own.
_PATH_GAP = 1e-8


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
    wanted = num_seen if num_ids is None else min(num_ids, num_seen)
    order_K = np.lexsort((fit.ids_K, -count_K))
    mask_K = np.zeros(fit.num_columns, dtype=np.bool_)
    mask_K[order_K[:wanted]] = True
    note = ""
    if num_ids is not None and wanted < num_ids:
        note = f"{num_ids} ids were requested; all {wanted} that are targets in the fit part are free"
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

    Candidates stand from the simplest to the freest; none leaves an id without probability.
    """

    optimum: Solution
    candidates: tuple[Selected, ...]

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

    FIT losses nest: joint <= min(bias, temperature) <= uncorrected. The joint fit starts from the
    better of the two, and no step raises the loss. T = 1 and b = 0 are candidates of every selection; no
    penalty is one only where that fit is attained (``Solution.attained``): an infimum gives ids of other
    text no probability.
    """
    free = free_ids(fit, num_ids)
    identity = Correction.identity(fit.num_columns)
    nothing = Selected(identity, np.inf, mean_loss(held_out, identity))
    objective = Objective(fit, cache_bytes=cache_bytes)
    by_beta = Coordinates(np.zeros(fit.num_columns, dtype=np.bool_), temperature=True)
    temperature_fit = minimise(objective, identity, by_beta, gap=gap)
    temperature = Arm(temperature_fit, (nothing, *_candidates(held_out, [(np.inf, temperature_fit)])))

    def path(start: Correction, coordinates: Coordinates) -> list[tuple[float, Solution]]:
        """Fits from the strongest penalty to the weakest, each from the last."""
        fits = []
        for strength in PENALTY_STRENGTHS:
            penalty = strength / fit.num_positions
            solution = minimise(objective.penalised(penalty), start, coordinates, gap=max(gap, _PATH_GAP))
            fits.append((penalty, solution))
            start = solution.correction
        return fits

    by_bias, penalised_bias = _coordinates(fit, free.mask_K, temperature=False)
    fits = path(identity, penalised_bias)
    bias_fit = minimise(objective, fits[-1][1].correction, by_bias, gap=gap)
    bias = Arm(bias_fit, (nothing, *_candidates(held_out, [*fits, (0.0, bias_fit)])))

    by_both, penalised_both = _coordinates(fit, free.mask_K, temperature=True)
    fits = path(temperature_fit.correction, penalised_both)
    starts = (fits[-1][1].correction, bias_fit.correction, temperature_fit.correction)
    start = min(starts, key=lambda correction: mean_loss(fit, by_both.leave_out(correction)))
    joint_fit = minimise(objective, start, by_both, gap=gap)
    both = _candidates(held_out, [*fits, (0.0, joint_fit)])
    joint = Arm(joint_fit, (*temperature.candidates, *bias.candidates[1:], *both))
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


def _candidates(held_out: Statistics, fits: Sequence[tuple[float, Solution]]) -> list[Selected]:
    """What may be selected of fits with their penalties: those that give every id a probability."""
    return [
        Selected(
            solution.correction,
            penalty,
            mean_loss(held_out, solution.correction),
            solution.coordinates.temperature,
        )
        for penalty, solution in fits
        if solution.attained
    ]

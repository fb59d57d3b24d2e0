"""Redrawn fits: totals on EVAL of the selected arms, refitted under random weights on FIT documents.

Axes: G groups of near-duplicates, D documents, R draws, K columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.facts.prior import FITTED_ARMS, FULL, ONE_STEP, SELECTED
from stemmatics.math import prior
from stemmatics.math.prior import Coordinates, Correction, Objective, Solution, Statistics
from stemmatics.probe.prior.arms import Fitted


def draw_rows(
    model: tuple[Statistics, Statistics],
    free_K: NDArray[np.bool_],
    fitted: list[Fitted],
    group_of_fit_D: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    num_draws: int,
    num_refits: int,
) -> list[dict[str, Any]]:
    """Rows of ``prior_draws``: nats of all EVAL positions for each draw of FIT weights.

    ``model`` is the FIT part that the arms were fitted on, and EVAL. The weights follow from ``rng`` alone,
    so that base and descendant, handed the same generator, get the same. Near-duplicates get one weight. The
    penalty is held. The first ``num_refits`` draws are also fitted in full.
    """
    if not max(num_draws, num_refits):
        return []
    weight_RG = prior.bayesian_weights(rng, max(num_draws, num_refits), int(group_of_fit_D.max()) + 1)
    weight_RD = weight_RG[:, group_of_fit_D]
    rows: list[dict[str, Any]] = []
    for fit in fitted:
        if fit.arm in FITTED_ARMS and fit.reading == SELECTED:
            rows += _rows_of_arm(fit, model, free_K, weight_RD, num_refits)
    return rows


def _rows_of_arm(
    selected: Fitted,
    model: tuple[Statistics, Statistics],
    free_K: NDArray[np.bool_],
    weight_RD: NDArray[np.float64],
    num_refits: int,
) -> list[dict[str, Any]]:
    fit, evaluated = model
    penalty = selected.row["penalty"] or 0.0
    solution = _solution(selected.correction, fit, free_K, penalty)
    if solution is None:
        # no correction was selected, so other weights move nothing
        moved_R = np.full(len(weight_RD), _total(evaluated, selected.correction))
        full_R = moved_R[:num_refits]
    else:
        step_RX = prior.refit_one_step(fit, solution, weight_RD, penalty=penalty)
        moved_R = prior.moved_nll_sums(evaluated, solution.correction, step_RX).sum(0)
        full_R = np.empty(0)
        if num_refits:
            full_RX = prior.refit_fully(fit, solution, weight_RD[:num_refits], penalty=penalty)
            full_R = np.array([_total(evaluated, solution.correction, move_X) for move_X in full_RX])
    return [
        {
            "arm": selected.arm,
            "reading": selected.reading,
            "kind": kind,
            "draw": draw,
            "nll_sum": float(value),
        }
        for kind, values_R in ((ONE_STEP, moved_R), (FULL, full_R))
        for draw, value in enumerate(values_R)
    ]


def _total(evaluated: Statistics, correction: Correction, move_X: NDArray[np.float64] | None = None) -> float:
    if move_X is not None:
        correction = correction.moved(correction.vector() + move_X)
    return float(prior.nll_sums(evaluated, correction).sum())


def _solution(
    correction: Correction, fit: Statistics, free_K: NDArray[np.bool_], penalty: float
) -> Solution | None:
    """The selected correction with the coordinates that its fit moved; None where it moved none.

    A coordinate that was fitted is at its starting value with probability 0, so what is at its starting value
    was held fixed: the joint arm may have selected a bias alone, or a temperature alone.
    """
    temperature = correction.inverse_temperature != 1.0
    biases = bool(correction.bias_K.any())
    if not (temperature or biases):
        return None
    moved_K = free_K if biases else np.zeros_like(free_K)
    coordinates = Coordinates.of(fit, moved_K, temperature=temperature, penalty=penalty)
    point = Objective(fit, cache_bytes=0).point(correction)
    # a refit reads the correction and its coordinates only
    unused = prior.Certificate(
        float("nan"), float("nan"), converged=True, num_steps=0, num_passes=0, num_products=0
    )
    return Solution(correction, point.loss, point.value, unused, at_edge=False, coordinates=coordinates)

"""What other FIT documents would have given: totals on EVAL under redrawn fits of the selected arms.

Axes: G groups of near-duplicates, D documents, R draws, K columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.math import prior
from stemmatics.math.prior import Coordinates, Correction, Objective, Solution, Statistics
from stemmatics.probe.prior.arms import FITTED, Fitted


def draws(
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
    for one in fitted:
        if one.arm in FITTED and one.reading == "selected":
            rows += _of_arm(one, model, free_K, weight_RD, num_refits)
    return rows


def _of_arm(
    one: Fitted,
    model: tuple[Statistics, Statistics],
    free_K: NDArray[np.bool_],
    weight_RD: NDArray[np.float64],
    num_refits: int,
) -> list[dict[str, Any]]:
    fit, evaluated = model
    solution = _solution(one.correction, fit, free_K)
    penalty = one.facts["penalty"] or 0.0
    if solution is None:
        # the model as it is was selected: there is nothing that other weights could move
        moved_R = np.full(len(weight_RD), one.nll_D.sum())
        full_R = moved_R[:num_refits]
    else:
        step_RX = prior.refit_one_step(fit, solution, weight_RD, penalty=penalty)
        moved_R = prior.moved_nll_sums(evaluated, solution.correction, step_RX).sum(0)
        full_R = np.empty(0)
        if num_refits:
            full_RX = prior.refit_fully(fit, solution, weight_RD[:num_refits], penalty=penalty)
            full_R = np.array([_total(evaluated, solution.correction, move_X) for move_X in full_RX])
    return [
        {"arm": one.arm, "reading": one.reading, "kind": kind, "draw": draw, "nll_sum": float(value)}
        for kind, values_R in (("one_step", moved_R), ("full", full_R))
        for draw, value in enumerate(values_R)
    ]


def _total(evaluated: Statistics, correction: Correction, move_X: NDArray[np.float64]) -> float:
    return float(prior.nll_sums(evaluated, correction.moved(correction.vector() + move_X)).sum())


def _solution(correction: Correction, fit: Statistics, free_K: NDArray[np.bool_]) -> Solution | None:
    """The selected correction with the coordinates that its fit moved; None where it moved none.

    A fit that moves a coordinate leaves it at its start with probability 0, so what stands at the start
    was held: the joint arm may have selected a bias alone, or a temperature alone.
    """
    temperature = correction.inverse_temperature != 1.0
    biases = bool(correction.bias_K.any())
    if not (temperature or biases):
        return None
    coordinates = Coordinates.of(fit, free_K if biases else np.zeros_like(free_K), temperature=temperature)
    point = Objective(fit, cache_bytes=0).point(correction)
    # only the correction and its coordinates are read; the certificate belongs to the fit itself
    nothing = prior.Certificate(
        float("nan"), float("nan"), converged=True, num_steps=0, num_passes=0, num_products=0
    )
    return Solution(correction, point.loss, point.value, nothing, at_edge=False, coordinates=coordinates)

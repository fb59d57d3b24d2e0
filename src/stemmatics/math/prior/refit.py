"""Intervals with the fit inside: what other FIT documents would have given.

Axes: R replicates, N positions, B rows of a block, K columns, D documents; a *vector* has K + 1
entries, beta first.

The Bayesian bootstrap (Rubin 1981) weighs FIT documents by a flat Dirichlet. Each weighted optimum is
reached by one Newton step from the solution, d_r = -H^-1 g_r, where g_r comes from the gradients by
document. The scored text then needs no pass of its own per replicate: the loss of a position moves by
E_p[a] - a_target + Var_p[a] / 2 with a = beta' z + b', to second order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.corrected import Correction, Scorer, document_gradients
from stemmatics.math.prior.newton import DEFAULT_GAP, Solution, at_edge, minimise
from stemmatics.math.prior.objective import DEFAULT_CACHE_BYTES, Objective
from stemmatics.math.prior.rest import (
    MAX_INVERSE_TEMPERATURE,
    MIN_INVERSE_TEMPERATURE,
)
from stemmatics.math.prior.statistics import (
    IN_REST,
    Floats,
    Statistics,
)
from stemmatics.math.scipy_modules import linalg


def bayesian_weights(rng: np.random.Generator, num_replicates: int, num_documents: int) -> Floats:
    """Flat Dirichlet weights with mean 1, shape (R, D)."""
    return num_documents * rng.dirichlet(np.ones(num_documents), size=num_replicates)


def refit_one_step(
    fit: Statistics,
    solution: Solution,
    weight_RD: Floats,
    *,
    penalty: float = 0.0,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Floats:
    """Displacements of (beta, b) under document weights, one Newton step each, shape (R, K + 1).

    ``solution`` and ``penalty`` must belong together. Coordinates that are fixed in the solution
    stay fixed: ids that are not free or left out, and beta at an end of its range.
    """
    if weight_RD.shape[1] != fit.num_documents:
        raise UserError(
            f"{weight_RD.shape[1]} weights stand for {fit.num_documents} documents",
            "each FIT document needs one",
            "draw the weights for this text",
        )
    correction, coordinates = solution.correction, solution.coordinates
    objective = Objective(fit, penalty=penalty, cache_bytes=cache_bytes)
    point = objective.point(correction)
    moves_beta = coordinates.temperature and not at_edge(correction.inverse_temperature)
    free = np.flatnonzero(np.concatenate([[moves_beta], coordinates.free_K]))
    mass_R = weight_RD @ fit.num_tokens
    gradient_RF = (weight_RD @ document_gradients(fit, correction)[:, free]) / mass_R[:, None]
    gradient_RF += penalty * np.where(free > 0, correction.vector()[free], 0.0)
    hessian_FF = objective.hessian(point, free)
    step_RF = -_solve(hessian_FF, gradient_RF.T, (free > 0) & coordinates.gauge).T
    out = np.zeros((len(weight_RD), fit.num_columns + 1))
    out[:, free] = step_RF
    beta = correction.inverse_temperature
    out[:, 0] = np.clip(beta + out[:, 0], MIN_INVERSE_TEMPERATURE, MAX_INVERSE_TEMPERATURE) - beta
    return out


def _solve(
    hessian_FF: Floats, right_FR: Floats, summed_F: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Floats:
    """H^-1 on the directions whose entries in ``summed_F`` sum to 0 (all directions where none is)."""
    if not summed_F.any():
        return np.asarray(linalg.cho_solve(linalg.cho_factor(hessian_FF), right_FR))
    ones_F = summed_F.astype(np.float64)
    # Adding a multiple of 1 1' changes nothing on that subspace and makes the matrix definite.
    scale = float(np.trace(hessian_FF)) / ones_F.sum() ** 2
    factor = linalg.cho_factor(hessian_FF + scale * np.outer(ones_F, ones_F))
    plain_FR, shift_F = linalg.cho_solve(factor, right_FR), linalg.cho_solve(factor, ones_F)
    return np.asarray(plain_FR - np.outer(shift_F, ones_F @ plain_FR) / (ones_F @ shift_F))


def refit_fully(
    fit: Statistics,
    solution: Solution,
    weight_RD: Floats,
    *,
    penalty: float = 0.0,
    gap: float = DEFAULT_GAP,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Floats:
    """The same displacements by a full fit per row of weights, to check ``refit_one_step``."""
    start = solution.correction
    rows = []
    for weight_D in weight_RD:
        objective = Objective(fit, penalty=penalty, weight_D=weight_D, cache_bytes=cache_bytes)
        refitted = minimise(objective, start, solution.coordinates, gap=gap)
        finite_X = np.isfinite(start.vector())
        moved_X = np.zeros(len(finite_X))
        moved_X[finite_X] = refitted.correction.vector()[finite_X] - start.vector()[finite_X]
        rows.append(moved_X)
    return np.stack(rows)


def moved_nll_sums(statistics: Statistics, correction: Correction, displacement_RX: Floats) -> Floats:
    """Cross-entropy by document under displaced corrections, to second order, nats, shape (D, R).

    ``displacement_RX`` are rows of (beta, b) differences. Three matrix products per block.
    """
    scorer = Scorer(statistics, correction)
    dtype = statistics.dtype
    bias_KR = displacement_RX[:, 1:].T.astype(dtype)
    squared_KR = bias_KR**2
    beta_R = displacement_RX[:, 0]
    target_N = statistics.target_column_N
    out_DR = np.zeros((statistics.num_documents, len(displacement_RX)))
    for block in scorer:
        mean_z_B = block.mean_logit()
        centred_BK = block.logits_BK - mean_z_B.astype(dtype)[:, None]
        weighted_BK = block.p_BK * centred_BK
        variance_z_B = block.logit_variance(mean_z_B, centred_BK, weighted_BK)
        mean_b_BR = (block.p_BK @ bias_KR).astype(np.float64)
        variance_BR = (block.p_BK @ squared_KR).astype(np.float64) - mean_b_BR**2
        variance_BR += beta_R * (beta_R * variance_z_B[:, None] + 2.0 * (weighted_BK @ bias_KR))
        column_B = target_N[block.part]
        target_b_BR = np.where((column_B == IN_REST)[:, None], 0.0, displacement_RX[:, 1 + column_B].T)
        change_BR = beta_R * (mean_z_B - scorer.target_logit(block))[:, None]
        change_BR += mean_b_BR - target_b_BR + 0.5 * variance_BR
        change_BR += (block.log_z_B - scorer.target_score(block))[:, None]
        document_B = statistics.document_N[block.part]
        starts = np.flatnonzero(np.diff(document_B, prepend=-1))
        out_DR[document_B[starts]] += np.add.reduceat(change_BR, starts, axis=0)
    return out_DR


@dataclass(frozen=True)
class RefitCheck:
    """How far one Newton step is from full refits, in the quantity that is reported.

    ``rms_difference`` between the two, and ``sd`` of the full refits: the step is accurate enough where
    the first is small against the second. ``correlation`` is NaN where there is no spread.
    """

    num_refits: int
    rms_difference: float
    sd: float
    correlation: float


def check_refits(one_step_R: Floats, full_R: Floats) -> RefitCheck:
    """Compare a reported quantity under one step and under full refits of the same weights."""
    if len(one_step_R) != len(full_R) or len(full_R) < 2:
        raise UserError("The refits cannot be compared", "two or more of both kinds are needed", "use 20")
    difference_R = one_step_R - full_R
    spread = float(np.std(full_R, ddof=1))
    varied = spread > 0 and float(np.std(one_step_R)) > 0
    return RefitCheck(
        num_refits=len(full_R),
        rms_difference=float(np.sqrt(np.mean(difference_R**2))),
        sd=spread,
        correlation=float(np.corrcoef(one_step_R, full_R)[0, 1]) if varied else float("nan"),
    )

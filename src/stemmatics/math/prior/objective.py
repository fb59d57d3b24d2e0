"""Cross-entropy of corrected logits beta * z + b: value, gradient and Hessian products.

Axes: N positions, B rows of a block, K columns, D documents; a *vector* has K + 1 entries, beta first.

    f(beta, b) = mean_i w_i [log sum_v exp(beta z_iv + b_v) - beta z_it - b_t] + (penalty / 2) |b|^2

is convex: a log-sum-exp of affine functions minus affine ones. Its Hessian is the weighted mean of the
covariance of (z, one-hot) under the corrected model, so a product needs the probabilities P_NK twice:
P y, and P' u. Nothing else of size N x K is formed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.math.prior.corrected import Correction, Scorer, block_scratch, refuse_non_finite
from stemmatics.math.prior.statistics import IN_REST, Floats, Integers, Statistics

DEFAULT_CACHE_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Point:
    """The objective at one correction: value, gradient, and what Hessian products need."""

    correction: Correction
    value: float
    loss: float
    gradient: Floats
    diagonal: Floats
    cross_K: Floats
    expected_K: Floats

    def penalised(self, penalty: float) -> Point:
        """The same point with (penalty / 2) |b|^2 added to the objective: no pass."""
        if not penalty:
            return self
        bias_K = self.correction.finite()[1:]
        added = np.concatenate([[0.0], np.full(len(bias_K), penalty)])
        return replace(
            self,
            value=self.value + 0.5 * penalty * float(bias_K @ bias_K),
            gradient=self.gradient + added * self.correction.finite(),
            diagonal=self.diagonal + added,
        )


class _Kept:
    """Probabilities of all rows under the last correction that was evaluated."""

    def __init__(self, statistics: Statistics) -> None:
        self.p_NK = np.empty((statistics.num_positions, statistics.num_columns), dtype=statistics.dtype)
        self.correction: Correction | None = None


class Objective:
    """Penalised mean cross-entropy. ``weight_D`` weighs documents; its scale does not matter.

    Probabilities are stored between products where they fit into ``cache_bytes``, else recomputed
    block by block, so that memory is bounded for any N.
    """

    def __init__(
        self,
        statistics: Statistics,
        *,
        penalty: float = 0.0,
        weight_D: Floats | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        self.statistics = statistics
        self.penalty = penalty
        weight_N = np.ones(statistics.num_positions) if weight_D is None else weight_D[statistics.document_N]
        self.weight_N: Floats = weight_N / weight_N.sum()
        column_N = statistics.target_column_N
        inside_N = column_N != IN_REST
        self.target_share_K = np.bincount(
            column_N[inside_N], weights=self.weight_N[inside_N], minlength=statistics.num_columns
        )
        size = statistics.num_positions * statistics.num_columns * np.dtype(statistics.dtype).itemsize
        self._kept = _Kept(statistics) if size <= cache_bytes else None

    def penalised(self, penalty: float) -> Objective:
        """The same objective with another penalty; both share the stored probabilities."""
        other = copy.copy(self)
        other.penalty = penalty
        return other

    def point(self, correction: Correction) -> Point:
        """Value, gradient and Hessian pieces: one pass over the rows."""
        num_columns = self.statistics.num_columns
        scorer = Scorer(self.statistics, correction, None if self._kept is None else self._kept.p_NK)
        if self._kept is not None:
            self._kept.correction = correction
        nll_N = np.empty(self.statistics.num_positions)
        centred, moment = block_scratch(self.statistics), block_scratch(self.statistics)
        expected_K, squares_K, cross_K = (np.zeros(num_columns) for _ in range(3))
        slope = curvature = 0.0
        for block in scorer:
            weight_B = self.weight_N[block.part]
            weight_b = weight_B.astype(block.p_BK.dtype)
            nll_N[block.part] = block.log_z_B - scorer.target_score(block)
            mean_B = block.mean_logit()
            slope += float(weight_B @ (mean_B - scorer.target_logit(block)))
            expected_K += weight_b @ block.p_BK
            # Centred before the squares: float32 keeps the digits of a variance this way.
            num_rows = len(weight_B)
            centred_BK = np.subtract(
                block.logits_BK, mean_B.astype(weight_b.dtype)[:, None], out=centred[:num_rows]
            )
            moment_BK = np.multiply(block.p_BK, centred_BK, out=moment[:num_rows])
            cross_K += weight_b @ moment_BK
            curvature += float(weight_B @ block.logit_variance(mean_B, centred_BK, moment_BK))
            squares_K += weight_b @ np.multiply(block.p_BK, block.p_BK, out=moment_BK)
        refuse_non_finite(nll_N, self.statistics)
        bias_K = np.where(np.isfinite(correction.bias_K), correction.bias_K, 0.0)
        loss = float(self.weight_N @ nll_N)
        return Point(
            correction,
            value=loss + 0.5 * self.penalty * float(bias_K @ bias_K),
            loss=loss,
            gradient=np.concatenate([[slope], expected_K - self.target_share_K + self.penalty * bias_K]),
            diagonal=np.concatenate([[curvature], expected_K - squares_K + self.penalty]),
            cross_K=cross_K,
            expected_K=expected_K,
        )

    def hessian_product(self, point: Point, vector: Floats) -> Floats:
        """H v at a point, shape (K + 1,); two matrix-vector products per block."""
        bias_K = vector[1:].astype(self.statistics.dtype)
        pulled_K = np.zeros(self.statistics.num_columns)
        for part, p_BK in self._probabilities(point):
            pulled_K += (self.weight_N[part] * (p_BK @ bias_K)).astype(p_BK.dtype) @ p_BK
        out_K = point.expected_K * vector[1:] - pulled_K
        out_K += vector[0] * point.cross_K + self.penalty * vector[1:]
        out_beta = point.diagonal[0] * vector[0] + point.cross_K @ vector[1:]
        return np.concatenate([[out_beta], out_K])

    def hessian(self, point: Point, free: Integers | None = None) -> Floats:
        """The Hessian of some coordinates, 0 being beta, or of all: shape (F, F), F at most K + 1."""
        free = np.arange(self.statistics.num_columns + 1) if free is None else free
        column_F = free[free > 0] - 1
        some = len(column_F) < self.statistics.num_columns
        inner = np.zeros((len(column_F), len(column_F)))
        for part, p_BK in self._probabilities(point) if len(column_F) else ():
            p_BF = p_BK[:, column_F] if some else p_BK
            weighted_BF = p_BF * self.weight_N[part].astype(p_BF.dtype)[:, None]
            inner -= weighted_BF.T @ p_BF
        index_F = np.arange(len(column_F))
        inner[index_F, index_F] += point.expected_K[column_F] + self.penalty
        if len(column_F) == len(free):
            return inner
        full = np.empty((len(free), len(free)))
        full[1:, 1:] = inner
        full[0, 0] = point.diagonal[0]
        full[0, 1:] = full[1:, 0] = point.cross_K[column_F]
        return full

    def _probabilities(self, point: Point) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Probabilities at a point, stored or recomputed."""
        if self._kept is None or self._kept.correction is not point.correction:
            for block in Scorer(self.statistics, point.correction):
                yield block.part, block.p_BK
            return
        size = self.statistics.block_rows
        for start in range(0, self.statistics.num_positions, size):
            part = slice(start, start + size)
            yield part, self._kept.p_NK[part]

"""Cross-entropy of corrected logits beta * z + b: value, gradient and Hessian products.

Axes: N positions, B rows of a block, K columns, D documents; a *vector* has K + 1 entries, beta first.

    f(beta, b) = mean_i w_i [log sum_v exp(beta z_iv + b_v) - beta z_it - b_t] + (penalty / 2) |b|^2

is convex: a log-sum-exp of affine functions minus affine ones. Its Hessian is the weighted mean of the
covariance of (z, one-hot) under the corrected model, so a product needs the probabilities P_NK twice:
P y, and P' u. Nothing else of size N x K is formed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np

from stemmatics.math.prior.corrected import Correction, refuse_non_finite
from stemmatics.math.prior.row_passes import ArrayPasses, RowPasses
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
        make_passes = statistics.make_passes or ArrayPasses
        self._passes: RowPasses = make_passes(statistics, cache_bytes)

    def penalised(self, penalty: float) -> Objective:
        """The same objective with another penalty; both share the stored probabilities."""
        other = copy.copy(self)
        other.penalty = penalty
        return other

    def point(self, correction: Correction) -> Point:
        """Value, gradient and Hessian pieces: one pass over the rows."""
        sums = self._passes.evaluate(correction, self.weight_N)
        refuse_non_finite(sums.nll_N, self.statistics)
        bias_K = np.where(np.isfinite(correction.bias_K), correction.bias_K, 0.0)
        loss = float(self.weight_N @ sums.nll_N)
        return Point(
            correction,
            value=loss + 0.5 * self.penalty * float(bias_K @ bias_K),
            loss=loss,
            gradient=np.concatenate(
                [[sums.slope], sums.expected_K - self.target_share_K + self.penalty * bias_K]
            ),
            diagonal=np.concatenate([[sums.curvature], sums.expected_K - sums.squares_K + self.penalty]),
            cross_K=sums.cross_K,
            expected_K=sums.expected_K,
        )

    def hessian_product(self, point: Point, vector: Floats) -> Floats:
        """H v at a point, shape (K + 1,); two matrix-vector products per block."""
        pulled_K = self._passes.pull(point.correction, self.weight_N, vector[1:])
        out_K = point.expected_K * vector[1:] - pulled_K
        out_K += vector[0] * point.cross_K + self.penalty * vector[1:]
        out_beta = point.diagonal[0] * vector[0] + point.cross_K @ vector[1:]
        return np.concatenate([[out_beta], out_K])

    def hessian(self, point: Point, free: Integers | None = None) -> Floats:
        """The Hessian of some coordinates, 0 being beta, or of all: shape (F, F), F at most K + 1."""
        free = np.arange(self.statistics.num_columns + 1) if free is None else free
        column_F = free[free > 0] - 1
        inner = np.zeros((len(column_F), len(column_F)))
        if len(column_F):
            inner -= self._passes.gram(point.correction, self.weight_N, column_F)
        index_F = np.arange(len(column_F))
        inner[index_F, index_F] += point.expected_K[column_F] + self.penalty
        if len(column_F) == len(free):
            return inner
        full = np.empty((len(free), len(free)))
        full[1:, 1:] = inner
        full[0, 0] = point.diagonal[0]
        full[0, 1:] = full[1:, 0] = point.cross_K[column_F]
        return full

"""Cross-entropy of corrected logits beta * z + b, its gradient, Hessian products and sums by document.

Axes: N positions, B rows of a block, K columns, D documents; a *vector* has K + 1 entries, beta first.

    f(beta, b) = mean_i w_i [log sum_v exp(beta z_iv + b_v) - beta z_it - b_t] + (penalty / 2) |b|^2

is convex: a log-sum-exp of affine functions minus affine ones. Its Hessian is the weighted mean of the
covariance of (z, one-hot) under the corrected model, so a product needs the probabilities P_NK twice:
P y, and P' u. Nothing else of size N x K is formed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.prior.statistics import IN_REST, Floats, Statistics

DEFAULT_CACHE_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Correction:
    """Logits become ``inverse_temperature * z + bias_K`` on the columns and are only scaled elsewhere.

    ``keep_rest`` is False where the limit b -> -inf is meant for every id that is no column; single
    columns say so by a bias of -inf.
    """

    inverse_temperature: float
    bias_K: Floats
    keep_rest: bool = True

    @classmethod
    def identity(cls, num_columns: int) -> Correction:
        """The model as it is."""
        return cls(1.0, np.zeros(num_columns))

    @property
    def temperature(self) -> float:
        """T = 1 / beta."""
        return 1.0 / self.inverse_temperature

    def vector(self) -> Floats:
        """(beta, b), shape (K + 1,)."""
        return np.concatenate([[self.inverse_temperature], self.bias_K])

    def moved(self, vector: Floats) -> Correction:
        """The same kind of correction at another (beta, b)."""
        return Correction(float(vector[0]), vector[1:].copy(), self.keep_rest)


@dataclass(frozen=True, eq=False)
class Block:
    """One block of rows under a correction: probabilities, log-partition, and what the rest adds.

    Valid until the next block: the memory is used again, since fresh pages cost more than the sums.
    """

    part: slice
    logits_BK: npt.NDArray[Any]
    p_BK: npt.NDArray[Any]
    log_z_B: Floats
    p_rest_B: Floats
    rest_slope_B: Floats
    rest_bend_B: Floats

    def mean_logit(self) -> Floats:
        """Mean of z under the corrected model, (B,), which is d log Z / d beta."""
        inside_B = np.einsum("bk,bk->b", self.p_BK, self.logits_BK).astype(np.float64)
        mean_B: Floats = inside_B + self.p_rest_B * self.rest_slope_B
        return mean_B


class Scorer:
    """Goes over the rows of some statistics under one correction; ``keep_NK`` keeps probabilities."""

    def __init__(
        self, statistics: Statistics, correction: Correction, keep_NK: npt.NDArray[Any] | None = None
    ) -> None:
        self.keep_NK = keep_NK
        self.statistics = statistics
        self.correction = correction
        num = statistics.num_positions
        self.rest_N = (np.full(num, -np.inf), np.zeros(num), np.zeros(num))
        if statistics.rest is not None and correction.keep_rest:
            self.rest_N = statistics.rest.at(correction.inverse_temperature)
        elif not correction.keep_rest and np.any(statistics.target_column_N == IN_REST):
            raise UserError(
                "A correction gives some target no probability",
                "it removes every id that is no column, and a target is one of them",
                "apply it only to the text that it was fitted on",
            )

    def __iter__(self) -> Iterator[Block]:
        """Blocks in order."""
        bias_K = self.correction.bias_K.astype(self.statistics.dtype)
        beta = self.statistics.dtype(self.correction.inverse_temperature)
        scratch_BK = block_scratch(self.statistics)
        for part, logits_BK in self.statistics.blocks():
            rest_B, slope_B, bend_B = (values_N[part] for values_N in self.rest_N)
            p_BK = scratch_BK[: len(logits_BK)] if self.keep_NK is None else self.keep_NK[part]
            np.multiply(logits_BK, beta, out=p_BK)
            np.add(p_BK, bias_K, out=p_BK)
            top_B = np.maximum(p_BK.max(axis=1), rest_B.astype(p_BK.dtype))
            p_BK -= top_B[:, None]
            np.exp(p_BK, out=p_BK)
            top_B = top_B.astype(np.float64)
            in_rest_B = np.exp(rest_B - top_B)
            total_B = p_BK.sum(axis=1, dtype=np.float64) + in_rest_B
            np.divide(p_BK, total_B.astype(p_BK.dtype)[:, None], out=p_BK)
            log_z_B = top_B + np.log(total_B)
            yield Block(part, logits_BK, p_BK, log_z_B, in_rest_B / total_B, slope_B, bend_B)

    def target_logit(self, block: Block) -> Floats:
        """Logits of the targets, (B,) float64."""
        column_B = self.statistics.target_column_N[block.part]
        target_B = block.logits_BK[np.arange(len(column_B)), np.maximum(column_B, 0)].astype(np.float64)
        if self.statistics.target_logit_N is not None:
            outside_B = column_B == IN_REST
            target_B[outside_B] = self.statistics.target_logit_N[block.part][outside_B]
        return target_B

    def target_score(self, block: Block) -> Floats:
        """Corrected logits of the targets, beta * z + b, (B,) float64."""
        column_B = self.statistics.target_column_N[block.part]
        bias_B = np.where(column_B == IN_REST, 0.0, self.correction.bias_K[np.maximum(column_B, 0)])
        score_B: Floats = self.correction.inverse_temperature * self.target_logit(block) + bias_B
        return score_B


def block_scratch(statistics: Statistics) -> npt.NDArray[Any]:
    """Memory for one block, shape (block_rows, K)."""
    return np.empty((statistics.block_rows, statistics.num_columns), dtype=statistics.dtype)


def nll_sums(statistics: Statistics, correction: Correction) -> Floats:
    """Cross-entropy of each document under a correction, nats, summed over its positions, shape (D,)."""
    scorer = Scorer(statistics, correction)
    nll_N = np.empty(statistics.num_positions)
    for block in scorer:
        nll_N[block.part] = block.log_z_B - scorer.target_score(block)
    _refuse_non_finite(nll_N, statistics)
    return np.bincount(statistics.document_N, nll_N, statistics.num_documents).astype(np.float64)


def expected_counts(statistics: Statistics, correction: Correction) -> tuple[Floats, float]:
    """m_v: the summed probability of every column under a correction, (K,), and that of the rest."""
    total_K, total_rest = np.zeros(statistics.num_columns), 0.0
    for block in Scorer(statistics, correction):
        total_K += block.p_BK.sum(axis=0, dtype=np.float64)
        total_rest += float(block.p_rest_B.sum())
    return total_K, total_rest


def _refuse_non_finite(nll_N: Floats, statistics: Statistics) -> None:
    bad_N = ~np.isfinite(nll_N)
    if bad_N.any():
        document = int(statistics.document_N[np.argmax(bad_N)])
        raise UserError(
            f"Document {document} has a loss that is not finite",
            f"{int(bad_N.sum())} of {len(nll_N)} positions overflowed or hold NaN",
            "score the model in float32 or bfloat16",
        )


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


class _Kept:
    """Probabilities of all rows under the last correction that was evaluated."""

    def __init__(self, statistics: Statistics) -> None:
        self.p_NK = np.empty((statistics.num_positions, statistics.num_columns), dtype=statistics.dtype)
        self.correction: Correction | None = None


class Objective:
    """Penalised mean cross-entropy. ``weight_D`` weighs documents; its scale does not matter.

    Probabilities are kept between products where they fit into ``cache_bytes``, else computed again
    block by block, so that memory stays bounded whatever N is.
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
        """The same objective with another penalty; both share one memory of probabilities."""
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
            variance_B = np.einsum("bk,bk->b", moment_BK, centred_BK).astype(np.float64)
            variance_B += block.p_rest_B * (block.rest_bend_B + (block.rest_slope_B - mean_B) ** 2)
            curvature += float(weight_B @ variance_B)
            squares_K += weight_b @ np.multiply(block.p_BK, block.p_BK, out=moment_BK)
        _refuse_non_finite(nll_N, self.statistics)
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

    def hessian(self, point: Point) -> Floats:
        """The whole Hessian, shape (K + 1, K + 1): for many right-hand sides and small K."""
        num_columns = self.statistics.num_columns
        full = np.zeros((num_columns + 1, num_columns + 1))
        for part, p_BK in self._probabilities(point):
            weighted_BK = p_BK * self.weight_N[part].astype(p_BK.dtype)[:, None]
            full[1:, 1:] -= weighted_BK.T @ p_BK
        index_K = np.arange(1, num_columns + 1)
        full[index_K, index_K] += point.expected_K + self.penalty
        full[0, 0] = point.diagonal[0]
        full[0, 1:] = full[1:, 0] = point.cross_K
        return full

    def _probabilities(self, point: Point) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Probabilities at a point, kept or computed again."""
        if self._kept is None or self._kept.correction is not point.correction:
            for block in Scorer(self.statistics, point.correction):
                yield block.part, block.p_BK
            return
        size = self.statistics.block_rows
        for start in range(0, self.statistics.num_positions, size):
            part = slice(start, start + size)
            yield part, self._kept.p_NK[part]


def document_gradients(statistics: Statistics, correction: Correction) -> Floats:
    """Gradient of each document's summed cross-entropy by (beta, b), shape (D, K + 1)."""
    scorer = Scorer(statistics, correction)
    out = np.zeros((statistics.num_documents, statistics.num_columns + 1))
    for block in scorer:
        document_B = statistics.document_N[block.part]
        slope_B = block.mean_logit() - scorer.target_logit(block)
        starts = np.flatnonzero(np.diff(document_B, prepend=-1))
        out[document_B[starts], 0] += np.add.reduceat(slope_B, starts)
        out[document_B[starts], 1:] += np.add.reduceat(block.p_BK, starts, axis=0)
    inside_N = statistics.target_column_N != IN_REST
    np.subtract.at(out, (statistics.document_N[inside_N], statistics.target_column_N[inside_N] + 1), 1.0)
    return out

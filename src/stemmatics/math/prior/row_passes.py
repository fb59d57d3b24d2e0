"""Passes over the rows of statistics, as the objective of a fit needs them.

Axes: N positions, B rows of a block, K columns, F free columns.

``ArrayPasses`` computes with NumPy. Statistics of a model on a GPU name another maker of passes, which
computes the same sums there (``lm.scoring.device_passes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stemmatics.math.prior.corrected import Correction, Scorer, block_scratch
from stemmatics.math.prior.statistics import Floats, Integers, Statistics


@dataclass(frozen=True, eq=False)
class PassSums:
    """What one pass under a correction gives: losses in nats, and weighted sums over rows.

    ``slope`` and ``curvature`` are the first and second derivative by beta of the mean loss, ``expected_K``
    sums w p, ``squares_K`` w p^2 and ``cross_K`` w p (z - mean z).
    """

    nll_N: Floats
    slope: float
    curvature: float
    expected_K: Floats
    squares_K: Floats
    cross_K: Floats


class RowPasses(Protocol):
    """Passes over one set of rows; probabilities of the last evaluated correction may be stored."""

    def evaluate(self, correction: Correction, weight_N: Floats) -> PassSums:
        """One pass under a correction."""

    def pull(self, correction: Correction, weight_N: Floats, vector_K: Floats) -> Floats:
        """P' diag(w) P v, (K,): the probabilities are needed twice."""

    def gram(self, correction: Correction, weight_N: Floats, column_F: Integers) -> Floats:
        """P' diag(w) P of some columns, (F, F)."""


class ArrayPasses:
    """Passes with NumPy, a block that a core's cache holds at a time.

    Probabilities are stored between passes where they fit into ``cache_bytes``, else recomputed block by
    block, so that memory is bounded for any N.
    """

    def __init__(self, statistics: Statistics, cache_bytes: int) -> None:
        self.statistics = statistics
        size = statistics.num_positions * statistics.num_columns * np.dtype(statistics.dtype).itemsize
        shape = (statistics.num_positions, statistics.num_columns)
        self._p_NK = np.empty(shape, dtype=statistics.dtype) if size <= cache_bytes else None
        self._correction: Correction | None = None

    def evaluate(self, correction: Correction, weight_N: Floats) -> PassSums:
        """One pass under a correction; its probabilities are stored if they fit."""
        statistics = self.statistics
        scorer = Scorer(statistics, correction, self._p_NK)
        self._correction = correction
        nll_N = np.empty(statistics.num_positions)
        centred, moment = block_scratch(statistics), block_scratch(statistics)
        expected_K, squares_K, cross_K = (np.zeros(statistics.num_columns) for _ in range(3))
        slope = curvature = 0.0
        for block in scorer:
            weight_B = weight_N[block.part]
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
        return PassSums(nll_N, slope, curvature, expected_K, squares_K, cross_K)

    def pull(self, correction: Correction, weight_N: Floats, vector_K: Floats) -> Floats:
        """P' diag(w) P v; two matrix-vector products per block."""
        vector_k = vector_K.astype(self.statistics.dtype)
        pulled_K = np.zeros(self.statistics.num_columns)
        for part, p_BK in self._probabilities(correction):
            pulled_K += (weight_N[part] * (p_BK @ vector_k)).astype(p_BK.dtype) @ p_BK
        return pulled_K

    def gram(self, correction: Correction, weight_N: Floats, column_F: Integers) -> Floats:
        """P' diag(w) P of some columns."""
        some = len(column_F) < self.statistics.num_columns
        sums_FF = np.zeros((len(column_F), len(column_F)))
        for part, p_BK in self._probabilities(correction):
            p_BF = p_BK[:, column_F] if some else p_BK
            weighted_BF = p_BF * weight_N[part].astype(p_BF.dtype)[:, None]
            sums_FF += weighted_BF.T @ p_BF
        return sums_FF

    def _probabilities(self, correction: Correction) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Probabilities under a correction, stored or recomputed."""
        if self._p_NK is None or self._correction is not correction:
            for block in Scorer(self.statistics, correction):
                yield block.part, block.p_BK
            return
        size = self.statistics.block_rows
        for start in range(0, self.statistics.num_positions, size):
            part = slice(start, start + size)
            yield part, self._p_NK[part]

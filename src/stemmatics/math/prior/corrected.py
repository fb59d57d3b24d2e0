"""Logits under a correction: probabilities by block, and sums by document.

Axes: N positions, B rows of a block, K columns, D documents; a *vector* has K + 1 entries, beta first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.prior.statistics import IN_REST, Floats, Statistics


@dataclass(frozen=True, eq=False)
class Correction:
    """Logits become ``inverse_temperature * z + bias_K`` on the columns and are only scaled elsewhere.

    ``keep_rest`` is False where the limit b -> -inf is meant for every id that is not a column; single
    columns say so by a bias of -inf.
    """

    inverse_temperature: float
    bias_K: Floats
    keep_rest: bool = True

    @classmethod
    def identity(cls, num_columns: int) -> Correction:
        """No correction."""
        return cls(1.0, np.zeros(num_columns))

    @property
    def temperature(self) -> float:
        """T = 1 / beta."""
        return 1.0 / self.inverse_temperature

    @property
    def keeps_all(self) -> bool:
        """Whether every column keeps its probability, and the rest too."""
        return self.keep_rest and bool(np.isfinite(self.bias_K).all())

    def reaches(self, statistics: Statistics) -> bool:
        """Whether every target of a text keeps a probability, so that its loss is finite."""
        column_N = statistics.target_column_N
        outside = bool(np.any(column_N == IN_REST))
        removed_K = np.isneginf(self.bias_K)
        return (self.keep_rest or not outside) and not bool(removed_K[column_N[column_N != IN_REST]].any())

    def vector(self) -> Floats:
        """(beta, b), shape (K + 1,)."""
        return np.concatenate([[self.inverse_temperature], self.bias_K])

    def finite(self) -> Floats:
        """(beta, b) with 0 for ids that are left out, shape (K + 1,)."""
        return np.concatenate(
            [[self.inverse_temperature], np.where(np.isfinite(self.bias_K), self.bias_K, 0.0)]
        )

    def moved(self, vector: Floats) -> Correction:
        """The same kind of correction at another (beta, b)."""
        return Correction(float(vector[0]), vector[1:].copy(), self.keep_rest)


@dataclass(frozen=True, eq=False)
class Block:
    """One block of rows under a correction: probabilities, log-partition, and what the rest adds.

    Valid until the next block: the memory is reused, since fresh pages cost more than the sums.
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

    def logit_variance(
        self, mean_B: Floats, centred_BK: npt.NDArray[Any], moment_BK: npt.NDArray[Any]
    ) -> Floats:
        """Variance of z under the corrected model, (B,), from z - mean and p (z - mean)."""
        inside_B = np.einsum("bk,bk->b", moment_BK, centred_BK).astype(np.float64)
        in_rest_B = self.rest_bend_B + (self.rest_slope_B - mean_B) ** 2
        variance_B: Floats = inside_B + self.p_rest_B * in_rest_B
        return variance_B


class Scorer:
    """Iterates over the rows of statistics under one correction; ``keep_NK`` stores the probabilities."""

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
                "it removes every id that is not a column, and a target is one of them",
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
    refuse_non_finite(nll_N, statistics)
    return np.bincount(statistics.document_N, nll_N, statistics.num_documents).astype(np.float64)


def expected_counts(statistics: Statistics, correction: Correction) -> tuple[Floats, float]:
    """m_v: the summed probability of every column under a correction, (K,), and that of the rest."""
    total_K, total_rest = np.zeros(statistics.num_columns), 0.0
    for block in Scorer(statistics, correction):
        total_K += block.p_BK.sum(axis=0, dtype=np.float64)
        total_rest += float(block.p_rest_B.sum())
    return total_K, total_rest


def refuse_non_finite(nll_N: Floats, statistics: Statistics) -> None:
    """Raise UserError that names the first document whose loss is not finite."""
    bad_N = ~np.isfinite(nll_N)
    if bad_N.any():
        document = int(statistics.document_N[np.argmax(bad_N)])
        raise UserError(
            f"Document {document} has a loss that is not finite",
            f"{int(bad_N.sum())} of {len(nll_N)} positions overflowed or hold NaN",
            "score the model in float32 or bfloat16",
        )


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

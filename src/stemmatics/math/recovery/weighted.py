"""Order statistics and rank correlations of a resample that is given by counts.

Axes: B resamples, N items, P pairs of items.

A bootstrap resample of a few models is a vector of how often each was drawn. What follows reads such counts
instead of repeating rows, so that thousands of resamples are a few matrix products. Counts of 1 give the
statistic itself, so that values and resamples share their code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CHUNK_ELEMENTS = 1 << 21
"""Numbers held at once in a chunk of resamples (16 MiB)."""


def in_chunks(counts_BN: FloatArray, width: int, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """``function`` on blocks of resamples that hold at most ``CHUNK_ELEMENTS`` numbers at ``width`` each."""
    size = max(1, CHUNK_ELEMENTS // max(1, width))
    return np.concatenate(
        [function(counts_BN[start : start + size]) for start in range(0, len(counts_BN), size)]
    )


def quantile(values_BN: FloatArray, counts_BN: FloatArray, q: float) -> FloatArray:
    """Quantile by linear interpolation (Hyndman and Fan's type 7) of values drawn ``counts`` times, [B].

    ``values_BN`` is [N], the same in every resample, or [B, N]. NaN where nothing was drawn.
    """
    order = np.argsort(values_BN, axis=-1, kind="stable")
    sorted_BN = np.broadcast_to(np.take_along_axis(values_BN, order, axis=-1), counts_BN.shape)
    # values that are the same in every resample are sorted once
    in_order_BN = counts_BN[:, order] if order.ndim == 1 else np.take_along_axis(counts_BN, order, axis=1)
    upto_BN = np.cumsum(in_order_BN, axis=1)
    total_B = upto_BN[:, -1] if upto_BN.shape[1] else np.zeros(len(counts_BN))
    rank_B = (total_B - 1) * q
    low_B = np.floor(rank_B)
    result_B = np.full(len(counts_BN), np.nan)
    some = total_B > 0
    if not some.any():
        return result_B

    def drawn_at(rank: FloatArray) -> FloatArray:
        """Value at a rank of the sorted resample, from 0."""
        first = (upto_BN[some] <= rank[some, None]).sum(axis=1)
        return np.take_along_axis(sorted_BN[some], first[:, None], axis=1)[:, 0]

    low = drawn_at(low_B)
    high = drawn_at(np.minimum(low_B + 1, total_B - 1))
    result_B[some] = low + (rank_B - low_B)[some] * (high - low)
    return result_B


def spearman(x_N: FloatArray, y_N: FloatArray, counts_BN: FloatArray) -> FloatArray:
    """Spearman's rho of each resample, ties at their mean rank, [B]; NaN where a side has no order."""
    ranks = []
    for values_N in (x_N, y_N):
        below_NN = (values_N[:, None] < values_N[None, :]).astype(np.float64)
        equal_NN = (values_N[:, None] == values_N[None, :]).astype(np.float64)
        ranks.append(counts_BN @ (below_NN + 0.5 * equal_NN))
    total_B1 = counts_BN.sum(1, keepdims=True)
    x_BN, y_BN = (rank - (counts_BN * rank).sum(1, keepdims=True) / total_B1 for rank in ranks)
    top_B = (counts_BN * x_BN * y_BN).sum(1)
    x_B, y_B = (counts_BN * x_BN**2).sum(1), (counts_BN * y_BN**2).sum(1)
    return _quotient(top_B, x_B, y_B)


def kendall_tau_b(x_N: FloatArray, y_N: FloatArray, counts_BN: FloatArray) -> FloatArray:
    """Kendall's tau-b of each resample, [B]; NaN where a side has no order.

    Two copies of one item are tied on both sides, so tau-b leaves that pair out by itself.
    """
    first, second = np.triu_indices(x_N.size, k=1)
    x_P, y_P = np.sign(x_N[first] - x_N[second]), np.sign(y_N[first] - y_N[second])
    table_P3 = np.stack([x_P * y_P, np.abs(x_P), np.abs(y_P)], axis=1)

    def block(counts: FloatArray) -> FloatArray:
        return np.asarray((counts[:, first] * counts[:, second]) @ table_P3)

    top_B, x_B, y_B = in_chunks(counts_BN, first.size, block).T
    return _quotient(top_B, x_B, y_B)


def _quotient(top_B: FloatArray, x_B: FloatArray, y_B: FloatArray) -> FloatArray:
    """Quotient top / sqrt(x y); NaN where either side does not vary."""
    varies = (x_B > 0) & (y_B > 0)
    result_B: FloatArray = np.divide(
        top_B, np.sqrt(x_B * y_B), out=np.full(top_B.shape, np.nan), where=varies
    )
    return result_B


def pair_counts(
    counts_BN: FloatArray, first_P: npt.NDArray[np.int64], second_P: npt.NDArray[np.int64]
) -> FloatArray:
    """How often each pair of distinct items is in a resample: the product of their counts, [B, P]."""
    product: FloatArray = counts_BN[:, first_P] * counts_BN[:, second_P]
    return product


def family_counts(
    families_N: npt.NDArray[np.generic], num_resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, int]:
    """Resamples of whole families as counts by item [B, N], and how many were dropped.

    As many families are drawn as there are. Resamples that hold a single family are dropped.
    """
    names_F, where_N = np.unique(families_N, return_inverse=True)
    num_families = names_F.size
    counts_BF = rng.multinomial(num_families, np.full(num_families, 1 / num_families), size=num_resamples)
    kept_BF = counts_BF[(counts_BF > 0).sum(axis=1) >= 2]
    return kept_BF[:, where_N].astype(np.float64), num_resamples - len(kept_BF)

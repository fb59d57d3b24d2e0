"""Distributions of divergences by token, kept as integer counts in logarithmic bins.

Counts add up over documents in any order, so a run that was stopped and continued ends with the same table.
Axes: N tokens, D documents, K bins.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.math.intervals import Interval, smallest_effect, unknown
from stemmatics.math.scipy_modules import sparse, stats

FloatArray = npt.NDArray[np.float64]

# nats; smaller values, and zero, are in bin 0
SMALLEST = 1e-9
RATIO = 1.02
# nats; larger values are in the last bin, whose upper end is unknown
LARGEST = 200.0
NUM_BINS = math.ceil(math.log(LARGEST / SMALLEST) / math.log(RATIO)) + 2
# a quantile needs so many tokens beyond it
FEWEST_IN_TAIL = 10


def bin_of(values_N: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bin of each value in nats: 0 below ``SMALLEST``, then by factors of ``RATIO``, one for the rest.

    NaN is not a value: the caller leaves such tokens out.
    """
    x_N = np.asarray(values_N, dtype=np.float64)
    with np.errstate(divide="ignore"):
        steps_N = np.floor(np.log(np.maximum(x_N, 0.0) / SMALLEST) / math.log(RATIO))
    return np.where(x_N < SMALLEST, 0, np.clip(steps_N + 1, 1, NUM_BINS - 1)).astype(np.int64)


def representative(bin_number: int) -> float:
    """The value that stands for a bin: the geometric mean of its ends, so within 1% of every value inside.

    0 for the first bin; infinity for the last, where only the exact maximum is known.
    """
    if bin_number == 0:
        return 0.0
    if bin_number == NUM_BINS - 1:
        return math.inf
    return float(SMALLEST * RATIO ** (bin_number - 0.5))


def quantile(counts_K: npt.ArrayLike, probability: float) -> float:
    """The smallest bin's value at or below which so large a share of the tokens lies.

    NaN where fewer than ``FEWEST_IN_TAIL`` tokens lie beyond it.
    """
    counts = np.asarray(counts_K, dtype=np.int64)
    total = int(counts.sum())
    if total * (1 - probability) < FEWEST_IN_TAIL * (1 - 1e-12):
        return math.nan
    return _at_share(counts, probability)


def quantile_interval(
    counts_DK: npt.ArrayLike, probability: float, *, groups: npt.ArrayLike | None = None, level: float = 0.95
) -> Interval:
    """A quantile over tokens with an interval over documents (Woodruff, JASA 47, 1952).

    The share of tokens at or below the quantile is a ratio of sums over documents, with a linearised standard
    error over ``groups`` of documents and Student's t; the limits are the quantiles at the ends of that
    share's interval. In the tail a few documents hold most of the tokens, so the degrees of freedom follow
    from the kurtosis of the documents' contributions. Past the data, a limit is the smallest or largest value
    seen.

    Args:
        counts_DK: tokens by document and bin, dense or a SciPy sparse array.
        probability: of the quantile.
        groups: label of each document's near-duplicates; every document its own if left out.
        level: of the interval.
    """
    counts: Any = sparse.csr_array(counts_DK)
    num_documents = int(counts.shape[0])
    where_D = (
        np.arange(num_documents) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    )
    tokens_U = np.bincount(where_D, counts.sum(1))
    unit = "document" if tokens_U.size == num_documents else "group of documents"
    total_K = np.asarray(counts.sum(0), dtype=np.int64)
    num_units, total = int((tokens_U > 0).sum()), int(total_K.sum())
    value = quantile(total_K, probability) if total else math.nan
    if math.isnan(value):
        note = f"fewer than {FEWEST_IN_TAIL} tokens beyond it"
        return unknown(value, level=level, n=num_units, unit=unit, note=note)
    if num_units < 2:
        return unknown(value, level=level, n=num_units, unit=unit, note="fewer than two units")
    at = int(np.searchsorted(np.cumsum(total_K), math.ceil(probability * total - 1e-9)))
    below_U = np.bincount(where_D, counts[:, : at + 1].sum(1))
    residual_U = ((below_U - below_U.sum() / total * tokens_U) / total)[tokens_U > 0]
    error = math.sqrt(num_units / (num_units - 1) * float((residual_U**2).sum()))
    degrees = _degrees(residual_U)
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    lo, hi = (_at_share(total_K, probability + sign * reach) for sign in (-1.0, 1.0))
    note = "the upper limit is the largest value seen" if probability + reach >= 1 else ""
    half = (hi - lo) / 2
    quantile_error = half / reach * error if reach else 0.0
    return Interval(
        value, lo, hi, level, "Woodruff, documents", num_units, unit,
        smallest_effect(quantile_error, degrees, level), quantile_error, note,
    )  # fmt: skip


def _at_share(total_K: npt.NDArray[np.int64], share: float) -> float:
    """The value at or below which a share of the tokens lies; past either end the smallest or largest."""
    total = int(total_K.sum())
    rank = min(max(math.ceil(share * total - 1e-9), 1), total)
    return representative(int(np.searchsorted(np.cumsum(total_K), rank)))


def _degrees(residual_U: FloatArray) -> float:
    """Degrees of freedom of a variance estimated from such values: 2 n / (kurtosis - 1), from 2 to n - 1."""
    spread = float((residual_U**2).mean())
    kurtosis = float((residual_U**4).mean()) / spread**2 if spread else 1.0
    most = residual_U.size - 1
    return float(min(max(2 * residual_U.size / (kurtosis - 1), 2.0), most)) if kurtosis > 1 else float(most)

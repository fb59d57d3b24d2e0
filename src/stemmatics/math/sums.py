"""Sums of nats, bytes and tokens, and ratios of sums.

Axes: N documents (or other units), C columns, G labels.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError

FloatArray = npt.NDArray[np.float64]
NATS_PER_BIT = math.log(2.0)


def ratio(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> FloatArray:
    """Elementwise quotient in float64; NaN where the denominator is 0, because the rate is unknown there."""
    top, bottom = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    return np.asarray(np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0))


def nats_per_byte(nll_sum_N: npt.ArrayLike, num_bytes_N: npt.ArrayLike) -> float:
    """Ratio of sums in nats per byte: all nats over all bytes, so documents count by their length.

    NaN where there are no bytes. ``num_bytes_N`` may as well be tokens; the unit follows.
    """
    nll_N, bytes_N = np.asarray(nll_sum_N, dtype=np.float64), np.asarray(num_bytes_N, dtype=np.float64)
    if nll_N.shape != bytes_N.shape:
        raise UserError(
            f"{nll_N.shape} loss sums but {bytes_N.shape} byte counts",
            "a rate needs one count for each sum",
            "take both from the same rows",
        )
    return float(ratio(nll_N.sum(), bytes_N.sum()))


def nats_from_bits(bits: npt.ArrayLike) -> FloatArray:
    """Bits to nats: multiply by ln 2."""
    return np.asarray(bits, dtype=np.float64) * NATS_PER_BIT


def sum_by_label(
    labels_N: npt.ArrayLike, values_NC: npt.ArrayLike
) -> tuple[npt.NDArray[np.generic], FloatArray]:
    """Add up rows that carry the same label, in float64.

    Args:
        labels_N: one label a row (integers or strings).
        values_NC: [N, ...] values; trailing axes are kept.

    Returns:
        The distinct labels in sorted order [G], and the sums [G, ...].
    """
    labels, values = np.asarray(labels_N), np.asarray(values_NC, dtype=np.float64)
    if labels.ndim != 1 or values.shape[:1] != labels.shape:
        raise UserError(
            f"{labels.shape} labels for {values.shape} values",
            "every row needs exactly one label",
            "give one label a row",
        )
    distinct_G, where_N = np.unique(labels, return_inverse=True)
    sums = np.zeros((distinct_G.size, *values.shape[1:]))
    np.add.at(sums, where_N, values)
    return distinct_G, sums

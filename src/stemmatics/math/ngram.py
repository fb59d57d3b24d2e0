"""Interpolated modified Kneser-Ney n-gram model on integer ids.

Sources: Kneser and Ney (1995); Chen and Goodman (1999), section 3 and equation 26 (three discounts
an order, estimated in closed form); Heafield et al. (2013), section 3 (adjusted counts: n-grams
that begin with the prefix keep their raw counts, since nothing can stand before them).

An n-gram is interned as (id of its first n-1 ids, last id), so a code is never larger than the number
of training tokens times the vocabulary, whatever the order: it fits 64 bits, the n-gram itself might not.

Axes: T tokens, V vocabulary (the prefix is the extra id V), G n-grams of one order, C contexts of
one order (the n-grams one shorter; at order 2 the ids themselves).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DEFAULT_ORDER = 5
# Where too few n-grams occur 1 to 4 times to estimate them: the values KenLM falls back to.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
ABSENT = -1


@dataclass(frozen=True)
class _Order:
    """One order's share of the model: ``discounted / total + backoff * (order below)``.

    ``codes`` and ``discounted`` have an entry an n-gram (G), ``total`` and ``backoff`` one a context (C).
    """

    codes: Ints
    discounted: Floats
    total: Floats
    backoff: Floats
    discounts: tuple[float, float, float]


@dataclass(frozen=True)
class KneserNey:
    """A fitted model. Build it with :meth:`fit`."""

    vocab_size: int
    orders: tuple[_Order, ...]

    @classmethod
    def fit(cls, sequences: Iterable[ArrayLike], vocab_size: int, order: int = DEFAULT_ORDER) -> Self:
        """Count n-grams up to ``order`` and estimate the discounts.

        Args:
            sequences: documents as ids in [0, vocab_size), without a prefix; one prefix is put
                before each, as a language model's BOS, and never predicted.
            vocab_size: number of ids that can be predicted.
            order: longest n-gram, at least 1.

        Raises:
            ValueError: no token at all, an id out of range, or ``order`` below 1.
        """
        if order < 1:
            message = f"the order is {order}; it must be at least 1"
            raise ValueError(message)
        ids_T, age_T = _joined(sequences, vocab_size)
        if len(ids_T) == np.count_nonzero(age_T == 0):
            message = "there is no token to count"
            raise ValueError(message)
        orders: list[_Order] = []
        grams = _unique_grams(np.zeros_like(ids_T), ids_T, age_T, 1, vocab_size)
        num_contexts = 1
        # Documents may be too short to hold n-grams of the full order.
        while len(grams.codes):
            n = len(orders) + 1
            counts_G = grams.counts
            if n < order:
                context_T = ids_T if n == 1 else grams.at_token
                longer = _unique_grams(_shifted(context_T), ids_T, age_T, n + 1, vocab_size)
                # The suffix of each longer n-gram: how many distinct ids stand before this one.
                num_before_G = np.bincount(grams.at_token[longer.first], minlength=len(grams.codes))
                counts_G = np.where(age_T[grams.first] == n - 1, grams.counts, num_before_G)
            orders.append(_estimate(grams.codes, counts_G, num_contexts, vocab_size))
            if n == order:
                break
            num_contexts = vocab_size + 1 if n == 1 else len(grams.codes)
            grams = longer
        return cls(vocab_size, tuple(orders))

    def log_probs(self, sequence: ArrayLike) -> Floats:
        """Natural log-probability of each id given the prefix and the ids before it, float64[T].

        The probabilities sum to 1 over the vocabulary in every context. An id that was not seen in
        training gets its share of the lowest order's uniform mass.

        Raises:
            ValueError: an id outside [0, vocab_size).
        """
        ids_T, _ = _joined([sequence], self.vocab_size)
        probability_T = np.full(len(ids_T), 1.0 / self.vocab_size)
        context_T = np.zeros_like(ids_T)
        for n, order in enumerate(self.orders, start=1):
            gram_T = _look_up(order.codes, context_T, ids_T, self.vocab_size)
            total_T = _at(order.total, context_T)
            # An unseen context has no distribution of its own: the lower order is used.
            seen_T = total_T > 0
            direct_T = np.divide(
                _at(order.discounted, gram_T), total_T, out=np.zeros_like(total_T), where=seen_T
            )
            probability_T *= np.where(seen_T, _at(order.backoff, context_T), 1.0)
            probability_T += direct_T
            context_T = _shifted(ids_T if n == 1 else gram_T)
        result: Floats = np.log(probability_T[1:])
        return result


@dataclass(frozen=True)
class _Grams:
    """The distinct n-grams of one order: code, position of the first, and count of each (G).

    ``at_token`` (T) says which of them ends at each token, else ABSENT.
    """

    codes: Ints
    first: Ints
    counts: Ints
    at_token: Ints


def _joined(sequences: Iterable[ArrayLike], vocab_size: int) -> tuple[Ints, Ints]:
    """All sequences in one array, a prefix before each, and every position's distance to its prefix."""
    parts, ages = [], []
    for sequence in sequences:
        ids = np.asarray(sequence)
        if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
            message = f"a sequence must be one row of whole numbers, not {ids.dtype}{list(ids.shape)}"
            raise ValueError(message)
        if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
            outside = ids.min() if ids.min() < 0 else ids.max()
            message = f"id {outside} lies outside the vocabulary of {vocab_size}"
            raise ValueError(message)
        parts += [np.array([vocab_size], dtype=np.int64), ids.astype(np.int64)]
        ages.append(np.arange(ids.size + 1))
    if not parts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    return np.concatenate(parts), np.concatenate(ages)


def _shifted(ids_T: Ints) -> Ints:
    """The values one position earlier."""
    return np.concatenate([[ABSENT], ids_T[:-1]])


def _unique_grams(context_T: Ints, ids_T: Ints, age_T: Ints, n: int, vocab_size: int) -> _Grams:
    """Intern the n-grams that end in a text token and do not reach before their prefix."""
    ends = np.flatnonzero(age_T >= max(n - 1, 1))
    codes = context_T[ends] * (vocab_size + 1) + ids_T[ends]
    codes_G, first_G, inverse, counts_G = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    gram_T = np.full(len(ids_T), ABSENT)
    gram_T[ends] = inverse
    return _Grams(codes_G, ends[first_G], counts_G, gram_T)


def _look_up(codes_G: Ints, context_T: Ints, ids_T: Ints, vocab_size: int) -> Ints:
    """The n-gram's number at each position, ABSENT where context or n-gram did not occur."""
    codes_T = context_T * (vocab_size + 1) + ids_T
    index_T = np.searchsorted(codes_G, codes_T)
    is_known_T = codes_G[np.minimum(index_T, len(codes_G) - 1)] == codes_T
    return np.where(is_known_T & (context_T != ABSENT), index_T, ABSENT)


def _at(values: Floats, index_T: Ints) -> Floats:
    """``values[index]``, 0 where ABSENT."""
    result: Floats = np.where(index_T == ABSENT, 0.0, values[index_T])
    return result


def _estimate(codes_G: Ints, counts_G: Ints, num_contexts: int, vocab_size: int) -> _Order:
    discounts = _discounts(counts_G)
    discount_G: Floats = np.array([0.0, *discounts])[np.minimum(counts_G, 3)]
    context_G = codes_G // (vocab_size + 1)
    weights_G = counts_G.astype(np.float64)
    total_C = np.asarray(np.bincount(context_G, weights=weights_G, minlength=num_contexts), np.float64)
    removed_C = np.bincount(context_G, weights=discount_G, minlength=num_contexts)
    backoff_C = np.divide(removed_C, total_C, out=np.zeros_like(removed_C), where=total_C > 0)
    return _Order(codes_G, weights_G - discount_G, total_C, backoff_C, discounts)


def _discounts(counts_G: Ints) -> tuple[float, float, float]:
    """Discounts of counts 1, 2, and 3 or more (Chen and Goodman 1999, equation 26)."""
    n1, n2, n3, n4 = (float(np.count_nonzero(counts_G == k)) for k in (1, 2, 3, 4))
    if min(n1, n2, n3) == 0:
        return FALLBACK_DISCOUNTS
    base = n1 / (n1 + 2 * n2)
    discounts = (base, 2 - 3 * base * n3 / n2, 3 - 4 * base * n4 / n3)
    # A discount of 0 could leave an unseen id without mass, and none may exceed its count.
    if all(0 < discount <= k for k, discount in enumerate(discounts, start=1)):
        return discounts
    return FALLBACK_DISCOUNTS

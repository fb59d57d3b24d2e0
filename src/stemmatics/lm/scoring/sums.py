"""Inputs and outputs of the scoring engine.

Axes: T tokens of one document.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

TOKEN_CLASSES = ("word_start", "inside_word", "number", "punctuation", "white_space", "non_ascii")
POSITION_EDGES = (64, 256, 1024, 4096)
POSITION_BINS = ("0-63", "64-255", "256-1023", "1024-4095", "4096+")


@dataclass(frozen=True, slots=True)
class TokenizedDocument:
    """One record's tokens, without special tokens.

    ``starts`` and ``ends`` are byte offsets in the source text whose differences add up to its
    bytes; ``classes`` holds indices of ``TOKEN_CLASSES``. ``scored_mask`` marks the tokens to score
    (the replies of a rendered conversation); None means all.
    """

    index: int
    doc_id: str
    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    classes: NDArray[np.int8]
    register: str | None = None
    flags: tuple[str, ...] = ()
    scored_mask: NDArray[np.bool_] | None = None

    def first_tokens(self, num_tokens: int) -> Self:
        """The same document, truncated after ``num_tokens``."""
        return self.tokens(slice(num_tokens))

    def tokens(self, part: slice) -> Self:
        """The same document with some of its tokens."""
        arrays = [
            "ids",
            "starts",
            "ends",
            "classes",
            *(["scored_mask"] if self.scored_mask is not None else []),
        ]
        return replace(self, **{name: getattr(self, name)[part] for name in arrays})


class Part(NamedTuple):
    """A document's sums over the tokens of one bin."""

    axis: str
    bin: str
    nll_sum: float
    num_tokens: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class DocumentSums:
    """A document's sums: nats in float64, scored tokens, and the bytes of the scored tokens.

    ``excluded_nll_sum`` is the sum of (log-sum-exp over all ids - log-sum-exp over the support),
    0 under full support. ``num_outside_support`` counts targets outside the support.
    """

    index: int
    doc_id: str
    nll_sum: float
    num_tokens: int
    num_bytes: int
    excluded_nll_sum: float = 0.0
    num_outside_support: int = 0
    flags: tuple[str, ...] = ()
    register: str | None = None
    parts: tuple[Part, ...] = ()


@dataclass(slots=True)
class TokenScores:
    """One document's values by token, in text order; arrays are NaN or -1 where not scored.

    ``extra`` has the requested outputs: ``entropy`` (nats), ``top_1`` (ids), ``hidden`` (inputs of
    the head, one row per token).
    """

    document: TokenizedDocument
    scored: NDArray[np.bool_]
    nll: NDArray[np.float64]
    excluded_nll: NDArray[np.float64] | None = None
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def log_probability(self) -> NDArray[np.float64]:
        """Natural logarithm of each token's probability over all ids."""
        return -self.nll


def _add_up(
    axis: str,
    names: tuple[str, ...],
    bin_of_T: NDArray[Any],
    nll_T: NDArray[np.float64],
    bytes_T: NDArray[np.int64],
) -> list[Part]:
    nll = np.bincount(bin_of_T, weights=nll_T, minlength=len(names))
    num_tokens = np.bincount(bin_of_T, minlength=len(names))
    num_bytes = np.bincount(bin_of_T, weights=bytes_T, minlength=len(names))
    return [
        Part(axis, name, float(nll[i]), int(num_tokens[i]), int(num_bytes[i]))
        for i, name in enumerate(names)
        if num_tokens[i]
    ]


def _frequency_parts(
    counts_T: NDArray[np.int64], nll_T: NDArray[np.float64], bytes_T: NDArray[np.int64]
) -> list[Part]:
    """Bins are decades of the id's count: 0, 1-9, 10-99, ..."""
    # Compared with integer edges, since log10 of a power of ten may round down.
    edges = 10 ** np.arange(19, dtype=np.int64)
    decade_T = np.searchsorted(edges, counts_T, side="right")
    names = ("0", *(f"{10**d}-{10 ** (d + 1) - 1}" for d in range(int(decade_T.max(initial=0)))))
    return _add_up("frequency", names, decade_T, nll_T, bytes_T)


def add_up(
    scores: TokenScores,
    *,
    outside_T: NDArray[np.bool_] | None = None,
    frequencies_V: NDArray[np.int64] | None = None,
    flags: tuple[str, ...] = (),
) -> DocumentSums:
    """Sum one document's token values, in total and by token class, position and frequency.

    Args:
        scores: the values by token.
        outside_T: targets outside the support.
        frequencies_V: how often each id occurs in the corpus.
        flags: added to the document's own; ``non_finite`` is added here, and such a document's
            sums are NaN.
    """
    document = scores.document
    keep = scores.scored
    nll_T = scores.nll[keep]
    bytes_T = (document.ends - document.starts)[keep]
    excluded = scores.excluded_nll
    excluded_sum = 0.0 if excluded is None else float(excluded[keep].sum())
    all_flags = [*document.flags, *flags]
    nll_sum = float(nll_T.sum())
    if not (np.isfinite(nll_sum) and np.isfinite(excluded_sum)):
        nll_sum = excluded_sum = float("nan")
        all_flags.append("non_finite")
    parts = [
        *_add_up("token_class", TOKEN_CLASSES, document.classes[keep], nll_T, bytes_T),
        *_add_up(
            "position",
            POSITION_BINS,
            np.searchsorted(POSITION_EDGES, document.starts[keep], side="right"),
            nll_T,
            bytes_T,
        ),
    ]
    if frequencies_V is not None:
        parts += _frequency_parts(frequencies_V[document.ids[keep]], nll_T, bytes_T)
    return DocumentSums(
        index=document.index,
        doc_id=document.doc_id,
        nll_sum=nll_sum,
        num_tokens=len(nll_T),
        num_bytes=int(bytes_T.sum()),
        excluded_nll_sum=excluded_sum,
        num_outside_support=0 if outside_T is None else int(outside_T[keep].sum()),
        flags=tuple(dict.fromkeys(all_flags)),
        register=document.register,
        parts=tuple(parts),
    )

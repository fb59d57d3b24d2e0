"""Logits and targets of one model on one set of positions, as fits need them.

Axes: N positions, B rows of a block, K columns (token ids that may be corrected), V vocabulary,
J inverse temperatures, D documents.

Two forms, one type. *Dense*: every id of the vocabulary is a column. *Reduced*: K columns are kept,
and of all other ids only log sum exp(beta * z) at a few beta, interpolated between them. Logits may
be shifted by any constant per position, as long as columns, target and rest share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.prior.rest import Rest, node_inverse_temperatures

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

IN_REST = -1
_BLOCK_ELEMENTS = 1 << 18


class RowSource(Protocol):
    """Rows of logits: an array, a memory-mapped file, or anything that makes rows on demand."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(positions, columns)."""

    @property
    def dtype(self) -> Any:
        """The storage type; float64 is computed in float64, all else in float32."""

    def __getitem__(self, rows: slice, /) -> npt.NDArray[Any]:
        """Logits of a range of rows, shape (B, K)."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """One model on one set of positions.

    Args:
        logits_NK: logits of the K columns, float16, float32 or float64.
        target_column_N: the target's column, or ``IN_REST`` where it is not a column.
        document_N: document index of each position, from 0; positions of a document are adjacent.
        ids_K: token id of each column.
        num_documents: length of per-document results; documents without positions count 0.
        target_logit_N: the target's logit; read only where the target is in the rest.
        rest: the other ids; None in the dense form.
        make_passes: makes the passes of a fit over these rows, given the statistics and the bytes that may
            be stored (``row_passes.RowPasses``); None for NumPy.
    """

    logits_NK: RowSource
    target_column_N: Integers
    document_N: Integers
    ids_K: Integers
    num_documents: int
    target_logit_N: Floats | None = None
    rest: Rest | None = None
    first_row: int = field(default=0)
    make_passes: Callable[[Statistics, int], Any] | None = None

    def __post_init__(self) -> None:
        num_columns = self.logits_NK.shape[1]
        target_N, document_N = self.target_column_N, self.document_N
        problem = ""
        if not len(target_N):
            problem = "there is no position"
        elif len(document_N) != len(target_N) or self.logits_NK.shape[0] < self.first_row + len(target_N):
            problem = "logits, targets and documents differ in length"
        elif len(self.ids_K) != num_columns:
            problem = f"{len(self.ids_K)} ids stand for {num_columns} columns"
        elif target_N.min() < IN_REST or target_N.max() >= num_columns:
            problem = f"a target's column lies outside 0..{num_columns - 1}"
        elif document_N.min() < 0 or document_N.max() >= self.num_documents:
            problem = f"a document's index lies outside 0..{self.num_documents - 1}"
        elif np.any(np.diff(document_N) < 0):
            problem = "positions are not in the order of their documents"
        elif np.any(target_N == IN_REST) and (self.rest is None or self.target_logit_N is None):
            problem = "a target is not a column, and its logit or the rest is missing"
        if problem:
            raise UserError("The statistics for a fit are inconsistent", problem, "score the model again")

    @classmethod
    def dense(cls, logits_NV: RowSource, target_N: Integers, document_N: Integers) -> Self:
        """Every id of the vocabulary is a column."""
        ids_V = np.arange(logits_NV.shape[1], dtype=np.int64)
        num_documents = int(document_N.max()) + 1 if len(document_N) else 0
        return cls(logits_NV, target_N.astype(np.int64), document_N.astype(np.int64), ids_V, num_documents)

    @property
    def num_positions(self) -> int:
        """N."""
        return len(self.target_column_N)

    @property
    def num_columns(self) -> int:
        """K."""
        return int(self.logits_NK.shape[1])

    @property
    def dtype(self) -> type[np.float32 | np.float64]:
        """The type that probabilities are computed in; sums are always float64."""
        return np.float64 if self.logits_NK.dtype == np.float64 else np.float32

    @cached_property
    def counts(self) -> Integers:
        """How often each column is the target."""
        inside_N = self.target_column_N[self.target_column_N != IN_REST]
        return np.bincount(inside_N, minlength=self.num_columns).astype(np.int64)

    @cached_property
    def num_tokens(self) -> Integers:
        """Positions of each document."""
        return np.bincount(self.document_N, minlength=self.num_documents).astype(np.int64)

    def rows(self, start: int, stop: int) -> Statistics:
        """The positions start..stop-1, without a copy of the logits."""
        part = slice(start, stop)
        return replace(
            self,
            target_column_N=self.target_column_N[part],
            document_N=self.document_N[part],
            target_logit_N=None if self.target_logit_N is None else self.target_logit_N[part],
            rest=None if self.rest is None else Rest(self.rest.log_z_NJ[part]),
            first_row=self.first_row + start,
        )

    def split(self, fraction: float = 0.9) -> tuple[Statistics, Statistics]:
        """The first ``fraction`` of the positions, which fits, and the others, which select.

        In the order of the file, as the published procedures have it.
        """
        middle = min(max(int(fraction * self.num_positions), 1), self.num_positions - 1)
        if self.num_positions < 2:
            raise UserError("The FIT text has one position", "a fit needs some to select on", "use more text")
        return self.rows(0, middle), self.rows(middle, self.num_positions)

    def of_documents(self, keep_D: Mask) -> Statistics:
        """The positions of some documents, without a copy of the logits; documents keep their numbers."""
        return self.of_rows(np.flatnonzero(keep_D[self.document_N]))

    def of_rows(self, row_N: Integers) -> Statistics:
        """Some positions, ascending, without a copy of the logits; documents keep their numbers."""
        return replace(
            self,
            logits_NK=_PickedRows(self.logits_NK, self.first_row + row_N),
            target_column_N=self.target_column_N[row_N],
            document_N=self.document_N[row_N],
            target_logit_N=None if self.target_logit_N is None else self.target_logit_N[row_N],
            rest=None if self.rest is None else Rest(self.rest.log_z_NJ[row_N]),
            first_row=0,
        )

    def split_documents(self, held_out_D: Mask) -> tuple[Statistics, Statistics]:
        """The documents that fit, and those that select."""
        return self.of_documents(~held_out_D), self.of_documents(held_out_D)

    @property
    def block_rows(self) -> int:
        """Rows of a block: some 1 MB in float32, which a core's cache holds."""
        return min(max(1, _BLOCK_ELEMENTS // max(1, self.num_columns)), self.num_positions)

    def blocks(self) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Blocks of rows in order, in the computing type."""
        size = self.block_rows
        for start in range(0, self.num_positions, size):
            part = slice(start, min(start + size, self.num_positions))
            yield part, np.asarray(self.stored_rows(part), dtype=self.dtype)

    def stored_rows(self, part: slice) -> npt.NDArray[Any]:
        """Logits of a range of positions as they are stored, (B, K)."""
        return self.logits_NK[slice(self.first_row + part.start, self.first_row + part.stop)]


@dataclass(frozen=True, eq=False)
class _PickedRows:
    """Some rows of a source, ascending; runs of neighbours are read at once."""

    source: RowSource
    row_N: Integers

    @property
    def shape(self) -> tuple[int, ...]:
        """(positions, columns)."""
        return (len(self.row_N), *self.source.shape[1:])

    @property
    def dtype(self) -> Any:
        """That of the source."""
        return self.source.dtype

    def __getitem__(self, rows: slice, /) -> npt.NDArray[Any]:
        """Logits of a range of the picked rows, (B, K)."""
        row_B = self.row_N[rows]
        runs = np.split(row_B, np.flatnonzero(np.diff(row_B) != 1) + 1)
        parts = [self.source[slice(int(run[0]), int(run[-1]) + 1)] for run in runs if len(run)]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]


def top_columns(target_N: Integers, num_columns: int, vocabulary_size: int) -> Integers:
    """The most frequent target ids, at most ``num_columns``, ascending; ties go to the smaller id.

    Ids that are never a target are left out: a bias could push them without bound.
    """
    count_V = np.bincount(target_N, minlength=vocabulary_size)
    order_V = np.argsort(-count_V, kind="stable")[:num_columns]
    return np.sort(order_V[count_V[order_V] >= 1]).astype(np.int64)


def reduce_logits(
    logits_BV: npt.NDArray[Any], target_B: Integers, ids_K: Integers
) -> tuple[Floats, Integers, Floats, Floats]:
    """Convert a block of full logits to the reduced form.

    Logits are first shifted to log-probabilities: the columns that matter are then near 0, where
    float16 has its finest resolution.

    Returns:
        logits_BK, target_column_B, target_logit_B and the rest's log_z_BJ, all float64 or int64.
    """
    logits_BV = logits_BV.astype(np.float64)
    logits_BV -= _log_sum_exp(logits_BV)[:, None]
    vocabulary_size = logits_BV.shape[1]
    column_V = np.full(vocabulary_size, IN_REST, dtype=np.int64)
    column_V[ids_K] = np.arange(len(ids_K))
    rest_BR = logits_BV[:, column_V == IN_REST]
    beta_J = node_inverse_temperatures()
    if not rest_BR.shape[1]:
        raise UserError("No id is left for the rest", "every id is a column", "use Statistics.dense")
    log_z_BJ = np.stack([_log_sum_exp(beta * rest_BR) for beta in beta_J], axis=1)
    target_logit_B = logits_BV[np.arange(len(target_B)), target_B]
    return logits_BV[:, ids_K], column_V[target_B], target_logit_B, log_z_BJ


def _log_sum_exp(logits_BV: Floats) -> Floats:
    top_B = logits_BV.max(axis=1)
    total_B: Floats = top_B + np.log(np.exp(logits_BV - top_B[:, None]).sum(axis=1))
    return total_B

"""Groups windows into batches by a token budget, longest first, with little padding.

A batch is a list of blocks; a block is rows padded to one length.

Memory is bounded by the budget, not by the corpus: windows are read from the stream one look-ahead
at a time, and a look-ahead is processed before the next one is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

# Enough for batches of rows of similar length; waiting windows are ids only.
LOOKAHEAD_BATCHES = 16
# A batch takes shorter rows only while padding stays below this share of its positions.
MAX_PADDING = 0.1
# A row joins a block for at most this padding, or this part of its length: a block costs as much time as
# the padding of a few positions.
BLOCK_PADDING = 4
BLOCK_SHARE = 50


class Sized(Protocol):
    """A row with a length."""

    @property
    def length(self) -> int:
        """Input positions."""
        ...


Row = TypeVar("Row", bound=Sized)


def look_ahead(rows: Iterable[Row], num_positions: int) -> Iterator[list[Row]]:
    """Lists of rows with at least ``num_positions`` in total, except the last."""
    pending: list[Row] = []
    total = 0
    for row in rows:
        pending.append(row)
        total += row.length
        if total >= num_positions:
            yield pending
            pending, total = [], 0
    if pending:
        yield pending


def make_batches(rows: list[Row], token_budget: int) -> Iterator[list[Row]]:
    """Batches of at most ``token_budget`` positions including padding, longest rows first.

    A row longer than the budget is a batch of its own.
    """
    batch: list[Row] = []
    used = 0
    for row in sorted(rows, key=lambda row: -row.length):
        if batch:
            padded = (len(batch) + 1) * batch[0].length
            padding = padded - used - row.length
            if padded > token_budget or padding > MAX_PADDING * padded:
                yield batch
                batch, used = [], 0
        batch.append(row)
        used += row.length
    if batch:
        yield batch


def make_blocks(rows: list[Row], token_budget: int) -> Iterator[list[list[Row]]]:
    """Batches of blocks, at most ``token_budget`` positions including padding, longest rows first.

    For models that process blocks separately: a row joins a block if it is nearly as long as the
    block's first row, and otherwise begins a new block of the same batch.
    """
    batch: list[list[Row]] = []
    used = 0
    for row in sorted(rows, key=lambda row: -row.length):
        joins = bool(batch) and batch[-1][0].length - row.length <= max(
            BLOCK_PADDING, batch[-1][0].length // BLOCK_SHARE
        )
        length = batch[-1][0].length if joins else row.length
        if batch and used + length > token_budget:
            yield batch
            batch, used, joins, length = [], 0, False, row.length
        if joins:
            batch[-1].append(row)
        else:
            batch.append([row])
        used += length
    if batch:
        yield batch

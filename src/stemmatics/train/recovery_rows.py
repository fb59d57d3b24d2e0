"""A pool's documents as updates: rows of one document each, cut by the model's own tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.lm.tokens.tokenizer import TextTokenizer

# Documents per call of the tokenizer.
_ENCODED_TOGETHER = 256
# Assumed cost of another forward and backward pass, in positions; without it, every row would be a pass.
PASS_POSITIONS = 32


@dataclass(frozen=True)
class Update:
    """One update: rows of ids with the prefix first, and counts of their text tokens and bytes.

    ``num_begun`` counts the documents whose first token is in it.
    """

    rows: list[list[int]]
    num_tokens: int
    num_bytes: int
    num_begun: int


@dataclass(frozen=True)
class _Piece:
    """Text tokens of one document within one update, without [BOS]."""

    ids: list[int]
    num_bytes: int
    begins: bool


def updates_of(texts: Iterable[str], tokenizer: TextTokenizer, recipe: RecoveryRecipe) -> list[Update]:
    """The recipe's updates, each of exactly ``update_tokens`` text tokens.

    Documents keep their order. A document is cut where its row or its update is full; the next piece
    is another row, so that no token attends to another document or update. Every row begins with
    BOS, else EOS, as in scoring, and every text token is predicted once.

    Raises:
        UserError: the pool has too little text for the recipe.
    """
    prefix, _ = tokenizer.prefix("always")
    assert prefix is not None, "`always` gives a prefix or raises"
    updates: list[Update] = []
    filling: list[_Piece] = []
    remaining = recipe.update_tokens
    for ids, ends in _encoded(texts, tokenizer):
        start = 0
        while start < len(ids):
            end = min(len(ids), start + min(remaining, recipe.max_length - 1))
            before = int(ends[start - 1]) if start else 0
            filling.append(_Piece(ids[start:end], int(ends[end - 1]) - before, begins=start == 0))
            remaining -= end - start
            start = end
            if not remaining:
                updates.append(_update(filling, prefix))
                filling, remaining = [], recipe.update_tokens
                if len(updates) == recipe.updates:
                    return updates
    have = len(updates) * recipe.update_tokens + recipe.update_tokens - remaining
    raise UserError(
        f"the pool has {have} tokens, the recipe reads {recipe.updates * recipe.update_tokens}",
        "repeated documents would be memorised",
        "Give a larger pool, or a recipe with fewer updates",
    )


def _encoded(texts: Iterable[str], tokenizer: TextTokenizer) -> Iterator[tuple[list[int], np.ndarray]]:
    """Ids and the byte at which each ends, document by document; empty ones are skipped."""
    stream = iter(texts)
    while some := list(islice(stream, _ENCODED_TOGETHER)):
        for encoding in tokenizer.encode_batch(some):
            if len(encoding.ids):
                yield encoding.ids.tolist(), encoding.ends


def _update(pieces: Sequence[_Piece], prefix: int) -> Update:
    return Update(
        rows=[[prefix, *piece.ids] for piece in pieces],
        num_tokens=sum(len(piece.ids) for piece in pieces),
        num_bytes=sum(piece.num_bytes for piece in pieces),
        num_begun=sum(piece.begins for piece in pieces),
    )


def micro_batches(lengths: Sequence[int], most_positions: int) -> list[list[int]]:
    """Batches of rows of similar length: the split of the sorted rows with the lowest cost in positions.

    A batch of n rows costs n times its longest row plus ``PASS_POSITIONS``. Exact, by dynamic
    programming over the sorted rows. A batch has at most ``most_positions`` unless it is one row.

    Returns the indices of the rows, batch by batch, longest rows first.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    cost = [0.0] * (len(order) + 1)
    begins = [0] * (len(order) + 1)
    for end in range(1, len(order) + 1):
        cost[end] = float("inf")
        for start in range(end - 1, -1, -1):
            positions = (end - start) * lengths[order[start]]
            if positions > most_positions and end - start > 1:
                break
            total = cost[start] + positions + PASS_POSITIONS
            if total < cost[end]:
                cost[end], begins[end] = total, start
    cuts = [len(order)]
    while cuts[-1]:
        cuts.append(begins[cuts[-1]])
    cuts.reverse()
    return [order[start:end] for start, end in itertools.pairwise(cuts)]

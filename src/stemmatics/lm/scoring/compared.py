"""Two models over the same documents: their heads on the shared support, position by position.

Axes: T tokens of one document, N positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stemmatics.lm.scoring.divergence import TokenDivergence, divergence_of, rows_of_block
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import restricted
from stemmatics.lm.scoring.head_states import States
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import StoredDocument, StoredPass
from stemmatics.lm.scoring.structure import structure_of
from stemmatics.lm.scoring.sums import TokenizedDocument
from stemmatics.lm.tokens.tokenizer import shared_support

# tokens whose values are held at once
_BATCH_TOKENS = 1 << 15


@dataclass(frozen=True, eq=False)
class ComparedDocument:
    """A document's tokens, which of them were scored, and which of those are on the support."""

    tokens: TokenizedDocument
    scored_T: NDArray[np.bool_]
    inside_T: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Side:
    """A model's head on the shared support, and a pass that stored its inputs.

    ``documents`` gives those of the pass, or the ones with the given indices.
    """

    reader: Reader
    head: LinearHead
    stored: StoredPass
    documents: Callable[[frozenset[int] | None], Iterator[StoredDocument]]

    @property
    def states(self) -> States:
        """Head inputs of all scored tokens."""
        return self.stored.states()

    @classmethod
    def of(
        cls,
        reader: Reader,
        stored: StoredPass,
        documents: Callable[[frozenset[int] | None], Iterator[StoredDocument]],
        mask_V: NDArray[np.bool_],
    ) -> Side | None:
        """None where the model's logits are not a linear head of its states with a scale and a soft cap."""
        cutter = reader.cutter()
        head = structure_of(reader.loaded.model, cutter.context_length, cutter.size).head
        if head is None:
            return None
        return cls(reader, restricted(head, np.flatnonzero(mask_V).astype(np.int64)), stored, documents)


def shared_mask(base: Reader, descendant: Reader) -> NDArray[np.bool_]:
    """Ids that mean the same text in both models, (V,)."""
    sizes = base.loaded.num_ids, descendant.loaded.num_ids
    return shared_support(base.tokenizer, descendant.tokenizer, *sizes).mask


class Comparison:
    """Two sides' values by document, in batches of documents: memory does not grow with the corpus."""

    def __init__(self, mask_V: NDArray[np.bool_]) -> None:
        self.mask_V = mask_V
        self.compact_V = np.cumsum(mask_V) - 1

    def __call__(
        self, base: Side, descendant: Side, only: frozenset[int] | None = None
    ) -> Iterator[tuple[ComparedDocument, TokenDivergence]]:
        """Documents in order, without those that have no scored token on the support."""
        batch: list[tuple[ComparedDocument, NDArray[np.int64], NDArray[np.int64]]] = []
        size = 0
        for first, second in zip(base.documents(only), descendant.documents(only), strict=True):
            document = self.document(first)
            inside = np.flatnonzero(document.inside_T[document.scored_T])
            batch.append((document, first.first_state + inside, second.first_state + inside))
            size += len(inside)
            if size >= _BATCH_TOKENS:
                yield from self._values(batch, base, descendant)
                batch, size = [], 0
        yield from self._values(batch, base, descendant)

    def document(self, stored: StoredDocument) -> ComparedDocument:
        """A document with the tokens that count."""
        scores = stored.scores
        inside_T = scores.scored & self.mask_V[scores.document.ids]
        return ComparedDocument(scores.document, scores.scored, inside_T)

    def _values(
        self, batch: Sequence[tuple[ComparedDocument, Any, Any]], base: Side, descendant: Side
    ) -> Iterator[tuple[ComparedDocument, TokenDivergence]]:
        if not any(len(rows) for _, rows, _ in batch):
            return
        target_N = np.concatenate([self.targets(document) for document, _, _ in batch])
        base_rows, descendant_rows = (np.concatenate([rows[side] for _, *rows in batch]) for side in (0, 1))
        values = divergence_of(
            _logits(base.head, base.states.take(base_rows)),
            _logits(descendant.head, descendant.states.take(descendant_rows)),
            torch.from_numpy(target_N),
            block=rows_of_block(base.head.num_ids, base.head.weight.device),
        )
        start = 0
        for document, rows, _ in batch:
            part = slice(start, start + len(rows))
            start = part.stop
            if len(rows):
                yield document, values.at(part)

    def targets(self, document: ComparedDocument) -> NDArray[np.int64]:
        """Columns of the scored tokens on the support."""
        columns: NDArray[np.int64] = self.compact_V[document.tokens.ids[document.inside_T]].astype(np.int64)
        return columns


def _logits(head: LinearHead, states: States) -> Callable[[int, int], torch.Tensor]:
    return lambda start, stop: head.logits(states.rows(start, stop)).float()

"""Two models' predictions of every token of a text, side by side: losses, entropies, divergences, top ids.

Each model reads the text once; the inputs of its head wait in a scratch file, so that only one model is in
memory at a time, and both heads then run over the same positions.

Axes: T tokens of one document, N its scored tokens on the support, S ids of the support, K top ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.divergence import TOP, TokenDivergence, divergence_of, rows_of_block
from stemmatics.lm.scoring.encoded import EncodedCorpus
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import restricted
from stemmatics.lm.scoring.head_states import States
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredPass
from stemmatics.lm.scoring.structure import structure_of
from stemmatics.lm.scoring.sums import TokenizedDocument


@dataclass(frozen=True, slots=True, eq=False)
class TopIds:
    """The most likely ids of each position, most likely first, with their probabilities on the support."""

    ids_NK: NDArray[np.int64]
    probability_NK: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TokenViews:
    """One document's tokens under both models.

    ``compared_T`` marks the tokens that have values: scored, and on the support. The fields of ``divergence``
    and the top ids have one row for each of them.
    """

    document: TokenizedDocument
    compared_T: NDArray[np.bool_]
    divergence: TokenDivergence
    base_top: TopIds
    descendant_top: TopIds

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Nats by compared token: both losses and entropies, and KL(base || descendant)."""
        values = self.divergence
        return {
            "base_nll": values.base_nll,
            "descendant_nll": values.base_nll - values.delta_logp,
            "kl": values.kl,
            "base_entropy": values.base_entropy,
            "descendant_entropy": values.base_entropy + values.delta_entropy,
        }


@dataclass(frozen=True, slots=True, eq=False)
class ModelPass:
    """What is kept of a model that has read the text: its head and the head's inputs."""

    head: LinearHead
    stored: StoredPass
    prefix_id: int | None
    num_ids: int

    @classmethod
    def run(
        cls,
        reader: Reader,
        corpus: EncodedCorpus,
        folder: Path,
        *,
        on_event: Callable[[Any], None] | None = None,
    ) -> ModelPass:
        """Read the text once; ``folder`` takes the scratch file.

        Raises UserError where the model's logits are not a linear head of its states.
        """
        head = _head_of(reader)
        stored = StoredPass.run(reader, corpus, [PassRequest(states=True)], folder, on_event=on_event)
        return cls(head, stored, reader.prefix_id, reader.loaded.num_ids)


def _head_of(reader: Reader) -> LinearHead:
    cutter = reader.cutter()
    head = structure_of(reader.loaded.model, cutter.context_length, cutter.size).head
    if head is None:
        raise UserError(
            f"the predictions of {reader.loaded.pin.source} can't be compared token by token",
            "its logits are not a linear head of its states with a scale and a soft cap",
            "Use `stemma score --tokens` with each model for the losses alone",
        )
    return head


def token_views(
    base: ModelPass, descendant: ModelPass, corpus: EncodedCorpus, mask_V: NDArray[np.bool_]
) -> Iterator[TokenViews]:
    """Both models' values of every document, in order; documents without a compared token included.

    Args:
        base: the base over ``corpus``.
        descendant: the descendant over the same tokens.
        corpus: the tokens.
        mask_V: ids of the support.
    """
    ids_S = np.flatnonzero(mask_V).astype(np.int64)
    column_V = np.cumsum(mask_V) - 1
    heads = [restricted(side.head, ids_S) for side in (base, descendant)]
    documents = zip(
        base.stored.documents(corpus, base.prefix_id),
        descendant.stored.documents(corpus, descendant.prefix_id),
        strict=True,
    )
    for first, second in documents:
        scores = first.scores
        compared_T = scores.scored & mask_V[scores.document.ids]
        inside = np.flatnonzero(compared_T[scores.scored]).astype(np.int64)
        # a document without a scored token has no states at all
        base_logits, descendant_logits = (
            _Logits(head, side.stored.states().take(stored.first_state + inside), ids_S)
            for head, side, stored in zip(heads, (base, descendant), (first, second), strict=True)
        )
        target_N = torch.from_numpy(column_V[scores.document.ids[compared_T]].astype(np.int64))
        block = rows_of_block(heads[0].num_ids, heads[0].weight.device)
        values = divergence_of(base_logits, descendant_logits, target_N, block=block)
        yield TokenViews(scores.document, compared_T, values, base_logits.top(), descendant_logits.top())


class _Logits:
    """Logits of blocks of positions, whose most likely ids are noted as they pass."""

    def __init__(self, head: LinearHead, states: States, ids_S: NDArray[np.int64]) -> None:
        self._head, self._states, self._ids_S = head, states, ids_S
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []

    @torch.inference_mode()
    def __call__(self, start: int, stop: int) -> Tensor:
        logits_BS = self._head.logits(self._states.rows(start, stop)).float()
        top = logits_BS.topk(min(TOP, logits_BS.shape[1]), dim=1)
        log_p_BK = top.values - logits_BS.logsumexp(1, keepdim=True)
        ids_BK = self._ids_S[top.indices.cpu().numpy()]
        self._parts.append((ids_BK, log_p_BK.exp().cpu().double().numpy()))
        return logits_BS

    def top(self) -> TopIds:
        """The most likely ids of all positions so far."""
        if not self._parts:
            width = min(TOP, len(self._ids_S))
            return TopIds(np.empty((0, width), dtype=np.int64), np.empty((0, width)))
        ids, probabilities = zip(*self._parts, strict=True)
        return TopIds(np.concatenate(ids), np.concatenate(probabilities))

"""The state of one pass over a corpus, and what is done with a batch.

Windows are padded on the right, so no mask is needed: a causal model's tokens don't see what comes
after them. That the model is causal is tested before the first document. Where the model keeps rows in
one pass apart, a batch holds blocks of several lengths; else one block.

Axes: B rows, L positions of a row, F positions fed, N scored positions, V vocabulary, T tokens of a document.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stemmatics.core.errors import UserError
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.memory import is_out_of_memory
from stemmatics.lm.scoring.batches import make_batches, make_blocks
from stemmatics.lm.scoring.discover import call_arguments, capture_hidden
from stemmatics.lm.scoring.head import HeadScores, score_logits
from stemmatics.lm.scoring.packed import hidden_by_block
from stemmatics.lm.scoring.structure import structure_of
from stemmatics.lm.scoring.sums import TokenizedDocument, TokenScores
from stemmatics.lm.tokens.windows import Cutter, Window

# Any id will do: no scored position looks at padding.
PADDING_ID = 0
# On a CPU larger passes gain nothing and cost page faults: their activations go back to the system each time.
CPU_POSITIONS = 1024
# Where the model's own logits must be taken, one pass may hold this many of them (256 MiB).
OWN_LOGITS = 1 << 26

Event = dict[str, Any]


class Pending:
    """A document that waits for its windows."""

    def __init__(self, document: TokenizedDocument, windows: list[Window], flags: tuple[str, ...]) -> None:
        self.document = document
        self.num_waiting = len(windows)
        self.flags = flags
        self.scored_T = np.zeros(len(document.ids), dtype=np.bool_)
        for window in windows:
            self.scored_T[window.first_scored : window.stop] = True
        if document.scored_mask is not None:
            self.scored_T &= document.scored_mask
        self.columns: dict[str, NDArray[Any]] = {"nll": np.full(len(document.ids), np.nan)}

    def take(self, window: Window, values: dict[str, NDArray[Any]]) -> None:
        """Enter the values of one window's scored tokens."""
        for name, value in values.items():
            if name not in self.columns:
                blank = np.nan if np.issubdtype(value.dtype, np.floating) else -1
                shape = (len(self.document.ids), *value.shape[1:])
                self.columns[name] = np.full(shape, blank, dtype=value.dtype)
            self.columns[name][window.first_scored : window.stop] = value
        self.num_waiting -= 1

    def scores(self) -> TokenScores:
        """All values, once no window is waited for."""
        columns = dict(self.columns)
        columns["nll"] = np.where(self.scored_T, columns["nll"], np.nan)
        return TokenScores(
            self.document, self.scored_T, columns.pop("nll"), columns.pop("excluded_nll", None), columns
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A window of a document: one row of a batch."""

    pending: Pending
    window: Window

    @property
    def length(self) -> int:
        """Positions fed."""
        return self.window.num_fed


Batch = list[list[Row]]


class Engine:
    """The state of one pass."""

    def __init__(
        self,
        model: nn.Module,
        cutter: Cutter,
        *,
        scoring: Scoring,
        token_budget: int,
        prefix_id: int | None,
        support_V: Tensor | None,
        want: frozenset[str],
        on_event: Callable[[Event], None],
    ) -> None:
        self.model = model
        self.cutter = cutter
        self.scoring = scoring
        self.prefix_id = prefix_id
        self.want = want
        self.on_event = on_event
        structure = structure_of(model, cutter.context_length, cutter.size)
        self.head, self.packed, self.thresholds = structure.head, structure.packed, structure.thresholds
        self.num_embeddings, self.num_ids = structure.num_embeddings, structure.num_ids
        self.support_V = None
        if support_V is not None:
            # Rows past the mask are padding of the table.
            self.support_V = torch.zeros(self.num_ids, dtype=torch.bool)
            self.support_V[: len(support_V)] = support_V[: self.num_ids]
        on_cpu = model.device.type == "cpu"
        self.token_budget = min(token_budget, CPU_POSITIONS) if on_cpu else token_budget
        self.flags: tuple[str, ...] = ()
        if self.head is None:
            self._take_own_logits()
        self.pending: deque[Pending] = deque()
        self.num_done = 0
        self.total: int | None = None

    def _take_own_logits(self) -> None:
        if "hidden" in self.want:
            raise UserError(
                f"hidden states of {type(self.model).__name__} can't be taken",
                "its logits are no linear head of them with a scale and a soft cap",
                "leave out the measures that need them (prior)",
            )
        self.token_budget = min(self.token_budget, max(1, OWN_LOGITS // self.num_ids))
        self.flags = ("full_logits",)
        self.on_event({"kind": "warning", "flag": "full_logits", "num_ids": self.num_ids})

    def check_ids(self, document: TokenizedDocument) -> None:
        """Refuse ids that the model has no row for."""
        limit = min(self.num_embeddings, self.num_ids)
        wrong = document.ids[(document.ids < 0) | (document.ids >= limit)]
        if len(wrong):
            raise UserError(
                f"document {document.index} ({document.doc_id[:12]}) has the token id {int(wrong[0])}",
                f"the model's table holds {limit} ids",
                "take the tokenizer that belongs to this checkpoint",
            )

    def num_to_score(self, documents: Sequence[TokenizedDocument]) -> int:
        """Text tokens that will be scored."""
        limit = self.scoring.max_doc_tokens or np.inf
        unscored = self.prefix_id is None
        return sum(max(0, int(min(len(document.ids), limit)) - unscored) for document in documents)

    def rows(self, documents: Iterable[TokenizedDocument]) -> Iterator[Row]:
        """The windows of the documents; each document joins the queue as it is read."""
        limit = self.scoring.max_doc_tokens
        for source in documents:
            document, flags = source, self.flags
            if limit is not None and len(source.ids) > limit:
                document, flags = source.first_tokens(limit), (*flags, "cut")
            self.check_ids(document)
            windows = self.cutter.cut(document.starts, document.doc_id)
            pending = Pending(document, windows, flags)
            self.pending.append(pending)
            for window in windows:
                yield Row(pending, window)

    def batches(self, rows: list[Row]) -> Iterator[Batch]:
        """Rows grouped by the budget, those on both sides of a threshold apart."""
        for same_side in self._by_side(rows):
            if self.packed:
                yield from make_blocks(same_side, self.token_budget)
            else:
                yield from ([batch] for batch in make_batches(same_side, self.token_budget))

    def _by_side(self, rows: list[Row]) -> Iterable[list[Row]]:
        sides: dict[int, list[Row]] = {}
        for row in rows:
            sides.setdefault(sum(row.length > threshold for threshold in self.thresholds), []).append(row)
        return sides.values()

    def score(self, batch: Batch) -> None:
        """Score one batch; out of memory halves the budget and cuts the batch up."""
        waiting = [batch]
        while waiting:
            blocks = waiting.pop()
            try:
                values = self._forward(blocks)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                values = None
            # Outside the handler, where the failed pass's tensors are no longer held.
            if values is None:
                waiting.extend(self._smaller(blocks))
                continue
            at = 0
            for row in itertools.chain(*blocks):
                end = at + row.window.num_scored
                row.pending.take(row.window, {name: value[at:end] for name, value in values.items()})
                at = end
            self.num_done += at
            self.on_event({"kind": "progress", "done": self.num_done, "total": self.total})

    def _smaller(self, blocks: Batch) -> list[Batch]:
        positions = sum(len(block) * block[0].length for block in blocks)
        rows = list(itertools.chain(*blocks))
        if len(rows) == 1:
            raise UserError(
                f"a window of {positions} positions does not fit into memory",
                "it was tried alone",
                "set a smaller windows.size, or take a machine with more memory",
            )
        self.token_budget = max(1, min(self.token_budget, positions) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.on_event({"kind": "out_of_memory", "token_budget": self.token_budget})
        return list(self.batches(rows))

    def _inputs(self, blocks: Batch) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
        """``input_F``, block after block, and the place in it and the target of each scored position."""
        input_F = np.full(sum(len(block) * block[0].length for block in blocks), PADDING_ID, dtype=np.int64)
        places, targets, first = [], [], 0
        for block in blocks:
            for row in block:
                window, ids_T = row.window, row.pending.document.ids
                if window.prefixed:
                    input_F[first] = self.prefix_id
                input_F[first + window.prefixed : first + row.length] = ids_T[window.start : window.stop - 1]
                targets.append(ids_T[window.first_scored : window.stop])
                shift = first - window.start - 1 + window.prefixed
                places.append(np.arange(window.first_scored, window.stop) + shift)
                first += block[0].length
        return torch.from_numpy(input_F), np.concatenate(places), np.concatenate(targets)

    def _states(self, input_F: Tensor, blocks: Batch) -> Tensor:
        """Inputs of the head at all positions; the model's own logits where it has no head that is known."""
        if self.packed:
            return hidden_by_block(self.model, input_F, [(len(block), block[0].length) for block in blocks])
        (block,) = blocks
        input_BL = input_F.view(len(block), -1)
        if self.head is None:
            return self.model(input_BL, **call_arguments(self.model)).logits.flatten(0, 1)
        return capture_hidden(self.model, input_BL).flatten(0, 1)

    @torch.inference_mode()
    def _forward(self, blocks: Batch) -> dict[str, NDArray[Any]]:
        input_F, position_N, target_N = self._inputs(blocks)
        states = self._states(input_F.to(self.model.device), blocks)
        if len(position_N) < len(states):
            states = states[torch.from_numpy(position_N).to(states.device)]
        target = torch.from_numpy(target_N)
        score = score_logits if self.head is None else self.head.score
        result: HeadScores = score(states, target, support_V=self.support_V, want=self.want)
        columns = {
            "nll": result.nll,
            "excluded_nll": result.excluded_nll,
            "entropy": result.entropy,
            "top_1": result.top_1,
        }
        values = {name: value.cpu().numpy() for name, value in columns.items() if value is not None}
        if "hidden" in self.want:
            values["hidden"] = states.float().cpu().numpy()
        return values

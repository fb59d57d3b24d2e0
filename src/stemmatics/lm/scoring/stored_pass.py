"""One pass of a checkpoint over a corpus, kept on disk for all facts that want something of it.

Axes: D documents, T tokens of one document, N scored tokens of all documents, V vocabulary.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stemmatics.lm.scoring.encoded import EncodedCorpus
from stemmatics.lm.scoring.head_states import States, StateWriter
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.sums import DocumentSums, TokenScores, add_up


@dataclass(frozen=True, slots=True, eq=False)
class PassRequest:
    """What a pass is to give beside the losses.

    ``documents``: by index; None for all. ``states``: of these documents also the head's inputs.
    ``support_V``: also the share of probability outside it.
    """

    documents: frozenset[int] | None = None
    states: bool = False
    support_V: NDArray[np.bool_] | None = None


class Column:
    """Values appended to an unnamed scratch file, then mapped; the system removes it with its last reader."""

    def __init__(self, folder: Path) -> None:
        self._dtype: np.dtype[Any] = np.dtype(np.float64)
        self._num_values = 0
        self._stream: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - kept open

    def append(self, values: NDArray[Any]) -> None:
        """Add some, all of one type."""
        assert not self._num_values or values.dtype == self._dtype, "a column has one type"
        self._dtype = values.dtype
        self._stream.write(np.ascontiguousarray(values).tobytes())
        self._num_values += len(values)

    @property
    def num_bytes(self) -> int:
        """What was written."""
        return self._num_values * self._dtype.itemsize

    def values(self) -> NDArray[Any]:
        """All of them, in order."""
        self._stream.flush()
        if not self._num_values:
            return np.empty(0, self._dtype)
        return np.memmap(self._stream, self._dtype, "r")  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocument:
    """One document of a pass, its scores and the flags of the pass.

    ``first_state`` is the row of its first scored token's head input, -1 where they were not kept.
    """

    scores: TokenScores
    flags: tuple[str, ...]
    first_state: int


class StoredPass:
    """Losses by token; where wanted, head inputs, and the share of probability outside a support.

    Made by ``run``; read with ``documents`` and ``sums`` any number of times. ``support_V`` is the support
    that its excluded losses go with.
    """

    def __init__(self, requests: Sequence[PassRequest], folder: Path, dtype: torch.dtype) -> None:
        self.requests = tuple(requests)
        supports = [request.support_V for request in requests if request.support_V is not None]
        self.support_V = supports[0] if supports else None
        self._scored, self._nll_N = Column(folder), Column(folder)
        self._excluded_N = None if self.support_V is None else Column(folder)
        has_states = any(request.states for request in requests)
        self._states = StateWriter(folder, dtype) if has_states else None
        # of each document: its tokens, whether it has states, which flags it has
        self._num_tokens_D, self._has_states_D, self._flags_D = array("q"), array("b"), array("q")
        self._flags: list[tuple[str, ...]] = []

    @classmethod
    def run(
        cls,
        reader: Reader,
        corpus: EncodedCorpus,
        requests: Sequence[PassRequest],
        folder: Path,
        *,
        on_event: Callable[[Any], None] | None = None,
    ) -> StoredPass:
        """Run the model once over the documents that any of ``requests`` names."""
        stored = cls(requests, folder, reader.loaded.model.dtype)
        collected: list[TokenScores] = []
        for sums in reader.score_tokens(
            (document for document in corpus.documents(reader.prefix_id) if stored.reads(document.index)),
            support_V=stored.support_V,
            want=("nll",) if stored._states is None else ("nll", "hidden"),
            token_sink=collected.append,
            on_event=on_event,
        ):
            scores = collected.pop()
            known = {*scores.document.flags, "non_finite"}
            flags = tuple(flag for flag in sums.flags if flag not in known)
            stored._append(scores, flags, keep_states=stored.has_state(sums.index))
        return stored

    def reads(self, index: int) -> bool:
        """Whether a document is read."""
        return any(request.documents is None or index in request.documents for request in self.requests)

    def has_state(self, index: int) -> bool:
        """Whether a document's head inputs are kept."""
        return any(
            request.states and (request.documents is None or index in request.documents)
            for request in self.requests
        )

    def serves(self, request: PassRequest) -> bool:
        """Whether it holds all that is requested. A support's share also follows from the head's inputs."""
        covering = [other for other in self.requests if other.states or not request.states]
        if not any(other.documents is None for other in covering):
            read = frozenset().union(*(other.documents or () for other in covering))
            if request.documents is None or not request.documents <= read:
                return False
        return request.support_V is None or request.states or self.has_support(request.support_V)

    def has_support(self, support_V: NDArray[np.bool_]) -> bool:
        """Whether the excluded losses go with this support; ids past a mask lie outside it."""
        return self.support_V is not None and np.array_equal(
            np.flatnonzero(self.support_V), np.flatnonzero(support_V)
        )

    def _append(self, scores: TokenScores, flags: tuple[str, ...], *, keep_states: bool) -> None:
        scored_T = scores.scored
        self._scored.append(scored_T)
        self._nll_N.append(scores.nll[scored_T])
        if self._excluded_N is not None:
            excluded = scores.excluded_nll
            # a document without a scored token went through no model
            if excluded is not None:
                self._excluded_N.append(excluded[scored_T])
        if self._states is not None and keep_states and scored_T.any():
            self._states.append(scores.extra["hidden"][scored_T])
        if flags not in self._flags:
            self._flags.append(flags)
        self._num_tokens_D.append(len(scored_T))
        self._has_states_D.append(keep_states)
        self._flags_D.append(self._flags.index(flags))

    @property
    def num_bytes(self) -> int:
        """What it takes on disk."""
        columns = [self._scored, self._nll_N, self._excluded_N, self._states]
        return sum(column.num_bytes for column in columns if column is not None)

    @property
    def num_scored(self) -> int:
        """Scored tokens."""
        return len(self._nll_N.values())

    def states(self) -> States:
        """Head inputs of all scored tokens of the documents that have some."""
        assert self._states is not None, "no states were wanted"
        return self._states.states()

    def documents(
        self, corpus: EncodedCorpus, prefix_id: int | None, indices: frozenset[int] | None = None
    ) -> Iterator[StoredDocument]:
        """The scores of each document that was read, or of those that are wanted, in order."""
        scored, nll_N = self._scored.values(), self._nll_N.values()
        excluded_N = None if self._excluded_N is None else self._excluded_N.values()
        at_token = at = at_state = number = 0
        for document in corpus.documents(prefix_id):
            if not self.reads(document.index):
                continue
            num_tokens = self._num_tokens_D[number]
            scored_T = np.array(scored[at_token : at_token + num_tokens])
            part = slice(at, at + int(scored_T.sum()))
            has_states = bool(self._has_states_D[number])
            if indices is None or document.index in indices:
                yield StoredDocument(
                    TokenScores(
                        document.first_tokens(num_tokens),
                        scored_T,
                        _spread(nll_N[part], scored_T),
                        None if excluded_N is None else _spread(excluded_N[part], scored_T),
                    ),
                    self._flags[self._flags_D[number]],
                    at_state if has_states else -1,
                )
            at_token, at = at_token + num_tokens, part.stop
            at_state += (part.stop - part.start) if has_states else 0
            number += 1

    def sums(
        self,
        corpus: EncodedCorpus,
        prefix_id: int | None,
        *,
        documents: frozenset[int] | None = None,
        frequencies_V: NDArray[np.int64] | None = None,
        support_V: NDArray[np.bool_] | None = None,
    ) -> Iterator[DocumentSums]:
        """Sums of each document, as the scoring engine gives them.

        ``support_V``: None for sums over all ids, else the support that the pass was made with.
        """
        for stored in self.documents(corpus, prefix_id, documents):
            scores, outside_T = stored.scores, None
            if support_V is None:
                scores.excluded_nll = None
            else:
                outside_T = ~support_V[scores.document.ids]
            yield add_up(scores, outside_T=outside_T, frequencies_V=frequencies_V, flags=stored.flags)


def _spread(values_N: NDArray[Any], scored_T: NDArray[np.bool_]) -> NDArray[Any]:
    """Values of the scored tokens at their places, NaN elsewhere."""
    spread_T = np.full(len(scored_T), np.nan, dtype=values_N.dtype)
    spread_T[scored_T] = values_N
    return spread_T

"""One pass over a corpus: documents' tokens in, documents' sums out, in input order.

Axes: T tokens of one document, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.scoring.batches import LOOKAHEAD_BATCHES, look_ahead
from stemmatics.lm.scoring.engine import Engine, Event
from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument, TokenScores, add_up
from stemmatics.lm.tokens.windows import Cutter

OUTPUTS = frozenset({"nll", "entropy", "top_1", "hidden"})


def score(
    model: nn.Module,
    documents: Iterable[TokenizedDocument],
    scoring: Scoring,
    numerics: Numerics,
    *,
    prefix_id: int | None,
    context_length: int,
    support_mask: NDArray[np.bool_] | None = None,
    want: Iterable[str] = ("nll",),
    token_sink: Callable[[TokenScores], None] | None = None,
    frequencies: NDArray[np.int64] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Iterator[DocumentSums]:
    """Sums of each document, in input order; memory does not grow with the corpus.

    Args:
        model: a causal model of transformers, on its device and in its dtype.
        documents: tokens without special tokens; read lazily.
        scoring: windows, and the length limit of documents. Prefix policy and support are already
            resolved in ``prefix_id`` and ``support_mask``.
        numerics: ``token_budget`` bounds the positions of one forward pass.
        prefix_id: put before each window (before the first one under the harness's rule). None:
            a document's first token is not scored and its bytes are not counted.
        context_length: the model's context in positions.
        support_mask: ids of the support; None for all.
        want: any of ``nll``, ``entropy``, ``top_1``, ``hidden``, passed to ``token_sink``.
        token_sink: called with each document's values by token, in input order.
        frequencies: how often each id occurs in the corpus, for the sums by token frequency.
        on_event: called with events: ``progress`` (tokens done, total if known),
            ``out_of_memory``, ``warning``, ``non_finite``.

    A document whose loss is not finite is flagged ``non_finite`` and has NaN sums; callers must then
    not report success. Raises UserError if an id is not in the model, windows do not fit, the model is
    not causal, or a single window does not fit into memory.
    """
    requested = frozenset(want)
    if not requested <= OUTPUTS:
        message = f"unknown outputs {sorted(requested - OUTPUTS)}"
        raise ValueError(message)
    cutter = Cutter.of(scoring.windows, context_length=context_length, has_prefix=prefix_id is not None)
    was_training = model.training
    model.eval()
    try:
        engine = Engine(
            model,
            cutter,
            scoring=scoring,
            token_budget=numerics.token_budget,
            prefix_id=prefix_id,
            support_V=None if support_mask is None else torch.from_numpy(support_mask),
            want=requested,
            on_event=on_event or (lambda _: None),
        )
        if isinstance(documents, Sequence):
            engine.total = engine.num_to_score(documents)
        yield from _run(engine, documents, token_sink, frequencies)
    finally:
        model.train(was_training)


def _run(
    engine: Engine,
    documents: Iterable[TokenizedDocument],
    token_sink: Callable[[TokenScores], None] | None,
    frequencies_V: NDArray[np.int64] | None,
) -> Iterator[DocumentSums]:
    num_positions = LOOKAHEAD_BATCHES * engine.token_budget
    for rows in look_ahead(engine.rows(documents), num_positions):
        for batch in engine.batches(rows):
            engine.score(batch)
        yield from _finished(engine, token_sink, frequencies_V)
    # Empty documents at the end have no windows, so they are in no batch.
    yield from _finished(engine, token_sink, frequencies_V)


def _finished(
    engine: Engine,
    token_sink: Callable[[TokenScores], None] | None,
    frequencies_V: NDArray[np.int64] | None,
) -> Iterator[DocumentSums]:
    while engine.pending and engine.pending[0].num_waiting == 0:
        pending = engine.pending.popleft()
        scores = pending.scores()
        outside_T = None if engine.support_V is None else ~engine.support_V.numpy()[scores.document.ids]
        sums = add_up(scores, outside_T=outside_T, frequencies_V=frequencies_V, flags=pending.flags)
        if "non_finite" in sums.flags:
            engine.on_event({"kind": "non_finite", "doc_id": sums.doc_id, "index": sums.index})
        if token_sink is not None:
            token_sink(scores)
        yield sums

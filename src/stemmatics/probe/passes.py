"""Passes of checkpoints over corpora, each made once for all facts that need something of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stemmatics.core import plugins
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.core.scoring import Scoring
from stemmatics.facts.train import is_recovery
from stemmatics.lm.scoring.encoded import EncodedCorpus
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredDocument, StoredPass
from stemmatics.lm.scoring.sums import DocumentSums
from stemmatics.probe.base import Context
from stemmatics.probe.sources import encoded, load_checkpoint, load_merged, model_key


class Refused(Exception):  # noqa: N818 - not an error but an answer, kept in the store
    """Why something can't be made of this model and text; the report gives the reason."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a fact needs of a pass of a checkpoint over a corpus.

    ``request`` is called when the pass is about to run; where it raises Refused, nothing is requested.
    ``merged``: of an adapter, the weights that it was added to.
    """

    checkpoint: Fact
    corpus: Fact
    scoring: Scoring
    request: Callable[[Reader, Context], PassRequest] = lambda _reader, _context: PassRequest()
    merged: bool = False

    def reader(self, context: Context) -> Reader:
        """The loaded checkpoint with the scoring's prefix and windows settled."""
        load = load_merged if self.merged else load_checkpoint
        return Reader.of(load(self.checkpoint, context), self.scoring, context.numerics)

    def key(self, context: Context) -> str:
        """Readings with equal keys read the same losses; supports play no part in them."""
        merge = self.merged or is_recovery(self.checkpoint)
        model = model_key(self.checkpoint, context, merge=merge)
        scoring = self.scoring.model_copy(update={"support": "full"})
        return key_of({"model": model, "corpus": self.corpus.key, "scoring": scoring.key()})


@dataclass(frozen=True, eq=False)
class CorpusPass:
    """A pass with what is needed to read it."""

    reader: Reader
    corpus: EncodedCorpus
    stored: StoredPass

    def sums(self, **settings: Any) -> Iterator[DocumentSums]:
        """Sums of the documents, as ``StoredPass.sums`` takes settings."""
        return self.stored.sums(self.corpus, self.reader.prefix_id, **settings)

    def documents(self, indices: frozenset[int] | None = None) -> Iterator[StoredDocument]:
        """Scores of the documents, or of those that are wanted."""
        return self.stored.documents(self.corpus, self.reader.prefix_id, indices)


def pass_over(
    reading: Reading, context: Context, *, on_event: Callable[[Any], None] | None = None
) -> CorpusPass:
    """The pass of a reading: one that was made before, or one made for all facts of the job."""
    passes, key = context.workspace.passes, reading.key(context)
    reader = reading.reader(context)
    corpus = encoded(reading.corpus, reader.tokenizer, context)
    request = reading.request(reader, context)
    stored = passes.find(key)
    if stored is None or not stored.serves(request):
        requests = [request, *_requests_of_job(key, reader, context)]
        folder = context.scratch()
        started = time.monotonic()
        stored = StoredPass.run(reader, corpus, requests, folder, on_event=on_event)
        report_pass(context, reading.checkpoint.label, reading.corpus, stored.num_scored, started)
        context.workspace.bound_disk(folder)
        passes.put(key, stored)
    return CorpusPass(reader, corpus, stored)


def report_pass(context: Context, model: str, corpus: Fact, num_tokens: int, started: float) -> None:
    """Report that a model has read a corpus or a part of it since ``started``: ``num_tokens`` were scored."""
    context.on_event(
        {
            "kind": "pass",
            "label": model,
            "corpus": corpus.label,
            "num_tokens": num_tokens,
            "spent": time.monotonic() - started,
        }
    )


def _requests_of_job(key: str, reader: Reader, context: Context) -> Iterator[PassRequest]:
    """What the other facts of the job need of the same pass."""
    for fact in context.workspace.job:
        reading = reading_of(fact)
        if reading is not None and reading.key(context) == key:
            # a fact that has no answer fails or is refused when its turn comes
            with suppress(Exception):
                yield reading.request(replace(reader, scoring=reading.scoring), context)


def reading_of(fact: Fact) -> Reading | None:
    """The pass that a fact is made from; None where its probe names none."""
    probe = plugins.find("probes", fact.probe)()
    named = getattr(probe, "reading", None)
    return None if named is None else named(fact)


def refuse_non_finite(indices: Sequence[int]) -> None:
    """Raise UserError that counts the documents of a pass whose loss is not finite."""
    if indices:
        raise UserError(
            f"the loss of {len(indices)} documents is not finite",
            f"the first has the index {indices[0]}",
            "float32 may help: `numerics: {dtype: float32}`",
        )

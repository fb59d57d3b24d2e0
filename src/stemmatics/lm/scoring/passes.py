"""A checkpoint over a corpus: tokens counted first, then scored.

Axes: V vocabulary.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument, TokenScores
from stemmatics.lm.text.corpus import Document
from stemmatics.lm.tokens.classes import token_classes
from stemmatics.lm.tokens.tokenizer import Encoding, TextTokenizer
from stemmatics.lm.tokens.windows import DEFAULT_SIZE, Cutter

TOKENIZER_BATCH = 256


@dataclass(frozen=True)
class Counted:
    """What one reading of the corpus tells before any model runs.

    ``token_ids_sha256`` is over all ids of all documents in order: two checkpoints with the same
    hash saw the same tokens. ``frequencies_V`` counts each id.
    """

    token_ids_sha256: str
    num_tokens: int
    num_documents: int
    frequencies_V: NDArray[np.int64]


def tokenized(
    tokenizer: TextTokenizer, documents: Iterable[Document], prefix_id: int | None = None
) -> Iterator[TokenizedDocument]:
    """Documents as the scoring engine takes them, a batch at a time.

    A rendered conversation that brings ``prefix_id`` itself loses it here: the window puts it back.
    """
    for batch in _batches(documents):
        plain = [document for document in batch if not document.scored]
        rendered = [document for document in batch if document.scored]
        encodings = dict(
            zip(
                [document.index for document in [*plain, *rendered]],
                [
                    *tokenizer.encode_batch([document.text for document in plain]),
                    *tokenizer.encode_batch([document.text for document in rendered], rendered=True),
                ],
                strict=True,
            )
        )
        for document in batch:
            encoding = encodings[document.index]
            raw = document.text.encode()
            asked, joint = _inside(document.scored, encoding) if document.scored else (None, ())
            made = TokenizedDocument(
                index=document.index,
                doc_id=document.doc_id,
                ids=encoding.ids,
                starts=encoding.starts,
                ends=encoding.ends,
                classes=token_classes(raw, encoding),
                register=document.register,
                flags=tuple(sorted({*document.flags, *encoding.flags, *joint})),
                asked=asked,
            )
            own_prefix = "has_bos" in encoding.flags and len(made.ids) and made.ids[0] == prefix_id
            yield made.tokens(slice(1, None)) if own_prefix else made


def _inside(
    spans: Iterable[tuple[int, int]], encoding: Encoding
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Tokens whose bytes all lie in one of the spans, and a flag where a token lies across an edge.

    Such a token is nobody's answer: neither its loss nor its bytes are counted.
    """
    inside_T = np.zeros(len(encoding.ids), dtype=np.bool_)
    across_T = np.zeros(len(encoding.ids), dtype=np.bool_)
    for start, end in spans:
        within_T = (encoding.starts >= start) & (encoding.ends <= end)
        inside_T |= within_T
        across_T |= (encoding.starts < end) & (encoding.ends > start) & ~within_T
    return inside_T, ("token_across_joint",) if across_T.any() else ()


def count(tokenizer: TextTokenizer, documents: Iterable[Document], num_ids: int) -> Counted:
    """Read and tokenise a corpus once; memory is bounded by the vocabulary."""
    digest = hashlib.sha256()
    frequencies_V = np.zeros(num_ids, dtype=np.int64)
    num_tokens = num_documents = 0
    for batch in _batches(documents):
        for document in batch:
            ids = tokenizer.encode(document.text, rendered=bool(document.scored)).ids
            digest.update(len(ids).to_bytes(8, "big"))
            digest.update(np.ascontiguousarray(ids, dtype="<i8").tobytes())
            within = ids[(ids >= 0) & (ids < num_ids)]
            frequencies_V += np.bincount(within, minlength=num_ids)
            num_tokens += len(ids)
            num_documents += 1
    return Counted(digest.hexdigest(), num_tokens, num_documents, frequencies_V)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    stream = iter(documents)
    while batch := list(itertools.islice(stream, TOKENIZER_BATCH)):
        yield batch


@dataclass(frozen=True)
class Reader:
    """A loaded checkpoint with all that a scoring has to settle once."""

    loaded: Loaded
    tokenizer: TextTokenizer
    scoring: Scoring
    numerics: Numerics
    prefix_id: int | None
    prefix: str
    context_length: int

    @classmethod
    def of(cls, loaded: Loaded, scoring: Scoring, numerics: Numerics) -> Reader:
        """Settle prefix and context. Raises UserError where the policy can't be kept."""
        tokenizer = TextTokenizer(loaded.tokenizer)
        prefix_id, prefix = tokenizer.prefix(scoring.prefix)
        context = loaded.context_length or DEFAULT_SIZE
        return cls(loaded, tokenizer, scoring, numerics, prefix_id, prefix, context)

    def cutter(self) -> Cutter:
        """The windows as they will be cut."""
        has_prefix = self.prefix_id is not None
        return Cutter.of(self.scoring.windows, context_length=self.context_length, has_prefix=has_prefix)

    def count(self, documents: Iterable[Document]) -> Counted:
        """The first reading."""
        return count(self.tokenizer, documents, self.loaded.num_ids)

    def score(
        self,
        documents: Iterable[Document],
        *,
        support_V: NDArray[np.bool_] | None = None,
        frequencies_V: NDArray[np.int64] | None = None,
        want: Iterable[str] = ("nll",),
        token_sink: Callable[[TokenScores], None] | None = None,
        on_event: Callable[[Any], None] | None = None,
    ) -> Iterator[DocumentSums]:
        """The second reading: sums of each document, in input order."""
        yield from score(
            self.loaded.model,
            tokenized(self.tokenizer, documents, self.prefix_id),
            self.scoring,
            self.numerics,
            prefix_id=self.prefix_id,
            context_length=self.context_length,
            support_mask=support_V,
            want=want,
            token_sink=token_sink,
            frequencies=frequencies_V,
            on_event=on_event,
        )

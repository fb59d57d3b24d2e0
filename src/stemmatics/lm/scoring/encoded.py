"""A corpus as tokens: read and tokenised once, read again from memory or from a scratch file.

Axes: T tokens of one document, N tokens of a batch of documents, V ids.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stemmatics.lm.scoring.sums import TokenizedDocument
from stemmatics.lm.text.corpus import Document
from stemmatics.lm.tokens.classes import token_classes
from stemmatics.lm.tokens.tokenizer import Encoding, TextTokenizer

TOKENIZER_BATCH = 256
# Bytes of one corpus's tokens that stay in memory, at about nine a token; above, they lie in a scratch file.
MEMORY_BYTES = 1 << 25


@dataclass(frozen=True)
class Counted:
    """What is known of a corpus before any model runs.

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
    """Documents as the scoring engine takes them, tokenised a batch at a time.

    A rendered conversation that brings ``prefix_id`` itself loses it here: the window puts it back.
    """
    for batch in _batches(documents):
        for document in _encoded(tokenizer, batch):
            yield without_prefix(document, prefix_id)


def without_prefix(document: TokenizedDocument, prefix_id: int | None) -> TokenizedDocument:
    """The document without its own first token where that is the prefix, which every window starts with."""
    has_own = "has_bos" in document.flags and len(document.ids) and document.ids[0] == prefix_id
    return document.tokens(slice(1, None)) if has_own else document


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    stream = iter(documents)
    while batch := list(itertools.islice(stream, TOKENIZER_BATCH)):
        yield batch


def _encoded(tokenizer: TextTokenizer, batch: Sequence[Document]) -> Iterator[TokenizedDocument]:
    """Tokens of a batch, all that the tokenizer gave."""
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
        scored_mask, across = _inside(document.scored, encoding) if document.scored else (None, ())
        yield TokenizedDocument(
            index=document.index,
            doc_id=document.doc_id,
            ids=encoding.ids,
            starts=encoding.starts,
            ends=encoding.ends,
            classes=token_classes(document.text.encode(), encoding),
            register=document.register,
            flags=tuple(sorted({*document.flags, *encoding.flags, *across})),
            scored_mask=scored_mask,
        )


def _inside(
    spans: Iterable[tuple[int, int]], encoding: Encoding
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Tokens whose bytes all lie in one of the spans, and a flag where a token lies across an edge.

    Such a token is part of no answer: neither its loss nor its bytes are counted.
    """
    inside_T = np.zeros(len(encoding.ids), dtype=np.bool_)
    across_T = np.zeros(len(encoding.ids), dtype=np.bool_)
    for start, end in spans:
        within_T = (encoding.starts >= start) & (encoding.ends <= end)
        inside_T |= within_T
        across_T |= (encoding.starts < end) & (encoding.ends > start) & ~within_T
    return inside_T, ("token_across_joint",) if across_T.any() else ()


class EncodedCorpus:
    """The tokens of a corpus under one tokenizer.

    Tokens are kept packed: in memory up to ``memory_bytes``, above in an unnamed file in ``folder``, which
    the system removes with this object or its process. Memory does not grow with the corpus.

    Args:
        tokenizer: what encodes the documents.
        documents: read once, here.
        folder: where a large corpus spills to; the system's temporary folder if left out.
        memory_bytes: what may stay in memory.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        documents: Iterable[Document],
        *,
        folder: Path | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._file = tempfile.SpooledTemporaryFile(max_size=memory_bytes, dir=folder)  # noqa: SIM115 - kept open
        self._batches: list[tuple[int, int]] = []
        self._digest = hashlib.sha256()
        self._frequencies_V = np.zeros(0, dtype=np.int64)
        self.num_tokens = self.num_documents = self.num_bytes = 0
        for batch in _batches(documents):
            self._append(list(_encoded(tokenizer, batch)))

    def _append(self, batch: list[TokenizedDocument]) -> None:
        for document in batch:
            self._digest.update(len(document.ids).to_bytes(8, "big"))
            self._digest.update(np.ascontiguousarray(document.ids, dtype="<i8").tobytes())
        ids_N = np.concatenate([document.ids for document in batch])
        counts_V = np.bincount(ids_N[ids_N >= 0], minlength=len(self._frequencies_V))
        counts_V[: len(self._frequencies_V)] += self._frequencies_V
        self._frequencies_V = counts_V
        self.num_tokens += len(ids_N)
        self.num_documents += len(batch)
        data = pickle.dumps(_pack(batch, ids_N))
        self._file.write(data)
        self._batches.append((self.num_bytes, len(data)))
        self.num_bytes += len(data)

    @property
    def memory_bytes(self) -> int:
        """What lies in memory."""
        return self.num_bytes if self.num_bytes <= self._memory_bytes else 0

    def spill(self) -> None:
        """Move what is in memory to the scratch file."""
        self._file.rollover()
        self._memory_bytes = -1

    def counted(self, num_ids: int) -> Counted:
        """Hash of all ids, sizes, and how often each of ``num_ids`` ids occurs."""
        frequencies_V = np.zeros(num_ids, dtype=np.int64)
        num_known = min(num_ids, len(self._frequencies_V))
        frequencies_V[:num_known] = self._frequencies_V[:num_known]
        return Counted(self._digest.hexdigest(), self.num_tokens, self.num_documents, frequencies_V)

    def documents(self, prefix_id: int | None = None) -> Iterator[TokenizedDocument]:
        """The documents in order, as ``tokenized`` would give them; may be read again and again."""
        for start, size in self._batches:
            self._file.seek(start)
            for document in _unpack(pickle.loads(self._file.read(size))):  # noqa: S301 - our own, unnamed file
                yield without_prefix(document, prefix_id)


# Rows of (index, doc_id, register, flags, number of tokens, whether only some tokens are scored) and columns.
_Packed = tuple[list[tuple[int, str, str | None, tuple[str, ...], int, bool]], dict[str, NDArray[np.generic]]]


def _pack(batch: Sequence[TokenizedDocument], ids_N: NDArray[np.int64]) -> _Packed:
    """A batch in few bytes. Spans cover a text in order, so the ends say where tokens start."""
    rows = [
        (
            document.index,
            document.doc_id,
            document.register,
            document.flags,
            len(document.ids),
            document.scored_mask is not None,
        )
        for document in batch
    ]
    some_scored = [document.scored_mask for document in batch if document.scored_mask is not None]
    columns = {
        "ids": _small(ids_N),
        "ends": _small(np.concatenate([document.ends for document in batch])),
        "classes": np.concatenate([document.classes for document in batch]),
        "scored_mask": np.concatenate(some_scored) if some_scored else np.zeros(0, dtype=np.bool_),
    }
    return rows, columns


def _small(values_N: NDArray[np.int64]) -> NDArray[np.generic]:
    fits = not len(values_N) or bool(values_N.min() >= -(2**31) and values_N.max() < 2**31)
    return values_N.astype(np.int32) if fits else values_N


def _unpack(packed: _Packed) -> Iterator[TokenizedDocument]:
    rows, columns = packed
    ids_N, ends_N = (columns[name].astype(np.int64) for name in ("ids", "ends"))
    classes_N: NDArray[np.int8] = columns["classes"].astype(np.int8)
    scored_N: NDArray[np.bool_] = columns["scored_mask"].astype(np.bool_)
    at = at_scored = 0
    for index, doc_id, register, flags, num_tokens, some_scored in rows:
        part = slice(at, at + num_tokens)
        ends_T = ends_N[part]
        scored_T = scored_N[at_scored : at_scored + num_tokens] if some_scored else None
        yield TokenizedDocument(
            index=index,
            doc_id=doc_id,
            ids=ids_N[part],
            starts=np.concatenate([np.zeros(min(1, num_tokens), np.int64), ends_T[:-1]]),
            ends=ends_T,
            classes=classes_N[part],
            register=register,
            flags=flags,
            scored_mask=scored_T,
        )
        at += num_tokens
        at_scored += num_tokens if some_scored else 0

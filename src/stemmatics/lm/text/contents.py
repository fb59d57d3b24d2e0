"""Hash and size of a corpus, from one pass over it."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from dataclasses import astuple, dataclass
from typing import Any

from stemmatics.core.corpora import Corpus
from stemmatics.core.keys import key_of
from stemmatics.lm.checkpoints.hub import HashCache
from stemmatics.lm.text import files as texts
from stemmatics.lm.text.corpus import read
from stemmatics.lm.text.doc_ids import document_key


@dataclass(frozen=True)
class Contents:
    """SHA-256 over the texts of a corpus in order, each preceded by its length, and the corpus's size."""

    sha256: str
    num_documents: int
    num_bytes: int


def contents(source: Corpus, *, key: bytes | None = None, hashes: HashCache | None = None) -> Contents:
    """Hash and size of a corpus.

    A private corpus is hashed with its key. Hashes of local files are cached by path, size, times and
    inode; those of a rendered corpus, which also depends on a template, are not.
    """
    if source.private:
        digest: Any = hmac.new(key or document_key(), digestmod=hashlib.sha256)
    else:
        digest = hashlib.sha256()
    name = None
    if source.path and not source.private and source.render is None:
        hashes = hashes or HashCache()
        name = _cache_key(source)
        if (known := hashes.get(name)) is not None:
            return Contents(*known)
    num_documents = num_bytes = 0
    for document in read(source, key=key):
        raw = document.text.encode()
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
        num_documents += 1
        num_bytes += len(raw)
    result = Contents(digest.hexdigest(), num_documents, num_bytes)
    if name is not None and hashes is not None:
        hashes.put(name, list(astuple(result)))
    return result


def content_hash(source: Corpus, *, key: bytes | None = None, hashes: HashCache | None = None) -> str:
    """Only the hash."""
    return contents(source, key=key, hashes=hashes).sha256


def _cache_key(source: Corpus) -> str:
    stamps = []
    for file, _ in itertools.chain.from_iterable(texts.files(path) for path in source.path or []):
        real = file.resolve()
        state = real.stat()
        stamps.append([str(real), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino])
    settings = {"field": source.field, "role": source.role, "max": source.max_documents}
    return f"contents-2:{key_of({**settings, 'files': stamps})}"

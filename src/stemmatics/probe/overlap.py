"""Facts about a pool and a scored corpus: do they share a document, or a run of words?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from stemmatics.core.facts import Fact
from stemmatics.facts.overlap import OVERLAP
from stemmatics.probe.base import Context, FactOutput, NoModel
from stemmatics.probe.sources import corpus_of, documents_of, records_of

_WORD = re.compile(r"\w+")


class Overlap(NoModel):
    """Counts what text that is trained on has in common with text that is scored."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
        """One row a fact. The pool is read as a stream."""
        del context
        for fact in facts:
            scored = (document.text for document in documents_of(fact.needs["corpus"])())
            row = overlap(pool_texts(fact.needs["pool"]), scored, order=fact.params["order"])
            yield FactOutput(fact, {"overlap": OVERLAP.table("overlap", [row])})


def pool_texts(pool: Fact) -> Iterator[str]:
    """The texts of a corpus of training material."""
    field = corpus_of(pool).field
    return (str(record[field]) for record in records_of(pool)())


def overlap(pool: Iterable[str], scored: Iterable[str], *, order: int) -> dict[str, int]:
    """What both hold: documents of the same words, and runs of ``order`` words.

    Words are runs of letters and digits in lower case, so that neither punctuation nor layout
    hides a copy. Memory grows with the scored text alone.
    """
    num_scored = num_pool = num_shared_documents = num_sharing = 0
    scored_ngrams: set[str] = set()
    scored_documents: set[str] = set()
    for text in scored:
        words = _words(text)
        scored_documents.add(" ".join(words))
        scored_ngrams.update(_ngrams(words, order))
        num_scored += 1
    shared: set[str] = set()
    for text in pool:
        words = _words(text)
        common = scored_ngrams.intersection(_ngrams(words, order))
        num_pool += 1
        num_sharing += bool(common)
        num_shared_documents += bool(words) and " ".join(words) in scored_documents
        shared |= common
    return {
        "num_pool_documents": num_pool,
        "num_scored_documents": num_scored,
        "num_shared_documents": num_shared_documents,
        "num_shared_ngrams": len(shared),
        "num_pool_documents_sharing": num_sharing,
    }


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _ngrams(words: Sequence[str], order: int) -> Iterator[str]:
    return (" ".join(words[start : start + order]) for start in range(len(words) - order + 1))

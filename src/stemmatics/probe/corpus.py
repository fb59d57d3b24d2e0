"""Facts about texts: ids, registers, near-duplicate groups, splits. No text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.lm.contents import content_hash
from stemmatics.lm.corpus import documents_table
from stemmatics.probe.base import Context, Made, NoModel
from stemmatics.probe.sources import corpus_of


class CorpusProbe(NoModel):
    """Reads a corpus once and writes what may be kept of it."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made]:
        """One row a record."""
        del context
        for fact in facts:
            corpus = corpus_of(fact)
            if content_hash(corpus) != fact.params["content_sha256"]:
                raise UserError(
                    f"the corpus {fact.label!r} has changed since it was pinned",
                    "its texts have another hash",
                    "Start the study again: the new texts are another corpus",
                )
            yield Made(fact, {"documents": documents_table(corpus, seed=fact.params["seed"])})

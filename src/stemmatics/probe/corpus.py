"""Facts about texts: ids, registers, near-duplicate groups, splits. No text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.corpus import DOCUMENTS
from stemmatics.lm.text.contents import content_hash
from stemmatics.lm.text.corpus import read
from stemmatics.lm.text.groups import GroupIndex, assign_split
from stemmatics.lm.text.rendering import Renderer
from stemmatics.probe.base import Context, FactOutput, NoModel
from stemmatics.probe.sources import corpus_of


class CorpusProbe(NoModel):
    """Reads a corpus once and writes what may be kept of it."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
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
            yield FactOutput(fact, {"documents": documents_table(corpus, seed=fact.params["seed"])})


def documents_table(
    source: Corpus,
    *,
    seed: int,
    key: bytes | None = None,
    errors: Literal["refuse", "replace"] = "refuse",
    own_template: Renderer | None = None,
) -> pa.Table:
    """The ``documents`` table: one row a record in input order, with group and split, no text.

    ``source.eval_share`` of the groups are EVAL. Training material is not resampled: each record is
    its own group. Memory: about 0.7 kB a document, whatever its length.
    """
    index = GroupIndex() if source.role == "text" else None
    rows: list[tuple[Any, ...]] = []
    for document in read(source, key=key, errors=errors, own_template=own_template):
        if index is not None:
            index.add(document.doc_id, document.text)
        described = (document.index, document.doc_id, document.register, document.source, document.row)
        rows.append((*described, len(document.text.encode()), sorted(document.flags)))
    group_of = {row[1]: row[1] for row in rows} if index is None else index.groups()
    split_of = {group: assign_split(group, seed, source.eval_share) for group in set(group_of.values())}
    names = ("index", "doc_id", "register", "source", "row", "num_bytes", "flags")
    columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    columns["group"] = [group_of[doc_id] for doc_id in columns.get("doc_id", ())]
    columns["split"] = [split_of[group] for group in columns["group"]]
    return pa.table({name: columns.get(name, []) for name in DOCUMENTS.names}, schema=DOCUMENTS)

"""A corpus: ids, registers, near-duplicate groups and splits of its documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pydantic import Field

from stemmatics.core.corpora import Corpus
from stemmatics.core.facts import Fact, FactKind, FactParams

# one row a record of a corpus, input order; no text
DOCUMENTS = pa.schema(
    [
        ("index", pa.int64()),
        ("doc_id", pa.string()),
        ("register", pa.string()),
        ("group", pa.string()),
        ("split", pa.string()),
        ("source", pa.string()),
        ("row", pa.int64()),
        ("num_bytes", pa.int64()),
        ("flags", pa.list_(pa.string())),
    ]
)


class CorpusParams(FactParams):
    """The content by its hash, and what assigns registers, groups and splits."""

    content_sha256: str
    num_documents: int
    num_bytes: int
    role: str
    register_name: str | None = Field(alias="register")
    register_field: str | None
    eval_share: float
    seed: int
    private: bool


CORPUS = FactKind("corpus", 1, CorpusParams, {"documents": DOCUMENTS})


def corpus_fact(name: str, corpus: Corpus, pin: Mapping[str, Any], seed: int) -> Fact:
    """The corpus ``name`` of a stemma, with its pin."""
    params = CorpusParams(
        content_sha256=pin["content_sha256"],
        num_documents=pin["num_documents"],
        num_bytes=pin["num_bytes"],
        role=corpus.role,
        register=corpus.register_name,
        register_field=corpus.register_field,
        eval_share=corpus.eval_share,
        seed=seed,
        private=corpus.private,
    )
    return CORPUS.make(params, label=name, where=corpus.model_dump(mode="json", by_alias=True))

"""A declared study without models: names with pins, and tables of sums written by hand."""

from __future__ import annotations

import pyarrow as pa

from stemmatics.core.stemma import Stemma
from stemmatics.facts.corpus import DOCUMENTS
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.facts.replies import ITEMS
from stemmatics.facts.score import SCORE_PARTS, SCORES, SCORING

SCHEMAS = {
    "documents": DOCUMENTS,
    "scores": SCORES,
    "score_parts": SCORE_PARTS,
    "scoring": SCORING,
    "items": ITEMS,
}
METADATA = {
    "token_ids_sha256": "same ids",
    "prefix_id": 0,
    "window_size": 100,
    "window_stride": 90,
    "dtype": "float32",
}


class MadeTables:
    """Rows by fact; a fact without rows is one that failed."""

    def __init__(self):
        self._tables = {}

    def put(self, fact, **tables):
        """``put(fact, scores=[{...}])``: missing columns are null."""
        for name, rows in tables.items():
            complete = [{**dict.fromkeys(SCHEMAS[name].names), **row} for row in rows]
            self._tables[fact.key, name] = pa.Table.from_pylist(complete, schema=SCHEMAS[name])

    def drop(self, fact):
        self._tables = {key: rows for key, rows in self._tables.items() if key[0] != fact.key}

    def has(self, fact):
        return any(key == fact.key for key, _ in self._tables)

    def read(self, fact, table):
        return self._tables[fact.key, table]


def pinned(checkpoints, corpora, *, stages=None, **declared):
    """``checkpoints`` are bases by name (None for a base); ``corpora`` are roles by name."""
    stemma = Stemma.model_validate(
        {
            "checkpoints": {
                name: {"source": f"org/{name}", **({} if base is None else {"base": base})}
                for name, base in checkpoints.items()
            },
            "corpora": {name: {"path": f"{name}.jsonl", "role": role} for name, role in corpora.items()},
            "stages": stages or {},
            **declared,
        }
    )
    pins = Pins(
        checkpoints={
            name: {"weights": f"weights of {name}", "tokenizer": "t", "config": "c"} for name in checkpoints
        },
        corpora={
            name: {"content_sha256": f"text of {name}", "num_documents": 9, "num_bytes": 900}
            for name in corpora
        },
    )
    return Pinned(stemma, pins)


def documents(registers, groups=None):
    """Rows of a corpus: one document per register, each in its own group by default."""
    groups = groups or [f"group {index}" for index in range(len(registers))]
    return [
        {"index": index, "doc_id": doc_id(index), "register": register, "group": group}
        for index, (register, group) in enumerate(zip(registers, groups, strict=True))
    ]


def doc_id(index):
    return f"{index:02d}" + "abcdef0123456789" * 2


def scores(nll, num_tokens, num_bytes):
    """Rows of sums by document; a row whose nll is None is left out."""
    return [
        {"index": index, "doc_id": doc_id(index), "nll_sum": n, "num_tokens": t, "num_bytes": b}
        for index, (n, t, b) in enumerate(zip(nll, num_tokens, num_bytes, strict=True))
        if n is not None
    ]


def parts(axis, bins):
    """Rows of one axis; ``bins`` are nats by document index by bin."""
    return [
        {"index": index, "axis": axis, "bin": name, "nll_sum": nll, "num_tokens": 1, "num_bytes": 1}
        for name, nll_by_index in bins.items()
        for index, nll in nll_by_index.items()
    ]

"""Checks that a stored fact matches its record, and that the record matches the fact's description."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.keys import canonical_json
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger

# tables with one row per document of their corpus
_PER_DOCUMENT_TABLES = ("scores", "items")


def check_fact(ledger: Ledger, fact: Fact) -> str:
    """The first problem with a fact's record and files, or the empty string."""
    if not ledger.has(fact.key):
        reason = ledger.failures().get(fact.key, {}).get("reason")
        return f"failed when it ran: {reason}" if reason else "missing from the run"
    try:
        record = ledger.fact_record(fact.key)
        described = {name: record[name] for name in fact.description}
        if canonical_json(described) != canonical_json(fact.description):
            return "its record describes another fact"
        if set(record["files"]) != {
            path.relative_to(ledger.root).as_posix() for path in ledger.files_of(fact.key)
        }:
            return "its files are not those that its record names: one is missing or was added"
        for name, expected in record["files"].items():
            problem = _check_file(ledger, name, expected, fact.key)
            if problem:
                return f"{name}: {problem}"
        return _check_documents(ledger, fact, record["files"])
    except (UserError, KeyError, OSError, ValueError, TypeError) as error:
        return f"can't be read: {error}"


def _check_file(ledger: Ledger, name: str, expected: dict[str, object], key: str) -> str:
    path = ledger.root / name
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if size != expected["num_bytes"]:
        return f"truncated or altered: {size} bytes instead of {expected['num_bytes']}"
    if sha256_of(path) != expected["sha256"]:
        return "altered since it was written"
    table = ledger.read(key, path.parent.name)
    if table.num_rows != expected["num_rows"]:
        return f"{table.num_rows} rows instead of {expected['num_rows']}"
    return _not_finite(table)


def _not_finite(table: pa.Table) -> str:
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_floating(column.type) and pc.any(pc.invert(pc.is_finite(column.drop_null()))).as_py():
            return f"column {name} holds a number that is not finite"
    return ""


def _check_documents(ledger: Ledger, fact: Fact, files: dict[str, object]) -> str:
    """Exactly the documents of the corpus must have rows."""
    corpus = fact.needs.get("corpus")
    if corpus is None or not ledger.has(corpus.key):
        return ""
    for table in _PER_DOCUMENT_TABLES:
        if f"tables/{table}/{fact.key}.parquet" not in files:
            continue
        ids = "doc_id" if table == "scores" else "item_id"
        ours = ledger.read(fact.key, table).select(["index", ids]).to_pylist()
        theirs = ledger.read(corpus.key, "documents").select(["index", "doc_id"]).to_pylist()
        have = {(row["index"], row[ids]) for row in ours}
        limit = fact.params.get("num_documents", len(theirs))
        want = {(row["index"], row["doc_id"]) for row in theirs if row["index"] < limit}
        if len(ours) != len(have):
            return f"{table}: a document appears twice"
        if have != want:
            missing, foreign = len(want - have), len(have - want)
            return f"{table}: {missing} documents of the corpus are missing, {foreign} are not in it"
    return ""

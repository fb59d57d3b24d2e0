"""The tables of a run folder: those of every registered kind of fact, and those of results.

A change of meaning raises SCHEMA_VERSION.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from stemmatics.core import plugins

SCHEMA_VERSION = 2

_TEXT_LIST = pa.list_(pa.string())

RESULT_SCHEMAS: dict[str, pa.Schema] = {
    # numbers that measures compute from the sums; `verify` recomputes them
    "estimates": pa.schema(
        [
            ("id", pa.string()),
            ("measure", pa.string()),
            ("quantity", pa.string()),
            ("subject", pa.string()),
            ("value", pa.float64()),
            ("lo", pa.float64()),
            ("hi", pa.float64()),
            ("level", pa.float64()),
            ("method", pa.string()),
            ("n", pa.int64()),
            ("unit", pa.string()),
            ("units", pa.string()),
            ("smallest_effect", pa.float64()),
            ("tag", pa.string()),
            ("facts", _TEXT_LIST),
            ("note", pa.string()),
        ]
    ),
    # verdicts, labels and ties: a word from a fixed set with its reason
    "categories": pa.schema(
        [
            ("id", pa.string()),
            ("measure", pa.string()),
            ("quantity", pa.string()),
            ("subject", pa.string()),
            ("value", pa.string()),
            ("reason", pa.string()),
            ("n", pa.int64()),
            ("unit", pa.string()),
            ("tag", pa.string()),
            ("facts", _TEXT_LIST),
        ]
    ),
    # numbers that are withheld: why, and what would help
    "refusals": pa.schema(
        [
            ("id", pa.string()),
            ("measure", pa.string()),
            ("quantity", pa.string()),
            ("subject", pa.string()),
            ("reason", pa.string()),
            ("fix", pa.string()),
            ("tag", pa.string()),
            ("facts", _TEXT_LIST),
        ]
    ),
    # every printed number or word: which field of which result, and its text
    "claims": pa.schema(
        [
            ("id", pa.string()),
            ("result", pa.string()),
            ("field", pa.string()),
            ("form", pa.string()),
            ("scale", pa.float64()),
            ("text", pa.string()),
            ("sentence", pa.string()),
            ("topic", pa.string()),
        ]
    ),
}


@cache
def schemas() -> dict[str, pa.Schema]:
    """Schemas by table name, in the order in which kinds of facts are registered.

    Raises ValueError where two kinds declare one table with different columns.
    """
    merged: dict[str, pa.Schema] = {}
    for entry in plugins.entries("facts"):
        for name, schema in plugins.find("facts", entry.name).tables.items():
            if name in merged and not merged[name].equals(schema):
                message = f"two kinds of facts declare the table {name!r} with different columns"
                raise ValueError(message)
            merged[name] = schema
    return {**merged, **RESULT_SCHEMAS}

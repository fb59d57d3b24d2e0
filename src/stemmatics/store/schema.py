"""The tables of a run folder: sums only. A change of meaning raises SCHEMA_VERSION."""

from __future__ import annotations

import pyarrow as pa

from stemmatics.store.schema_measures import MEASURE_SCHEMAS

SCHEMA_VERSION = 1

_TEXT_LIST = pa.list_(pa.string())

SCHEMAS: dict[str, pa.Schema] = {
    # one row a record of a corpus, input order; no text
    "documents": pa.schema(
        [
            ("index", pa.int64()),
            ("doc_id", pa.string()),
            ("register", pa.string()),
            ("group", pa.string()),
            ("split", pa.string()),
            ("source", pa.string()),
            ("row", pa.int64()),
            ("num_bytes", pa.int64()),
            ("flags", _TEXT_LIST),
        ]
    ),
    # one row a document and scoring: nats, scored tokens, UTF-8 bytes of the scored span
    "scores": pa.schema(
        [
            ("index", pa.int64()),
            ("doc_id", pa.string()),
            ("nll_sum", pa.float64()),
            ("num_tokens", pa.int64()),
            ("num_bytes", pa.int64()),
            ("excluded_nll_sum", pa.float64()),
            ("num_outside_support", pa.int64()),
            ("flags", _TEXT_LIST),
        ]
    ),
    # the same sums split along an axis: token_class, position or frequency
    "score_parts": pa.schema(
        [
            ("index", pa.int64()),
            ("axis", pa.string()),
            ("bin", pa.string()),
            ("nll_sum", pa.float64()),
            ("num_tokens", pa.int64()),
            ("num_bytes", pa.int64()),
        ]
    ),
    # one row a scoring: what the numbers were computed with
    "scoring": pa.schema(
        [
            ("token_ids_sha256", pa.string()),
            ("tokenizer", pa.string()),
            ("prefix_id", pa.int64()),
            ("prefix", pa.string()),
            ("window_size", pa.int64()),
            ("window_stride", pa.int64()),
            ("dtype", pa.string()),
            ("device", pa.string()),
            ("attention", pa.string()),
            ("num_ids", pa.int64()),
            ("dtype_deviation", pa.float64()),
        ]
    ),
    # one row a checkpoint, pinned or made
    "checkpoints": pa.schema(
        [
            ("source", pa.string()),
            ("kind", pa.string()),
            ("revision", pa.string()),
            ("weights_sha256", pa.string()),
            ("tokenizer_sha256", pa.string()),
            ("config_sha256", pa.string()),
            ("num_parameters", pa.int64()),
            ("flags", _TEXT_LIST),
        ]
    ),
    # one row a logged update of a training stage
    "training": pa.schema(
        [("step", pa.int64()), ("loss", pa.float64()), ("num_tokens", pa.int64())],
    ),
    # one row a question: was the reply right, was it a refusal
    "items": pa.schema(
        [
            ("index", pa.int64()),
            ("item_id", pa.string()),
            ("category", pa.string()),
            ("outcome", pa.string()),
            ("correct", pa.int64()),
            ("num_accepted", pa.int64()),
            ("num_tokens", pa.int64()),
        ]
    ),
    # what a measure made of the sums; `verify` makes them again
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
    # every printed number: which field of which estimate, and its text
    "claims": pa.schema(
        [
            ("id", pa.string()),
            ("estimate", pa.string()),
            ("field", pa.string()),
            ("form", pa.string()),
            ("scale", pa.float64()),
            ("text", pa.string()),
            ("sentence", pa.string()),
            ("topic", pa.string()),
        ]
    ),
    **MEASURE_SCHEMAS,
}

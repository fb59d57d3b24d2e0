"""The loss of a corpus under a checkpoint: sums by document."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams, Tag
from stemmatics.core.scoring import Scoring
from stemmatics.facts.pinned import Pinned

# one row a document and scoring: nats, scored tokens, UTF-8 bytes of the scored span
SCORES = pa.schema(
    [
        ("index", pa.int64()),
        ("doc_id", pa.string()),
        ("nll_sum", pa.float64()),
        ("num_tokens", pa.int64()),
        ("num_bytes", pa.int64()),
        ("excluded_nll_sum", pa.float64()),
        ("num_outside_support", pa.int64()),
        ("flags", pa.list_(pa.string())),
    ]
)
# the same sums split along an axis: token_class, position or frequency
SCORE_PARTS = pa.schema(
    [
        ("index", pa.int64()),
        ("axis", pa.string()),
        ("bin", pa.string()),
        ("nll_sum", pa.float64()),
        ("num_tokens", pa.int64()),
        ("num_bytes", pa.int64()),
    ]
)
# one row a scoring: what the numbers were computed with
SCORING = pa.schema(
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
)


class ScoreParams(FactParams):
    """``scoring`` is ``Scoring.key()``, ``numerics`` is ``Numerics.key()``."""

    scoring: dict[str, Any]
    numerics: dict[str, Any]


SCORE = FactKind("score", 1, ScoreParams, {"scores": SCORES, "score_parts": SCORE_PARTS, "scoring": SCORING})


def score_fact(
    pinned: Pinned,
    checkpoint: str | Fact,
    corpus: str,
    scoring: Scoring,
    *,
    partner: str | None = None,
    tag: Tag = "main",
) -> Fact:
    """Per-document sums of a checkpoint on a corpus.

    ``partner`` is the checkpoint whose tokenizer the support is shared with.
    """
    needs = {"checkpoint": pinned.checkpoint(checkpoint), "corpus": pinned.corpus(corpus)}
    if partner is not None:
        needs["partner"] = pinned.checkpoint(partner)
    params = ScoreParams(scoring=scoring.key(), numerics=pinned.stemma.numerics.key())
    return SCORE.make(params, needs, label=f"{needs['checkpoint'].label} on {corpus}", tag=tag)

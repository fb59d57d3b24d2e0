"""The calibrated pairs of a registry that another study exported."""

from __future__ import annotations

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, NoParams
from stemmatics.facts.pinned import Pinned

REGISTRY_NAMES = (
    "base",
    "descendant",
    "family",
    "lab",
    "generation",
    "pipeline",
    "recipe_class",
    "recipe_hash",
    "corpus_sha256",
)
REGISTRY_NUMBERS = ("residual", "residual_lo", "residual_hi", "drop", "drop_lo", "drop_hi")
# one row a calibrated pair: nats/byte, under a recipe and on a text by their hashes
PAIRS = pa.schema(
    [
        *((name, pa.string()) for name in REGISTRY_NAMES),
        *((name, pa.float64()) for name in REGISTRY_NUMBERS),
        ("n", pa.int64()),
    ]
)
REGISTRY = FactKind("registry", 1, NoParams, {"registry": PAIRS})


def registry_fact(pinned: Pinned, name: str) -> Fact:
    """The pairs of a registry, declared as a corpus of ``role: data``."""
    return REGISTRY.make(NoParams(), {"registry": pinned.corpus(name)}, label=name)

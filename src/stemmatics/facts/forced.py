"""What an event's token does to the reply: each of the two is forced, the descendant continues."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams

# one row an event with a rule to be judged by: is the reply good after each of the two tokens
FORCED_ROWS = pa.schema(
    [
        ("event", pa.int64()),
        ("index", pa.int64()),
        ("category", pa.string()),
        ("valid_after_base", pa.int64()),
        ("valid_after_descendant", pa.int64()),
    ]
)


class ForcedParams(FactParams):
    """How long a reply may be."""

    max_new_tokens: int
    numerics: dict[str, Any]


FORCED = FactKind("forced", 1, ForcedParams, {"forced": FORCED_ROWS})


def forced_fact(params: ForcedParams, events: Fact, descendant: Fact) -> Fact:
    """Replies of ``descendant`` after either token of ``events``."""
    corpus = events.needs["corpus"]
    needs = {"events": events, "descendant": descendant, "corpus": corpus}
    return FORCED.make(params, needs, label=f"{descendant.label} forced on {corpus.label}")

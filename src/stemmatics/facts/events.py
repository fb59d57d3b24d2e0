"""Where base and descendant disagree: events on prompts, or given ones."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams, Tag

Support = Literal["first", "later", "earlier", "manifest"]
FIRST: Support = "first"
LATER: Support = "later"
EARLIER: Support = "earlier"
MANIFEST: Support = "manifest"
Outcome = Literal["event", "agreed", "ended", "too_long", "empty", "duplicate", "refused"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# one row a prompt and support: where a pair disagrees, or why there is no event; no ids
EVENT_ROWS = pa.schema(
    [
        ("event", pa.int64()),
        ("index", pa.int64()),
        ("item_id", pa.string()),
        ("category", pa.string()),
        ("support", pa.string()),
        ("outcome", pa.string()),
        ("prefix_length", pa.int64()),
        ("num_new", pa.int64()),
    ]
)


class EventsParams(FactParams):
    """Which supports, and how far both models are followed; ``opening_tokens`` makes prompts of documents."""

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"opening_tokens"})

    supports: list[Support]
    max_prompts: int
    max_new_tokens: int
    numerics: dict[str, Any]
    opening_tokens: int | None = None


EVENTS = FactKind("events", 1, EventsParams, {"events": EVENT_ROWS}, artifact="private")


def events_fact(
    params: EventsParams, models: dict[str, Fact], corpus: Fact, *, label: str, tag: Tag = "main"
) -> Fact:
    """Events of ``models`` (``base``, and ``descendant`` or ``noise``) on the prompts of a corpus."""
    return EVENTS.make(params, {**models, "corpus": corpus}, label=label, tag=tag)

"""Event prefixes and tokens: the user's text, kept under ``private/`` apart from the sums."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.lm.crossing.events import Event
from stemmatics.probe.base import Context
from stemmatics.store.files import sha256_of, write_bytes


def _path(fact: Fact, context: Context) -> Path:
    return context.ledger.root / "private" / f"events-{fact.key}.jsonl"


def write_events(fact: Fact, context: Context, events: Iterable[Event]) -> str:
    """Write one line per event, in the form of a manifest; returns the file's hash."""
    lines = [
        json.dumps(
            {
                "event": event.event,
                "prompt": event.prompt,
                "support": event.support,
                "prefix_ids": event.prefix_ids,
                "base_id": event.base_id,
                "descendant_id": event.descendant_id,
                "num_new": event.num_new,
            }
        )
        for event in events
    ]
    path = _path(fact, context)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, "".join(f"{line}\n" for line in lines).encode())
    return sha256_of(path)


def read_events(fact: Fact, context: Context) -> list[Event]:
    """The events of an ``events`` fact.

    Raises:
        UserError: the file is missing or was altered.
    """
    path = _path(fact, context)
    if not path.is_file() or sha256_of(path) != context.ledger.fact_record(fact.key).get("private_sha256"):
        raise UserError(
            f"the events of {fact.label!r} can't be read",
            f"{path} is missing or was altered",
            f"Delete facts/{fact.key}.json in the run and run the study again",
        )
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Event(**{**row, "prefix_ids": tuple(row["prefix_ids"])}) for row in rows]

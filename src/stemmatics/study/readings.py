"""How often a run loaded each checkpoint, ran it over a text, and tokenised each text: from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Kinds of events, and what one of each is called in a table.
LOAD, PASS, TOKENIZE = "load", "pass", "tokenize"


@dataclass
class Count:
    """Events of one kind about one checkpoint or text."""

    times: int = 0
    seconds: float = 0.0
    num_tokens: int = 0


class Readings:
    """Listens to events and counts loads, passes and tokenisations by the name of what was read."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Count] = {}

    def event(self, event: Mapping[str, Any]) -> None:
        """One event; others than those counted here are left alone."""
        kind = str(event.get("kind"))
        if kind not in {LOAD, PASS, TOKENIZE}:
            return
        count = self._counts.setdefault((kind, str(event["label"])), Count())
        count.times += 1
        count.seconds += float(event["spent"])
        count.num_tokens += int(event.get("num_tokens", 0))

    def times(self, kind: str) -> dict[str, int]:
        """How often, by name."""
        return {label: count.times for (known, label), count in self._counts.items() if known == kind}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each kind and name."""
        return [
            {
                "stage": f"{kind} {label}",
                "seconds": count.seconds,
                "times": count.times,
                **({"tokens": count.num_tokens} if count.num_tokens else {}),
            }
            for (kind, label), count in sorted(self._counts.items())
        ]

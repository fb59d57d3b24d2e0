"""Facts: one thing measured or made, keyed by the SHA-256 of how it was got."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from stemmatics.core.keys import key_of, seed_from

Tag = Literal["main", "control", "floor", "seed"]


@dataclass(frozen=True, eq=False)
class Fact:
    """A node of the DAG. ``label``, ``tag`` and ``where`` say nothing about the result: not keyed.

    ``params`` is what decides the output; ``needs`` are the facts it is made from, by role;
    ``where`` tells a probe on this machine where sources lie (their content is in ``params``).
    """

    probe: str
    version: int
    params: Mapping[str, Any]
    needs: Mapping[str, Fact] = field(default_factory=dict)
    label: str = ""
    tag: Tag = "main"
    where: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def description(self) -> dict[str, Any]:
        """What is hashed; the needs appear by their keys."""
        return {
            "probe": self.probe,
            "version": self.version,
            "params": self.params,
            "needs": {role: fact.key for role, fact in self.needs.items()},
        }

    @cached_property
    def key(self) -> str:
        """64 hex digits; two facts with one key are the same fact."""
        return key_of(self.description)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def seed(self, root: int) -> int:
        """This fact's own seed: from the stemma's seed and the key."""
        return seed_from(root, self.key)


def closure(facts: Iterable[Fact]) -> dict[str, Fact]:
    """All facts and what they need, by key, needs before their users."""
    ordered: dict[str, Fact] = {}
    stack: list[tuple[Fact, bool]] = [(fact, False) for fact in reversed(list(facts))]
    while stack:
        fact, expanded = stack.pop()
        if fact.key in ordered:
            continue
        if expanded:
            ordered[fact.key] = fact
            continue
        stack.append((fact, True))
        stack.extend((need, False) for need in reversed(list(fact.needs.values())))
    return ordered


def to_json(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """The closure as plain data, in dependency order."""
    return [
        {**fact.description, "key": fact.key, "label": fact.label, "tag": fact.tag, "where": dict(fact.where)}
        for fact in closure(facts).values()
    ]


def from_json(rows: Iterable[Mapping[str, Any]]) -> dict[str, Fact]:
    """The inverse of :func:`to_json`; a row whose key does not follow from it is a ValueError."""
    facts: dict[str, Fact] = {}
    for row in rows:
        fact = Fact(
            probe=row["probe"],
            version=row["version"],
            params=row["params"],
            needs={role: facts[key] for role, key in row["needs"].items()},
            label=row.get("label", ""),
            tag=row.get("tag", "main"),
            where=row.get("where", {}),
        )
        if row.get("key", fact.key) != fact.key:
            message = f"fact {row['key'][:12]} does not follow from its description"
            raise ValueError(message)
        facts[fact.key] = fact
    return facts

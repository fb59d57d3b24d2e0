"""Facts: measurements and artifacts, keyed by their description; and the contract of each kind of fact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from stemmatics.core.keys import key_of, seed_from

Tag = Literal["main", "control", "floor", "seed"]
Artifact = Literal["none", "cache", "private"]


@dataclass(frozen=True, eq=False)
class Fact:
    """A node of the DAG. ``label``, ``tag`` and ``where`` do not affect the result and are not in the key.

    ``params`` determine the output; ``needs`` are the facts it is made from, by role; ``where`` holds
    the locations of sources on this machine (hashes of their content are in ``params``).
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
        """What is hashed; needs appear as their keys."""
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


class FactParams(BaseModel):
    """The parameters of one kind of fact: everything besides its needs that decides its output.

    A field named in ``left_out_if_none`` is absent from the key while it is None, so that a parameter
    can be added without changing the keys of facts that do not use it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    left_out_if_none: ClassVar[frozenset[str]] = frozenset()

    def plain(self) -> dict[str, Any]:
        """Plain data, as it is hashed."""
        values = self.model_dump(mode="json", by_alias=True)
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in self.left_out_if_none
        }


class NoParams(FactParams):
    """For kinds of facts that are determined by their needs."""


@dataclass(frozen=True)
class FactKind:
    """The contract of one kind of fact, registered under the entry points ``stemmatics.facts``.

    ``version`` is raised whenever the same parameters and needs would give another output, so that
    results of earlier versions are computed again. ``tables`` are the schemas of its rows, by table.
    ``artifact`` is what a fact writes besides its rows: a folder in the cache (a checkpoint, a fitted
    correction), or a file under ``private/`` of the run (token ids). A fact whose artifact was deleted is
    computed again when a missing fact needs it.
    """

    name: str
    version: int
    Params: type[FactParams]
    tables: Mapping[str, pa.Schema]
    artifact: Artifact = "none"

    def make(
        self,
        params: FactParams,
        needs: Mapping[str, Fact] | None = None,
        *,
        label: str = "",
        tag: Tag = "main",
        where: Mapping[str, Any] | None = None,
    ) -> Fact:
        """A fact of this kind."""
        assert type(params) is self.Params, f"{self.name} takes {self.Params.__name__}"
        return Fact(
            self.name, self.version, params.plain(), needs or {}, label=label, tag=tag, where=where or {}
        )

    def table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows as one of the kind's tables."""
        return pa.Table.from_pylist(list(rows), schema=self.tables[name])


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

"""What a probe is, and what it is given."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.numerics import Numerics
from stemmatics.probe.workspace import Workspace
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """What a fact takes: tokens through a model (3 x for training), and bytes.

    ``memory_parts`` are the parts of ``memory_bytes`` by name, where they are known.
    """

    num_tokens: int = 0
    flops: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    download_bytes: int = 0
    memory_parts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """Where a probe finds what its facts need, what its worker keeps for it, and who listens to progress."""

    ledger: Ledger
    cache: Cache
    numerics: Numerics
    seed: int
    on_event: Callable[[Event], None] = field(default=lambda _event: None)
    workspace: Workspace = field(default_factory=Workspace)

    def scratch(self) -> Path:
        """The folder on the cache's disk for what can be made again."""
        folder = self.cache.root / "making"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def report(self, fact: Fact, done: int, total: int, unit: str) -> None:
        """Progress of one fact; listeners only watch."""
        self.on_event(
            {
                "key": fact.key,
                "probe": fact.probe,
                "label": fact.label,
                "done": done,
                "total": total,
                "unit": unit,
            }
        )

    def artifact_path(self, fact: Fact) -> Path:
        """The folder of a checkpoint that a stage made."""
        folder = self.cache.find(fact.key)
        if folder is None:
            raise UserError(
                f"the checkpoint {fact.label!r} is not in the cache",
                f"{self.cache.path(fact.key)} is missing or incomplete",
                "Run the study again; it makes the checkpoint again from its recipe",
            )
        return folder


@dataclass(frozen=True)
class FactOutput:
    """One fact's output: rows by table, and plain data for its record."""

    fact: Fact
    tables: Mapping[str, pa.Table]
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """One fact that could not be made; its siblings go on."""

    fact: Fact
    reason: str


def each(facts: Sequence[Fact], make: Callable[[Fact], FactOutput | Failed]) -> Iterator[FactOutput | Failed]:
    """Facts one by one: what one throws fails that one, and its siblings go on."""
    for fact in facts:
        try:
            output = make(fact)
        except Exception as error:  # noqa: BLE001 - whatever a text or a model throws must not end the sweep
            output = Failed(fact, reason_of(error))
        yield output


def reason_of(error: Exception) -> str:
    """An exception in one line; of one that is not for the user, also where it was thrown."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError):
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(last.filename).name}:{last.lineno})"


class Probe(Protocol):
    """Makes facts from models.

    A probe whose facts are made from a pass of a checkpoint over a corpus may also have a method
    ``reading(fact) -> probe.passes.Reading``: facts of one job then share passes.
    """

    def group(self, fact: Fact) -> str:
        """Batching key: facts with equal keys share one model load."""

    def cost(self, fact: Fact) -> Cost:
        """An estimate made without loading anything."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Make facts of one group, each yielded as soon as it is done."""


class NoModel:
    """What probes share whose facts stand alone and put nothing through a model."""

    def group(self, fact: Fact) -> str:
        """Each alone."""
        return fact.key

    def cost(self, fact: Fact) -> Cost:
        """Reading and arithmetic only."""
        del fact
        return Cost()

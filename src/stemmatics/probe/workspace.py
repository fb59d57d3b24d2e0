"""What a worker keeps between facts and jobs: loaded checkpoints, tokenised texts, passes over them.

All of it can be made again, and is bounded: models by memory, texts and passes by memory and disk.
"""

from __future__ import annotations

import gc
import shutil
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from stemmatics.core.facts import Fact

# Of the memory that is available when the first checkpoint is loaded, shared by the workers of this machine.
MODEL_SHARE = 0.5
# Of the disk that is free, for texts and passes each.
DISK_SHARE = 0.25
# Texts that stay in memory, all together.
TEXT_BYTES = 1 << 27


class Sized(Protocol):
    """Something that takes bytes."""

    @property
    def num_bytes(self) -> int:
        """How many."""
        ...


Value = TypeVar("Value", bound=Sized)


class LeastRecentlyUsed(Generic[Value]):
    """Values by key, those used last kept longest; ``max_bytes`` bounds them all, the newest excepted."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def find(self, key: Hashable) -> Value | None:
        """The value, which counts as used."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value, and let go of others until all fit."""
        self._values[key] = value
        self._values.move_to_end(key)
        self.make_room(0, keep=1)
        return value

    def make_room(self, num_bytes: int, *, keep: int = 0) -> None:
        """Let go of the values used longest ago until so many bytes fit beside the rest."""
        if self.max_bytes is None:
            return
        dropped = False
        while len(self._values) > keep and self.num_bytes + num_bytes > self.max_bytes:
            self._values.popitem(last=False)
            dropped = True
        if dropped:
            # models have cycles
            gc.collect()

    @property
    def num_bytes(self) -> int:
        """Bytes of all values."""
        return sum(value.num_bytes for value in self._values.values())

    def values(self) -> Iterable[Value]:
        """All values, those used last at the end."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)


@dataclass(eq=False)
class Resident:
    """A loaded checkpoint. ``notes`` are what is known about it, kept as long as it is."""

    loaded: Any
    num_bytes: int
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Workspace:
    """A worker's own; nothing in it is needed after its run.

    ``job`` are the facts that are being made together: a pass for one of them also keeps what the
    others will want. ``tokenizers`` are those of checkpoints that are not loaded; ``adapted`` says which
    checkpoints are adapters on a base.
    """

    models: LeastRecentlyUsed[Resident] = field(default_factory=LeastRecentlyUsed)
    texts: LeastRecentlyUsed[Any] = field(default_factory=LeastRecentlyUsed)
    passes: LeastRecentlyUsed[Any] = field(default_factory=LeastRecentlyUsed)
    tokenizers: dict[str, Any] = field(default_factory=dict)
    adapted: dict[str, bool] = field(default_factory=dict)
    job: tuple[Fact, ...] = ()

    def notes_of(self, loaded: Any) -> dict[str, Any]:
        """What is known about a checkpoint; empty for one that is not kept."""
        notes = (resident.notes for resident in self.models.values() if resident.loaded is loaded)
        return next(notes, {})

    def bound_models(self, available_bytes: Callable[[], int], num_workers: int) -> None:
        """Set the bound of models before the first is loaded."""
        if self.models.max_bytes is None:
            self.models.max_bytes = int(MODEL_SHARE * available_bytes() / num_workers)

    def bound_disk(self, folder: Path) -> None:
        """Set the bounds of texts and passes by what is free now, their own files counted as free."""
        for store in (self.texts, self.passes):
            store.max_bytes = int(DISK_SHARE * (shutil.disk_usage(folder).free + store.num_bytes))

"""The artifacts that are kept between runs: checkpoints, adapters and fitted corrections."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.store.cache import Cache


@dataclass(frozen=True)
class CacheContent:
    """Where the cache is, and key, label and size of each entry; ``num_removed`` of them are gone now."""

    folder: Path
    entries: list[dict[str, Any]]
    num_removed: int


def cache(*, clear: bool = False) -> CacheContent:
    """List the cache, or clear it."""
    cache = Cache()
    return CacheContent(cache.root, cache.entries(), cache.clear() if clear else 0)

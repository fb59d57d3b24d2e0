"""Canonical JSON, SHA-256 keys, and seeds that follow from them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        named = {str(name): _plain(item) for name, item in value.items()}
        if len(named) != len(value):
            message = "a key can't hold two names with the same spelling"
            raise ValueError(message)
        return named
    if isinstance(value, str) or value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            message = f"a key can't hold {value!r}"
            raise ValueError(message)
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item) for item in value]
    message = f"a key can't hold a {type(value).__name__}"
    raise TypeError(message)


def canonical_json(value: Any) -> str:
    """JSON with one spelling for each value: sorted names, no white space, no NaN."""
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def key_of(value: Any) -> str:
    """SHA-256 of the canonical JSON, in 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def seed_from(seed: int, *names: str) -> int:
    """A 63-bit seed derived from the stemma's seed and from what it is used for."""
    digest = hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1

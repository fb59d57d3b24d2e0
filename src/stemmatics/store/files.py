"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, data: bytes) -> None:
    """Write by part file and rename; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Indented JSON, names in their order (a stemma's order is part of it); NaN is an error."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    write_bytes(path, (text + "\n").encode())


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex; reads a megabyte at a time."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

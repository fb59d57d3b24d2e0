"""Atomic writes: to a part file beside the target, which is then renamed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, data: bytes) -> None:
    """Write by part file and rename; a reader never sees an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, names in the given order (it is part of a stemma). NaN is an error."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    write_bytes(path, (text + "\n").encode())


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex; the file is not loaded whole."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

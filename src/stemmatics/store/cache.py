"""Large artifacts by fact key, such as trained checkpoints, shared between runs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from stemmatics.store.files import sha256_of, write_json

# written beside an artifact when it is complete
RECORD = "stemma.json"


def default_root() -> Path:
    """``STEMMATICS_CACHE``, else the user's cache folder."""
    configured = os.environ.get("STEMMATICS_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("stemmatics"))


class Cache:
    """Folders named by fact key. A folder is either complete or absent."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    def path(self, key: str) -> Path:
        """The folder for the artifact of a fact, whether it exists or not."""
        return self.root / "checkpoints" / key

    def find(self, key: str) -> Path | None:
        """The folder of an artifact; None if it is absent or a file has another size than recorded."""
        folder = self.path(key)
        record = self.record(key)
        if record is None:
            return None
        for name, size in record["sizes"].items():
            file = folder / name
            if not file.is_file() or file.stat().st_size != size:
                return None
        return folder

    def record(self, key: str) -> dict[str, Any] | None:
        """What was written beside the checkpoint when it was finished."""
        path = self.path(key) / RECORD
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    @contextmanager
    def scratch(self, key: str) -> Iterator[Path]:
        """A scratch folder to fill, under a lock; call :meth:`finish` to move it into the cache."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "locks").mkdir(exist_ok=True)
        with filelock.FileLock(self.root / "locks" / f"{key}.lock"):
            scratch = Path(tempfile.mkdtemp(prefix=f"{key[:12]}-", dir=self._scratch_root()))
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def finish(self, key: str, folder: Path, record: dict[str, Any]) -> dict[str, Any]:
        """Move a filled folder into the cache and record the hashes of its files."""
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        hashes = {file.relative_to(folder).as_posix(): sha256_of(file) for file in files}
        sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
        complete = {**record, "files": hashes, "sizes": sizes}
        write_json(folder / RECORD, complete)
        target = self.path(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
        return complete

    def entries(self) -> list[dict[str, Any]]:
        """Key, label and size in bytes of every artifact."""
        entries = []
        for folder in sorted((self.root / "checkpoints").glob("*")):
            record = self.record(folder.name) or {}
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            entries.append({"key": folder.name, "label": record.get("label", ""), "num_bytes": size})
        return entries

    def clear(self) -> int:
        """Remove everything; returns the number of artifacts removed."""
        entries = self.entries()
        for name in ("checkpoints", "making", "resuming"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        return len(entries)

    def _scratch_root(self) -> Path:
        folder = self.root / "making"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

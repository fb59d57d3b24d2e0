"""How much memory a device has left, so far as it can be told."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def available_bytes(device: torch.device) -> int:
    """Bytes that could still be taken: free memory of a GPU; of a CPU what the system and its limits leave.

    Where the system does not say what is free, half of what is built in.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    sizes = [size for size in (_free(), _below_limit()) if size is not None]
    if sizes:
        return min(sizes)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the system has no memory left."""
    text = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("not enough memory" in text or "out of memory" in text)
    )


def _free() -> int | None:
    """Linux's own estimate, which counts file caches that it would give up."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None


def _below_limit() -> int | None:
    """What a container's limit leaves, file caches that it would give up counted as free."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit == "max":
            return None
        rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - int(used) + int(rows.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None

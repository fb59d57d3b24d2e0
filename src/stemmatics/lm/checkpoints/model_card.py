"""The model card of exported weights: what they were made from and trained on last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stemmatics.store.files import write_bytes

UNKNOWN = "not known"


def write_card(
    folder: Path,
    name: str,
    *,
    made_from: str | None,
    how: str,
    trained_last: str | None,
    recipe: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``README.md`` in ``folder``, with a YAML header for the Hub.

    ``trained_last`` is the data of the last pretraining; if None, the card says that it is not known.
    """
    header = {
        "library_name": "transformers",
        "tags": ["stemmatics", how],
        "trained_last": trained_last or UNKNOWN,
    }
    lines = [
        "---",
        # JSON is YAML, so names are quoted correctly
        *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in header.items()),
        "---",
        f"# {name}",
        "",
        f"- made from: {made_from or 'nothing'}",
        f"- how: {how}",
        f"- trained last, before any post-training: {trained_last or UNKNOWN}",
    ]
    if recipe is not None:
        lines += ["", "```json", json.dumps(dict(recipe), indent=1, sort_keys=True), "```"]
    path = folder / "README.md"
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return path

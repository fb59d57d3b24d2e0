"""Write a commented stemma.yaml that runs as it is."""

from __future__ import annotations

from pathlib import Path

from stemmatics.core.errors import UserError
from stemmatics.presets.files import preset_text, presets


def list_presets() -> list[dict[str, str]]:
    """Name and description of every preset."""
    return [{"preset": preset.name, "study": preset.line} for preset in presets()]


def init(folder: str | Path = ".", preset: str = "nursery") -> Path:
    """Write ``FOLDER/stemma.yaml`` of a preset; returns its path.

    Raises UserError for an unknown preset, and where the file exists.
    """
    text = preset_text(preset)
    path = Path(folder) / "stemma.yaml"
    if path.exists():
        raise UserError(
            f"{path} already exists",
            "nothing is overwritten",
            "Choose another folder, or remove the file",
            code=2,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path

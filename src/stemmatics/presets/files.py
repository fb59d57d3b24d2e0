"""Presets by name, as a Stemma or as a commented stemma.yaml."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from stemmatics.core import plugins
from stemmatics.core.errors import UserError
from stemmatics.core.presets import Preset
from stemmatics.core.stemma import Stemma

DEFAULT = "nursery"
_HEADERS = {
    "stemma": "version of this file format",
    "name": "the run is written to runs/NAME",
    "seed": "all random draws follow from it",
    "checkpoints": "existing checkpoints: org/name[@revision], a folder, file.gguf or BASE+ADAPTER",
    "stages": "checkpoints to be trained or altered here: pretrain, cpt, sft, dpo, grpo, alter, recovery",
    "corpora": "texts to be scored (role: text) and training data of stages (role: data)",
    "scoring": "windows, prefix and support: two losses must share them to be comparable",
    "numerics": "device, dtype, attention, workers",
    "measures": "the questions, each with its settings",
}


def presets() -> list[Preset]:
    """All presets that are installed, the default first, the others by name."""
    return [plugins.find("presets", name) for name in _known()]


def _known() -> list[str]:
    return sorted(plugins.names("presets"), key=lambda name: (name != DEFAULT, name))


def preset(name: str, **options: Any) -> Stemma:
    """The study of a preset; ``options`` are those of its function. Raises UserError for an unknown name."""
    known = _known()
    if name not in known:
        raise UserError(
            f"unknown preset {name!r}",
            "no installed package registers it",
            f"Choose {', '.join(known)}; `stemma init --list` says what they are",
            code=2,
        )
    chosen: Preset = plugins.find("presets", name)
    return chosen(**options)


def preset_text(name: str) -> str:
    """A preset as commented YAML that ``stemma run`` takes as it is."""
    return to_yaml(preset(name))


def to_yaml(stemma: Stemma) -> str:
    """A stemma as YAML, each part under a comment that says what it is."""
    declared: dict[str, Any] = stemma.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    declared = {"stemma": stemma.stemma, "name": stemma.name, "seed": stemma.seed, **declared}
    writer = YAML()
    writer.width = 100
    parts = []
    for key, comment in _HEADERS.items():
        if key in declared:
            stream = io.StringIO()
            writer.dump({key: declared[key]}, stream)
            parts.append(f"# {comment}\n{stream.getvalue()}")
    return "\n".join(parts)

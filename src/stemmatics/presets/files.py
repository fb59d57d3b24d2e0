"""Presets by name, as a Stemma or as a commented stemma.yaml."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from ruamel.yaml import YAML

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma

_HEADERS = {
    "stemma": "the version of this file's form",
    "name": "the run goes to runs/NAME",
    "seed": "everything drawn follows from it",
    "checkpoints": "what exists: org/name[@revision], a folder, file.gguf or BASE+ADAPTER",
    "stages": "what is to be made here: pretrain, cpt, sft, dpo, grpo, alter",
    "corpora": "texts that are scored (role: text) and material for stages (role: data)",
    "scoring": "windows, prefix and support: what two losses must share to be comparable",
    "numerics": "device, dtype, attention, workers",
    "measures": "the questions, each with its settings",
}


def preset(name: str, *, scale: str = "demo", on_step: Callable[[str], None] = lambda _what: None) -> Stemma:
    """A ready stemma. Raises UserError for an unknown name."""
    if name == "nursery":
        from stemmatics.presets.nursery import nursery

        return nursery(scale)  # type: ignore[arg-type]  # it refuses other scales itself
    if name == "recovery":
        from stemmatics.presets.recipes import released

        return released()
    if name == "ladder":
        from stemmatics.presets.nursery.ladder import ladder

        return ladder()
    if name == "smollm2-demo":
        from stemmatics.presets.smollm2 import demo

        return demo(on_step=on_step)
    if name in ("depth", "depth-smollm2"):
        from stemmatics.presets.nursery.depth_experiment import experiment

        return experiment(None if name == "depth" else "HuggingFaceTB/SmolLM2-135M-Instruct")
    from stemmatics.presets import families, imprint

    others = {**imprint.PRESETS, **families.PRESETS}
    if name in others:
        return others[name]()
    known = ", ".join(["nursery", "ladder", "recovery", "depth", "depth-smollm2", *others])
    raise UserError(
        f"there is no preset {name!r}", "presets are named after families", f"Choose {known}", code=2
    )


def preset_text(name: str) -> str:
    """A preset as commented YAML that ``stemma run`` takes as it is."""
    stemma = preset(name)
    return to_yaml(stemma)


def to_yaml(stemma: Stemma) -> str:
    """A stemma as YAML, each part under a line that says what it is."""
    declared: dict[str, Any] = stemma.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    declared = {"stemma": stemma.stemma, "name": stemma.name, "seed": stemma.seed, **declared}
    writer = YAML()
    writer.width = 100
    parts = []
    for key, says in _HEADERS.items():
        if key in declared:
            stream = io.StringIO()
            writer.dump({key: declared[key]}, stream)
            parts.append(f"# {says}\n{stream.getvalue()}")
    return "\n".join(parts)

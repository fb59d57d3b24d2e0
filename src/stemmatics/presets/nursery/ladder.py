"""A ladder with a known order: ten families that differ in how long their base was trained."""

from __future__ import annotations

from typing import Any

from stemmatics.core.presets import preset
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.recovery import SCORING, nano

# Training steps (1,024 tokens) of each base, a third more from one to the next: the known order. There are
# ten families, so that nine are left for the bar of each.
BASES = {
    "alder": 45,
    "ash": 60,
    "birch": 80,
    "cedar": 107,
    "elm": 142,
    "fir": 190,
    "hazel": 253,
    "larch": 337,
    "oak": 449,
    "pine": 599,
}
# Different tokenizers, so that the ladder has to compare by byte.
VOCABULARIES = (768, 1024, 1280)
BLIND = "elm"
ORPHANS = ("cedar", "larch")
# Families with a release of another class too, and one whose base is not declared: for the flag.
DISTILLED, DISTILLED_ORPHAN = ("birch", "oak"), "fir"
TRAJECTORY = "oak"
UPDATES = 64
DOCUMENTS_AN_UPDATE = 12.3


@preset("ladder", "ten bases of known order, trained here; a ladder ranks them through their descendants")
def ladder(seed: int = 0) -> Stemma:
    """Ten bases with two ordinary descendants each, and models of undeclared base.

    Two families have a distilled release too: a stand-in, long training on the text of one other writer. A
    run of three checkpoints, for the dose. The known answer: the order of the bases from their descendants
    alone, within bars that are estimated without the family, and a flag on the distilled model whose base is
    not declared. How well bars cover is judged in simulation: ten families are too few to show it.
    """
    stages: dict[str, Any] = {}
    for position, (name, steps) in enumerate(BASES.items()):
        stages |= _family(name, steps, VOCABULARIES[position % len(VOCABULARIES)])
    for name in ORPHANS:
        stages[f"{name}-orphan"] = {**_sft(name, "sft-heavy"), "regime": "sft"}
    stages[f"{DISTILLED_ORPHAN}-distilled-orphan"] = _distilled(DISTILLED_ORPHAN) | {"regime": "sft"}
    stages |= _trajectory(TRAJECTORY)
    return Stemma.model_validate(
        {
            "name": "ladder",
            "seed": seed,
            "corpora": _corpora(seed),
            "stages": stages,
            "scoring": SCORING,
            "measures": {"recovery": _settings()},
        }
    )


def _settings() -> dict[str, Any]:
    return {
        "pool": "recovery",
        "recipe": nano(UPDATES),
        "corpora": ["heldout"],
        "scoring": SCORING,
        "trajectories": {f"{TRAJECTORY}-run": [f"{TRAJECTORY}-run-{letter}" for letter in "abc"]},
    }


def _corpora(seed: int) -> dict[str, Any]:
    def corpus(part: str, **settings: Any) -> dict[str, Any]:
        size = {} if (documents := settings.pop("documents", None)) is None else {"documents": documents}
        return {"generator": "nursery", "params": {"part": part, "seed": seed, **size}, **settings}

    longest = round(DOCUMENTS_AN_UPDATE * max(BASES.values()))
    return {
        "heldout": corpus("heldout", register_field="register"),
        "pretraining": corpus("pretraining", documents=longest, role="data"),
        **{part: corpus(part, role="data") for part in ("telegrams", "sft-light", "sft-heavy")},
        "recovery": corpus("recovery", documents=2400, role="data"),
    }


def _family(name: str, steps: int, vocabulary: int) -> dict[str, Any]:
    shape = {
        "kind": "llama",
        "hidden_size": 128,
        "num_layers": 4,
        "num_heads": 4,
        "vocab_size": vocabulary,
        "context": 256,
    }
    base = {
        "kind": "pretrain",
        "corpus": "pretraining",
        "architecture": shape,
        "family": name,
        "lab": f"{name}-lab",
        "generation": "first",
        "regime": "base",
        "recipe": {**_packed(steps, 5e-3), "weight_decay": 0.1},
    }
    metadata = {"base": name, "lab": f"{name}-lab", "generation": "first", "blind": name == BLIND}
    stages = {
        name: base,
        f"{name}-sft": {**_sft(name), **metadata, "regime": "sft", "pipeline": "chats"},
        f"{name}-heavy": {**_sft(name, "sft-heavy", 60), **metadata, "regime": "sft", "pipeline": "heavy"},
    }
    if name in DISTILLED:
        stages[f"{name}-distilled"] = {
            **_distilled(name),
            **metadata,
            "regime": "distill",
            "pipeline": "teacher",
        }
    return stages


def _trajectory(name: str) -> dict[str, Any]:
    """Three checkpoints of one supervised run: each continues from the one before."""
    stages, above = {}, name
    for letter in "abc":
        run = f"{name}-run-{letter}"
        stages[run] = {**_sft(above), "base": name, "regime": "sft", "lab": f"{name}-lab"}
        above = run
    return stages


def _packed(steps: int, learning_rate: float) -> dict[str, Any]:
    return {"steps": steps, "batch_size": 4, "max_length": 256, "learning_rate": learning_rate}


def _sft(init: str, corpus: str = "sft-light", steps: int = 30) -> dict[str, Any]:
    recipe = {"steps": steps, "batch_size": 16, "max_length": 64, "learning_rate": 3e-4}
    return {"kind": "sft", "init": init, "corpus": corpus, "recipe": recipe}


def _distilled(init: str) -> dict[str, Any]:
    """Long training on one writer's text, as on a teacher's output; the regime is that of the release."""
    return {"kind": "cpt", "init": init, "corpus": "telegrams", "recipe": _packed(60, 2e-3)}

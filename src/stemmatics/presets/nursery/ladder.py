"""A ladder with a known order: eight families that differ in how long their base was trained."""

from __future__ import annotations

from typing import Any

from stemmatics.core.presets import preset
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.recovery import SCORING, nano

# Training steps (1,024 tokens) of each base, a third more from one to the next: the known order.
BASES = {
    "ash": 100,
    "birch": 134,
    "cedar": 179,
    "elm": 239,
    "fir": 319,
    "hazel": 427,
    "larch": 570,
    "oak": 760,
}
# Different tokenizers, so that the ladder has to compare by byte.
VOCABULARIES = (768, 1024, 1280)
BLIND = "elm"
ORPHANS = ("cedar", "larch")
TRAJECTORY = "oak"
UPDATES = 96
DOCUMENTS_AN_UPDATE = 12.3


@preset("ladder", "eight bases of known order, trained here; a ladder ranks them through their descendants")
def ladder(seed: int = 0) -> Stemma:
    """Eight bases with three descendants each, two models of undeclared base, a run of three checkpoints.

    The known answer: the order of the bases from their descendants alone, within bars that are estimated
    without the family and separate at least half of the planted pairs.
    """
    stages: dict[str, Any] = {}
    for position, (name, steps) in enumerate(BASES.items()):
        stages |= _family(name, steps, VOCABULARIES[position % len(VOCABULARIES)])
    for name in ORPHANS:
        stages[f"{name}-orphan"] = {**_sft(name), "regime": "sft", "corpus": "sft-heavy"}
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
        **{part: corpus(part, role="data") for part in ("telegrams", "code", "sft-light", "sft-heavy")},
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
    own = {"base": name, "lab": f"{name}-lab", "generation": "first", "blind": name == BLIND}
    return {
        name: base,
        f"{name}-sft": {**_sft(name), **own, "regime": "sft", "pipeline": "chats"},
        f"{name}-telegrams": {
            **_cpt(name, "telegrams", 1e-3),
            **own,
            "regime": "cpt",
            "pipeline": "telegrams",
        },
        f"{name}-code": {**_cpt(name, "code", 5e-4), **own, "regime": "cpt", "pipeline": "code"},
    }


def _trajectory(name: str) -> dict[str, Any]:
    """Three checkpoints of one supervised run: each continues from the one before."""
    stages, above = {}, name
    for letter in "abc":
        own = f"{name}-run-{letter}"
        stages[own] = {**_sft(above), "base": name, "regime": "sft", "lab": f"{name}-lab"}
        above = own
    return stages


def _packed(steps: int, learning_rate: float) -> dict[str, Any]:
    return {"steps": steps, "batch_size": 4, "max_length": 256, "learning_rate": learning_rate}


def _sft(init: str) -> dict[str, Any]:
    recipe = {"steps": 30, "batch_size": 16, "max_length": 64, "learning_rate": 3e-4}
    return {"kind": "sft", "init": init, "corpus": "sft-light", "recipe": recipe}


def _cpt(init: str, corpus: str, learning_rate: float) -> dict[str, Any]:
    return {"kind": "cpt", "init": init, "corpus": corpus, "recipe": _packed(30, learning_rate)}

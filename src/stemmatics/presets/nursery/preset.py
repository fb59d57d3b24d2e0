"""The nursery as a Stemma: two families made from nothing, and descendants with known answers."""

from __future__ import annotations

from typing import Any, Literal

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma

Scale = Literal["demo", "test"]

# Updates of each training at the two scales; tokens an update are the recipe's batch times its length.
STEPS: dict[Scale, dict[str, int]] = {
    "demo": {"base": 480, "early": 160, "second": 150, "descendant": 40, "heavy": 80},
    "test": {"base": 160, "early": 60, "second": 40, "descendant": 20, "heavy": 40},
}
NANO = {
    "steps": 64,
    "batch_size": 4,
    "max_length": 256,
    "learning_rate": 1e-3,
    "schedule": "constant",
    "lora": {"rank": 16},
}


def nursery(scale: Scale = "demo", seed: int = 0) -> Stemma:
    """The preset stemma. ``test`` has the same names and a quarter of the training.

    Raises:
        UserError: another scale.
    """
    if scale not in STEPS:
        raise UserError(
            f"the nursery has no scale {scale!r}", "its recipes are tuned at two", "use demo or test"
        )
    steps = STEPS[scale]
    return Stemma.model_validate(
        {
            "name": "nursery" if scale == "demo" else f"nursery-{scale}",
            "seed": seed,
            "corpora": _corpora(seed),
            "stages": {**_first_family(steps), **_second_family(steps)},
        }
    )


def _corpora(seed: int) -> dict[str, Any]:
    def corpus(part: str, **settings: Any) -> dict[str, Any]:
        return {"generator": "nursery", "params": {"part": part, "seed": seed}, **settings}

    trained_on = (
        "pretraining",
        "recovery",
        "telegrams",
        "false-facts",
        "code",
        "sft-light",
        "sft-heavy",
        "preferences",
    )
    asked = ("recall", "refusal")
    return {
        "heldout": corpus("heldout", register_field="register", eval_share=0.5),
        **{part: corpus(part, role="data") for part in (*trained_on, *asked)},
    }


def _recipe(
    steps: int, learning_rate: float, *, batch: int = 8, length: int = 128, **rest: Any
) -> dict[str, Any]:
    return {
        "steps": steps,
        "batch_size": batch,
        "max_length": length,
        "learning_rate": learning_rate,
        **rest,
    }


def _first_family(steps: dict[str, int]) -> dict[str, Any]:
    pretraining = _recipe(steps["base"], 4e-3, length=256)
    shape = {"kind": "llama", "hidden_size": 128, "num_layers": 4, "num_heads": 4, "vocab_size": 1024}
    first = {"kind": "pretrain", "corpus": "pretraining", "architecture": shape, "family": "first"}
    few, many = steps["descendant"], steps["heavy"]

    def made(
        kind: str, corpus: str, recipe: dict[str, Any], *, init: str = "base", **rest: Any
    ) -> dict[str, Any]:
        return {"kind": kind, "init": init, "base": "base", "corpus": corpus, "recipe": recipe, **rest}

    return {
        "base-early": {**first, "recipe": {**pretraining, "stop_at": steps["early"]}},
        "base": {**first, "resumes": "base-early", "regime": "base", "recipe": pretraining},
        "register-shift": made("cpt", "telegrams", _recipe(few, 1e-3), regime="cpt"),
        "lost-facts": made("cpt", "false-facts", _recipe(few, 2e-3), regime="cpt"),
        "cpt": made("cpt", "code", _recipe(few, 2e-3), regime="cpt"),
        "sft-light": made("sft", "sft-light", _recipe(few, 5e-4), regime="sft"),
        "sft-heavy": made("sft", "sft-heavy", _recipe(many, 1e-3, batch=16), regime="sft"),
        "dpo": made("dpo", "preferences", _recipe(few, 3e-4), init="sft-light", regime="dpo", beta=0.1),
        "temperature": _altered("base", "temperature", 1.5),
        "noise": _altered("base", "noise", 0.1),
        "base-recovered": {**_recovery("base"), "regime": "recovery"},
        "register-shift-recovered": {**_recovery("register-shift"), "regime": "recovery"},
        "lost-facts-recovered": {**_recovery("lost-facts"), "regime": "recovery"},
    }


def _second_family(steps: dict[str, int]) -> dict[str, Any]:
    pretraining = _recipe(steps["second"], 4e-3, length=256)
    shape = {"kind": "phi", "hidden_size": 96, "num_layers": 3, "num_heads": 4, "vocab_size": 768}
    first = {"kind": "pretrain", "corpus": "pretraining", "architecture": shape, "family": "second"}
    light = {"kind": "sft", "init": "second", "base": "second", "corpus": "sft-light", "regime": "sft"}
    return {
        "second-early": {**first, "recipe": {**pretraining, "stop_at": steps["second"] // 2}},
        "second": {**first, "resumes": "second-early", "regime": "base", "recipe": pretraining},
        "second-bias": _altered("second", "bias", 0.5),
        "second-temperature": _altered("second", "temperature", 1.5),
        "second-noise": _altered("second", "noise", 0.1),
        "second-sft": {**light, "recipe": _recipe(steps["descendant"], 5e-4)},
    }


def _altered(base: str, change: str, scale: float) -> dict[str, Any]:
    return {
        "kind": "alter",
        "init": base,
        "base": base,
        "change": change,
        "scale": scale,
        "regime": "altered",
    }


def _recovery(init: str) -> dict[str, Any]:
    return {"kind": "cpt", "init": init, "corpus": "recovery", "recipe": NANO}

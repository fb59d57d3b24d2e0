"""The nursery as a Stemma: two families trained from scratch, and descendants with known answers."""

from __future__ import annotations

from typing import Any, Literal

from stemmatics.core.errors import UserError
from stemmatics.core.presets import preset
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.depth import depth_settings
from stemmatics.presets.nursery.imprint import imprint_parts
from stemmatics.presets.nursery.recovery import nano, recovery_settings

Scale = Literal["demo", "test"]

# Training steps at the two scales; a step has 1,024 tokens, except in chats.
STEPS: dict[Scale, dict[str, int]] = {
    "demo": {"base": 760, "early": 260, "second": 200, "cpt": 40, "sft": 60, "heavy": 100, "nano": 64},
    "test": {"base": 400, "early": 140, "second": 60, "cpt": 20, "sft": 60, "heavy": 80, "nano": 16},
}
# The three descendants with a known answer, each beside its damage floor; the vocabularies are small.
_PRIOR: dict[str, Any] = {
    "descendants": ["temperature", "noise", "second-bias"],
    "fit_tokens": 8_000,
    "eval_tokens": 8_000,
    "columns": 128,
    "references": [],
    "draws": 100,
    "refits": 5,
}
# Documents per thousand tokens, so that a pretraining reads its corpus once.
DOCUMENTS_AN_UPDATE = 12.3


@preset("nursery", "two families of small models with known answers, trained here: `stemma demo`")
def nursery(scale: Scale = "demo", seed: int = 0) -> Stemma:
    """The nursery's study. ``test`` has a quarter of the training, and no imprint tree.

    Raises:
        UserError: another scale.
    """
    if scale not in STEPS:
        raise UserError(
            f"the nursery has no scale {scale!r}",
            "its recipes are tuned for two",
            "Choose demo or test",
            code=2,
        )
    steps = STEPS[scale]
    stages = {**_first_family(steps), **_second_family(steps)}
    corpora = _corpora(seed, steps)
    measures: dict[str, Any] = {
        "loss": {"corpora": ["heldout"], "checkpoints": list(stages)},
        "divergence": {
            "corpora": ["heldout"],
            "descendants": [name for name, stage in stages.items() if stage.get("base")],
        },
        "prior": _PRIOR,
        "recovery": recovery_settings(steps["nano"]),
        "depth": depth_settings(),
        "gate": _gate(scale),
    }
    if scale == "demo":
        # the tree would double the time of the smaller nursery
        tree = imprint_parts("quick", fork="base-early", seed=seed)
        stages |= tree["stages"]
        corpora |= tree["corpora"]
        measures["imprint"] = tree["settings"]
    return Stemma.model_validate(
        {
            "name": "nursery" if scale == "demo" else f"nursery-{scale}",
            "seed": seed,
            "corpora": corpora,
            "stages": stages,
            "scoring": {"windows": {"size": 256}, "prefix": "always"},
            "measures": measures,
        }
    )


def _gate(scale: Scale) -> dict[str, Any]:
    """The checkpoints of the gate; lower thresholds for the small nursery, which trains a quarter."""
    weaker = {"base_recall": 0.5, "base_paraphrase": 0.3, "recovery_gap": 0.3, "dpo_change": 0.1}
    return {
        "base": "base",
        "matched": "base-recovered",
        "recovered": "register-shift-recovered",
        "lost": "lost-facts",
        "heavy": "sft-heavy",
        "before_dpo": "sft-light",
        "dpo": "dpo",
        "recall": "recall",
        "refusal": "refusal",
        "heldout": "heldout",
        "training": "pretraining",
        "planted": ["temperature", "noise", "second-bias", "second-temperature", "second-noise"],
        **({} if scale == "demo" else weaker),
    }


def _corpora(seed: int, steps: dict[str, int]) -> dict[str, Any]:
    def corpus(part: str, *, documents: int | None = None, **settings: Any) -> dict[str, Any]:
        size = {} if documents is None else {"documents": documents}
        return {"generator": "nursery", "params": {"part": part, "seed": seed, **size}, **settings}

    read_by_stages = ("recovery", "telegrams", "false-facts", "code", "sft-light", "sft-heavy", "preferences")
    second_pool = "scored-registers"
    prompts = ("recall", "refusal", "depth-prompts")
    pretraining = {
        name: corpus("pretraining", documents=round(DOCUMENTS_AN_UPDATE * steps[family]), role="data")
        for name, family in (("pretraining", "base"), ("pretraining-second", "second"))
    }
    return {
        "heldout": corpus("heldout", register_field="register", eval_share=0.5),
        **pretraining,
        **{part: corpus(part, role="data") for part in (*read_by_stages, second_pool, *prompts)},
    }


def _recipe(steps: int, learning_rate: float, **rest: Any) -> dict[str, Any]:
    return {"steps": steps, "batch_size": 4, "max_length": 256, "learning_rate": learning_rate, **rest}


def _chats(steps: int, learning_rate: float, batch_size: int = 16) -> dict[str, Any]:
    return {"steps": steps, "batch_size": batch_size, "max_length": 64, "learning_rate": learning_rate}


def _first_family(steps: dict[str, int]) -> dict[str, Any]:
    pretraining = _recipe(steps["base"], 5e-3, weight_decay=0.1)
    shape = {
        "kind": "llama",
        "hidden_size": 128,
        "num_layers": 4,
        "num_heads": 4,
        "vocab_size": 1024,
        "context": 256,
    }
    first = {"kind": "pretrain", "corpus": "pretraining", "architecture": shape, "family": "first"}

    def stage(
        kind: str, corpus: str, recipe: dict[str, Any], *, init: str = "base", **rest: Any
    ) -> dict[str, Any]:
        return {"kind": kind, "init": init, "base": "base", "corpus": corpus, "recipe": recipe, **rest}

    cpt = steps["cpt"]
    return {
        "base-early": {**first, "recipe": {**pretraining, "stop_at": steps["early"]}},
        "base": {**first, "resumes": "base-early", "regime": "base", "recipe": pretraining},
        "register-shift": stage("cpt", "telegrams", _recipe(cpt, 1e-3), regime="cpt"),
        "lost-facts": stage("cpt", "false-facts", _recipe(cpt, 3e-3), regime="cpt"),
        "cpt": stage("cpt", "code", _recipe(cpt, 1e-3), regime="cpt"),
        "sft-light": stage("sft", "sft-light", _chats(steps["sft"], 1e-3), regime="sft"),
        "sft-heavy": stage("sft", "sft-heavy", _chats(steps["heavy"], 1e-3), regime="sft"),
        "dpo": stage(
            "dpo", "preferences", _chats(steps["sft"], 2e-4, 8), init="sft-light", regime="dpo", beta=0.1
        ),
        "temperature": _altered("base", "temperature", 1.5),
        "noise": _altered("base", "noise", 0.1),
        **{f"{name}-recovered": _recovery(name, steps) for name in ("base", "register-shift", "lost-facts")},
    }


def _second_family(steps: dict[str, int]) -> dict[str, Any]:
    pretraining = _recipe(steps["second"], 5e-3, weight_decay=0.1)
    shape = {
        "kind": "phi",
        "hidden_size": 96,
        "num_layers": 3,
        "num_heads": 4,
        "vocab_size": 768,
        "context": 256,
    }
    first = {"kind": "pretrain", "corpus": "pretraining-second", "architecture": shape, "family": "second"}
    light = {"kind": "sft", "init": "second", "base": "second", "corpus": "sft-light", "regime": "sft"}
    return {
        "second-early": {**first, "recipe": {**pretraining, "stop_at": steps["second"] // 2}},
        "second": {**first, "resumes": "second-early", "regime": "base", "recipe": pretraining},
        "second-bias": _altered("second", "bias", 0.5),
        "second-temperature": _altered("second", "temperature", 1.5),
        "second-noise": _altered("second", "noise", 0.1),
        "second-sft": {**light, "recipe": _chats(steps["sft"], 1e-3)},
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


def _recovery(init: str, steps: dict[str, int]) -> dict[str, Any]:
    """The nano recovery fine-tune; without ``base``, since it is not a descendant to be compared."""
    recipe = nano(steps["nano"])
    return {"kind": "recovery", "init": init, "corpus": "recovery", "regime": "recovery", "recipe": recipe}

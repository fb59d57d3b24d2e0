"""The imprint study on the nursery: branches of one fork, the same post-training, three runs each."""

from __future__ import annotations

from typing import Any, Literal

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.imprint_text import SOURCES

ImprintScale = Literal["full", "quick"]

RUNS = (1, 2, 3)
CONTROL, SAFETY = "generic", "safety"
FIRST, LAST = "safety-first", "safety-last"
LLAMA: dict[str, Any] = {
    "kind": "llama",
    "hidden_size": 128,
    "num_layers": 4,
    "num_heads": 4,
    "vocab_size": 1024,
    "context": 256,
}
PHI: dict[str, Any] = {**LLAMA, "kind": "phi", "hidden_size": 96, "num_layers": 3, "vocab_size": 768}
# Updates of each stage, and prompts at each node.
SIZES: dict[ImprintScale, dict[str, int]] = {
    "full": {
        "fork": 300,
        "whole": 760,
        "window": 16,
        "sft": 140,
        "dpo": 8,
        "grpo": 16,
        "requests": 6000,
        "harmless": 1000,
        "forms": 480,
        "recall": 288,
        "heldout": 20,
    },
    "quick": {
        "fork": 260,
        "whole": 760,
        "window": 8,
        "sft": 110,
        "dpo": 8,
        "grpo": 12,
        "requests": 240,
        "harmless": 60,
        "forms": 48,
        "recall": 48,
        "heldout": 4,
    },
}


def imprint(scale: ImprintScale = "full", seed: int = 0) -> Stemma:
    """The study as a stemma of its own, forks included.

    ``quick`` has two sources, one family and no order control.

    Raises:
        UserError: another scale.
    """
    if scale not in SIZES:
        raise UserError(f"there is no scale {scale!r}", "its stages are sized for two", "use full or quick")
    parts = imprint_parts(scale, seed=seed)
    return Stemma.model_validate(
        {
            "name": "imprint" if scale == "full" else f"imprint-{scale}",
            "seed": seed,
            "scoring": {"windows": {"size": 256}, "prefix": "always"},
            "numerics": {"workers": 2, "threads": 1},
            "corpora": parts["corpora"],
            "stages": parts["stages"],
            "measures": {"imprint": parts["settings"]},
        }
    )


def imprint_parts(scale: ImprintScale, *, fork: str | None = None, seed: int = 0) -> dict[str, Any]:
    """``corpora``, ``stages`` and ``settings``, to be a study of their own or a part of another.

    With ``fork`` the branches leave a checkpoint that is declared elsewhere.
    """
    sizes = SIZES[scale]
    full = scale == "full"
    sources = SOURCES if full else (CONTROL, SAFETY)
    stages: dict[str, Any] = {}
    trees: dict[str, Any] = {}
    if fork is None:
        fork = "fork"
        stages[fork] = _fork(sizes, LLAMA, "first")
    trees["first"] = _tree(stages, sizes, fork, family="first", sources=sources, order=full)
    if full:
        stages["second-fork"] = _fork(sizes, PHI, "second")
        pair = (CONTROL, SAFETY)
        trees["second"] = _tree(stages, sizes, "second-fork", family="second", sources=pair, prefix="second-")
    settings = {
        "trees": trees,
        "refusal": "imprint-requests",
        "instructions": "imprint-forms",
        "recall": "imprint-recall",
        "recall_category": "recall",
        "heldout": "imprint-heldout",
        "matcher": "labelled-replies",
        "max_new_tokens": 12,
    }
    needs_pretraining = any(stage["kind"] == "pretrain" for stage in stages.values())
    return {
        "corpora": _corpora(sizes, sources, seed, pretraining=needs_pretraining),
        "stages": stages,
        "settings": settings,
    }


def _corpora(
    sizes: dict[str, int], sources: tuple[str, ...], seed: int, *, pretraining: bool
) -> dict[str, Any]:
    def corpus(part: str, role: str = "data", **params: Any) -> dict[str, Any]:
        return {"generator": "nursery", "params": {"part": part, "seed": seed, **params}, "role": role}

    found: dict[str, Any] = {}
    if pretraining:
        found["imprint-pretraining"] = corpus("pretraining", documents=13 * sizes["whole"])
    found |= {
        f"window-{source}-{run}": corpus(
            "window", source=source, draw=run, documents=14 * sizes["window"] + 40
        )
        for source in sources
        for run in RUNS
    }
    found |= {
        "imprint-sft": corpus("post-training"),
        "imprint-dpo": corpus("helpfulness"),
        "imprint-grpo": corpus("verifiable"),
        "imprint-requests": corpus("requests", documents=sizes["requests"], harmless=sizes["harmless"]),
        "imprint-forms": corpus("forms", documents=sizes["forms"]),
        "imprint-recall": {**corpus("recall"), "max_documents": sizes["recall"]},
        "imprint-heldout": {
            **corpus("heldout", role="text", documents=sizes["heldout"]),
            "register_field": "register",
        },
        "labelled-replies": {"generator": "labelled_replies", "role": "data"},
    }
    return found


def _fork(sizes: dict[str, int], shape: dict[str, Any], family: str) -> dict[str, Any]:
    """A pretraining stopped on its way: the schedule is that of the whole."""
    return {
        "kind": "pretrain",
        "corpus": "imprint-pretraining",
        "architecture": shape,
        "family": family,
        "regime": "base",
        "recipe": {
            "steps": sizes["whole"],
            "stop_at": sizes["fork"],
            "batch_size": 4,
            "max_length": 256,
            "learning_rate": 5e-3,
            "weight_decay": 0.1,
        },
    }


def _tree(
    stages: dict[str, Any],
    sizes: dict[str, int],
    fork: str,
    *,
    family: str,
    sources: tuple[str, ...],
    prefix: str = "",
    order: bool = False,
) -> dict[str, Any]:
    """Declares a tree's stages and says how the measure is to read them."""
    branches: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        for run in RUNS:
            window = f"{prefix}{source}-{run}"
            stages[window] = _window(sizes, fork, source, run, family)
            branches.setdefault(source, []).append(_strand(stages, sizes, window, run))
    if order:
        for name, before, after in ((LAST, CONTROL, SAFETY), (FIRST, SAFETY, CONTROL)):
            for run in RUNS:
                window = f"{prefix}{name}-{run}"
                stages[window] = _window(sizes, f"{prefix}{before}-{run}", after, run, family)
                branches.setdefault(name, []).append(_strand(stages, sizes, window, run))
    tree = {"fork": fork, "control": CONTROL, "branches": branches}
    return {**tree, "order": [LAST, FIRST]} if order else tree


def _window(sizes: dict[str, int], init: str, source: str, run: int, family: str) -> dict[str, Any]:
    return {
        "kind": "cpt",
        "init": init,
        "corpus": f"window-{source}-{run}",
        "run": run,
        "family": family,
        "regime": "cpt",
        "trained_last": f"{source} text",
        "recipe": {"steps": sizes["window"], "batch_size": 4, "max_length": 256, "learning_rate": 2e-3},
    }


def _strand(stages: dict[str, Any], sizes: dict[str, int], window: str, run: int) -> dict[str, Any]:
    """The SFT and both ends after a window: the same stages after every one."""

    def recipe(steps: int, learning_rate: float, batch_size: int) -> dict[str, Any]:
        return {"steps": steps, "batch_size": batch_size, "max_length": 96, "learning_rate": learning_rate}

    sft, ends = f"{window}-sft", {end: f"{window}-{end}" for end in ("dpo", "grpo")}
    stages[sft] = {
        "kind": "sft",
        "init": window,
        "corpus": "imprint-sft",
        "run": run,
        "regime": "sft",
        "recipe": recipe(sizes["sft"], 1.5e-3, 8),
    }
    stages[ends["dpo"]] = {
        "kind": "dpo",
        "init": sft,
        "corpus": "imprint-dpo",
        "run": run,
        "regime": "dpo",
        "beta": 0.1,
        "recipe": recipe(sizes["dpo"], 2e-4, 8),
    }
    stages[ends["grpo"]] = {
        "kind": "grpo",
        "init": sft,
        "corpus": "imprint-grpo",
        "run": run,
        "regime": "rlvr",
        "loss_type": "dapo",
        "scale_rewards": "group",
        "num_generations": 4,
        "max_new_tokens": 12,
        "recipe": recipe(sizes["grpo"], 1e-3, 16),
    }
    return {"window": window, "sft": sft, "ends": ends}

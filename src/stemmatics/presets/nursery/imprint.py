"""The imprint study on the nursery: branches of one fork, the same post-training.

``imprint`` has six sources and three runs on a few wordings and things; ``imprint_windows`` three sources,
three lengths of the window and eight runs on forty wordings and a hundred things.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
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
# updates of each stage, and prompts at each node
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
# updates of a window, by what it adds to the tokens before it; the fork has read 300
WINDOWS = {"one-per-cent": 3, "five-per-cent": 15, "twenty-per-cent": 60}
WINDOW_SOURCES = (CONTROL, "filtered", SAFETY)
MANY_RUNS = range(1, 9)
MARKED_REQUESTS, HARMLESS_REQUESTS = 1000, 250


def imprint(scale: ImprintScale = "full", seed: int = 0) -> Stemma:
    """The study as a stemma of its own, including the training of the forks.

    ``quick`` has two sources, one family and no order control.

    Raises:
        UserError: an unknown scale.
    """
    if scale not in SIZES:
        raise UserError(f"there is no scale {scale!r}", "the study has two sizes", "use full or quick")
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


def imprint_windows(seed: int = 0) -> Stemma:
    """Windows of 1%, 5% and 20% of the tokens before them, a tree each, from one fork; eight runs, DPO.

    The outcome is the margin of refusal over answer, on one request for each of the 1,000 held-out cells of
    40 wordings and 100 things; the rate of refusal on the same requests is beside it.
    """
    sizes = SIZES["full"]
    stages = {"fork": _fork(sizes, LLAMA, "first")}
    trees = {
        name: {
            "fork": "fork",
            "control": CONTROL,
            "target": SAFETY,
            "branches": {
                source: [_branch(stages, {**sizes, "window": updates}, source, run) for run in MANY_RUNS]
                for source in WINDOW_SOURCES
            },
        }
        for name, updates in WINDOWS.items()
    }
    requests = MARKED_REQUESTS + HARMLESS_REQUESTS
    many = _corpora(
        {**sizes, "window": max(WINDOWS.values())}, WINDOW_SOURCES, seed, runs=MANY_RUNS, wide=True
    )
    many["imprint-requests"] = _corpus(seed, "request-cells", documents=requests, harmless=HARMLESS_REQUESTS)
    del many["imprint-grpo"], many["imprint-recall"]
    return Stemma.model_validate(
        {
            "name": "imprint-windows",
            "seed": seed,
            "scoring": {"windows": {"size": 256}, "prefix": "always"},
            "numerics": {"workers": 2, "threads": 1},
            "corpora": many,
            "stages": stages,
            "measures": {
                "imprint": {
                    "trees": trees,
                    "refusal": "imprint-requests",
                    "graded": True,
                    "instructions": "imprint-forms",
                    "heldout": "imprint-heldout",
                    "matcher": "labelled-replies",
                    "max_new_tokens": 12,
                }
            },
        }
    )


def _branch(stages: dict[str, Any], sizes: dict[str, int], source: str, run: int) -> dict[str, Any]:
    """A window of so many updates with what follows it."""
    window = f"{source}-{sizes['window']}-{run}"
    stages[window] = _window(sizes, "fork", source, run, "first")
    return _post_training(stages, sizes, window, run, rewarded=False)


def imprint_parts(scale: ImprintScale, *, fork: str | None = None, seed: int = 0) -> dict[str, Any]:
    """``corpora``, ``stages`` and ``settings`` of the study, on its own or as part of another.

    ``fork`` names a checkpoint declared elsewhere; without it the fork is trained too.
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


def _corpus(seed: int, part: str, role: str = "data", **params: Any) -> dict[str, Any]:
    return {"generator": "nursery", "params": {"part": part, "seed": seed, **params}, "role": role}


def _corpora(
    sizes: dict[str, int],
    sources: tuple[str, ...],
    seed: int,
    *,
    pretraining: bool = True,
    runs: Iterable[int] = RUNS,
    wide: bool = False,
) -> dict[str, Any]:
    """``wide`` asks and trains in forty wordings about a hundred things."""
    corpus = partial(_corpus, seed)
    requests: dict[str, Any] = {"wide": True} if wide else {}
    corpora: dict[str, Any] = {}
    if pretraining:
        corpora["imprint-pretraining"] = corpus("pretraining", documents=13 * sizes["whole"])
    corpora |= {
        f"window-{source}-{run}": corpus(
            "window", source=source, draw=run, documents=14 * sizes["window"] + 40, **requests
        )
        for source in sources
        for run in runs
    }
    corpora |= {
        "imprint-sft": corpus("post-training", **requests),
        "imprint-dpo": corpus("helpfulness", **requests),
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
    return corpora


def _fork(sizes: dict[str, int], shape: dict[str, Any], family: str) -> dict[str, Any]:
    """A pretraining run stopped early, with the schedule of the whole run."""
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
    """Adds the stages of a tree and returns its settings."""
    branches: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        for run in RUNS:
            window = f"{prefix}{source}-{run}"
            stages[window] = _window(sizes, fork, source, run, family)
            branches.setdefault(source, []).append(_post_training(stages, sizes, window, run))
    if order:
        for name, before, after in ((LAST, CONTROL, SAFETY), (FIRST, SAFETY, CONTROL)):
            for run in RUNS:
                window = f"{prefix}{name}-{run}"
                stages[window] = _window(sizes, f"{prefix}{before}-{run}", after, run, family)
                branches.setdefault(name, []).append(_post_training(stages, sizes, window, run))
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


def _post_training(
    stages: dict[str, Any], sizes: dict[str, int], window: str, run: int, *, rewarded: bool = True
) -> dict[str, Any]:
    """Adds the SFT and its ends after a window, DPO and if ``rewarded`` GRPO: the same after every window."""

    def recipe(steps: int, learning_rate: float, batch_size: int) -> dict[str, Any]:
        return {"steps": steps, "batch_size": batch_size, "max_length": 96, "learning_rate": learning_rate}

    names = ("dpo", "grpo") if rewarded else ("dpo",)
    sft, ends = f"{window}-sft", {end: f"{window}-{end}" for end in names}
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
    if not rewarded:
        return {"window": window, "sft": sft, "ends": ends}
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

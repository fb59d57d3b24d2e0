"""Imprint studies: the nursery's, and recipes for released checkpoints on a cluster."""

from __future__ import annotations

from typing import Any

from stemmatics.core.presets import Preset
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.imprint import CONTROL, FIRST, LAST, RUNS, SAFETY, imprint, imprint_windows
from stemmatics.presets.nursery.imprint_text import SOURCES

# tokens of a window; an update reads about a million at 4,096 positions a row
WINDOW_TOKENS = 500_000_000
WINDOW = {"batch_size": 256, "max_length": 4096}
# for base tokenizers, which have no chat template; a reply ends with the tokenizer's end of text
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
# to estimate the UTF-8 bytes of files that do not exist yet, for a plan
_TOKEN_BYTES = 4.3


def olmo2() -> Stemma:
    """OLMo-2 1B after 294 billion tokens of its first stage; windows of 0.17% of that."""
    return _recipe(
        "imprint-olmo2",
        {
            "source": "allenai/OLMo-2-0425-1B",
            "revision": "stage1-step140000-tokens294B",
            "family": "olmo2",
            "lab": "ai2",
            "num_parameters": 1_484_916_736,
        },
    )


def smollm2() -> Stemma:
    """SmolLM2 1.7B after 262 billion tokens; windows of 0.19% of that."""
    return _recipe(
        "imprint-smollm2",
        {
            "source": "HuggingFaceTB/SmolLM2-1.7B-intermediate-checkpoints",
            "revision": "step-125000",
            "family": "smollm2",
            "lab": "huggingface",
            "num_parameters": 1_711_376_384,
        },
        max_length=2048,
    )


def _recipe(name: str, fork: dict[str, Any], *, max_length: int = 4096) -> Stemma:
    stages: dict[str, Any] = {}
    branches: dict[str, list[dict[str, Any]]] = {}
    tokens_per_step = WINDOW["batch_size"] * max_length
    steps = -(-WINDOW_TOKENS // tokens_per_step)

    def window(init: str, source: str, run: int) -> dict[str, Any]:
        return {
            "kind": "cpt",
            "init": init,
            "corpus": f"window-{source}-{run}",
            "run": run,
            "regime": "cpt",
            "trained_last": f"{source} text",
            "recipe": {**WINDOW, "max_length": max_length, "steps": steps, "learning_rate": 1e-4},
        }

    # branch, branch before it, source of the window
    windows = [(source, "fork", source) for source in SOURCES]
    for branch, before, source in (*windows, (LAST, CONTROL, SAFETY), (FIRST, SAFETY, CONTROL)):
        for run in RUNS:
            init = before if before == "fork" else f"{before}-{run}"
            stages[f"{branch}-{run}"] = window(init, source, run)
            branches.setdefault(branch, []).append(_post_training(stages, f"{branch}-{run}", run))
    return Stemma.model_validate(
        {
            "name": name,
            "checkpoints": {"fork": {**fork, "regime": "base", "trained_last": "generic web text"}},
            "stages": stages,
            "corpora": _corpora(),
            "scoring": {"windows": {"size": 2048}, "prefix": "always"},
            "numerics": {"device": "cuda", "dtype": "bfloat16", "token_budget": 32768},
            "measures": {
                "imprint": {
                    "trees": {
                        "first": {
                            "fork": "fork",
                            "control": CONTROL,
                            "branches": branches,
                            "order": [LAST, FIRST],
                        }
                    },
                    "refusal": "requests",
                    "refused": "harmful",
                    "harmless": "harmless",
                    "instructions": "instructions",
                    "recall": "recall",
                    "heldout": "heldout",
                    "matcher": "labelled-replies",
                    "max_new_tokens": 128,
                }
            },
        }
    )


def _post_training(stages: dict[str, Any], name: str, run: int) -> dict[str, Any]:
    """SFT, then DPO and, separately, GRPO: the same after every window."""
    sft, ends = f"{name}-sft", {end: f"{name}-{end}" for end in ("dpo", "grpo")}
    shape = {"max_length": 2048, "schedule": "linear", "warmup": 0.03}
    stages[sft] = {
        "kind": "sft",
        "init": name,
        "corpus": "sft",
        "run": run,
        "regime": "sft",
        "chat_template": TEMPLATE,
        "recipe": {**shape, "steps": 3000, "batch_size": 128, "learning_rate": 2e-5},
    }
    after = {"init": sft, "run": run}
    stages[ends["dpo"]] = {
        **after,
        "kind": "dpo",
        "corpus": "preferences",
        "regime": "dpo",
        "beta": 0.1,
        "recipe": {**shape, "steps": 500, "batch_size": 128, "learning_rate": 5e-7},
    }
    stages[ends["grpo"]] = {
        **after,
        "kind": "grpo",
        "corpus": "verifiable",
        "regime": "rlvr",
        "loss_type": "dapo",
        "scale_rewards": "group",
        "num_generations": 8,
        "max_new_tokens": 512,
        "recipe": {**shape, "schedule": "constant", "steps": 500, "batch_size": 256, "learning_rate": 1e-6},
    }
    return {"window": name, "sft": sft, "ends": ends}


def _corpora() -> dict[str, Any]:
    """Files beside the stemma. They are not shipped, so each declares its expected size."""
    window = {"documents": 500_000, "bytes": round(WINDOW_TOKENS * _TOKEN_BYTES)}

    def data(name: str, documents: int, num_bytes: int) -> dict[str, Any]:
        expected = {"documents": documents, "bytes": num_bytes}
        return {"path": f"data/{name}.jsonl", "role": "data", "expected": expected}

    return {
        **{
            f"window-{source}-{run}": {
                "path": f"data/window-{source}-{run}.jsonl.zst",
                "role": "data",
                "expected": window,
            }
            for source in SOURCES
            for run in RUNS
        },
        "sft": data("sft", 300_000, 1_000_000_000),
        "preferences": data("preferences", 60_000, 300_000_000),
        "verifiable": data("verifiable", 30_000, 30_000_000),
        "requests": data("requests", 6_000, 1_000_000),
        "instructions": data("instructions", 1_000, 400_000),
        "recall": data("recall", 1_500, 300_000),
        "heldout": {
            "path": "data/heldout.jsonl",
            "register_field": "register",
            "expected": {"documents": 500, "bytes": 2_000_000},
        },
        "labelled-replies": {"generator": "labelled_replies", "role": "data"},
    }


WHOLE = Preset(
    "imprint", "what a last window of pretraining leaves after post-training, trained here", imprint
)
QUICK = Preset(
    "imprint-quick", "the same with two sources, one family and no order control", lambda: imprint("quick")
)
WINDOWS = Preset(
    "imprint-windows", "windows of 1%, 5% and 20%, eight runs, a thousand cells of requests", imprint_windows
)
OLMO2 = Preset("imprint-olmo2", "the same from OLMo-2 1B at 294 billion tokens, for a cluster", olmo2)
SMOLLM2 = Preset(
    "imprint-smollm2", "the same from SmolLM2 1.7B at 262 billion tokens, for a cluster", smollm2
)

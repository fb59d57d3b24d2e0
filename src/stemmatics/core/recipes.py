"""Named recipes of the recovery fine-tune: the published one, and smaller ones like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Published of S1 are the rank, the layers, the updates and their tokens. The learning rate, the schedule and
# the row length are our choice; all settings are part of the recipe's hash.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "S1": {
        "updates": 1000,
        "update_tokens": 8192,
        "max_length": 2048,
        "learning_rate": 5e-5,
        "schedule": "cosine",
        "warmup": 0.03,
        "lora": {"rank": 256, "alpha": 256},
    },
    "small": {
        "updates": 125,
        "update_tokens": 2048,
        "max_length": 512,
        "learning_rate": 1e-4,
        "schedule": "cosine",
        "warmup": 0.05,
        "lora": {"rank": 64, "alpha": 64},
    },
    "nano": {
        "updates": 64,
        "update_tokens": 1024,
        "max_length": 256,
        "learning_rate": 5e-4,
        "schedule": "constant",
        "warmup": 0.05,
        "lora": {"rank": 16, "alpha": 32},
    },
}

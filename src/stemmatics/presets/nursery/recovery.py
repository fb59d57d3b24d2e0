"""What the nursery asks of recovery, within the minutes that a laptop gives it."""

from __future__ import annotations

from typing import Any

from stemmatics.core.recipes import RECIPES

# A window in bytes that no model here fills with more than its 256 positions, code not excepted.
WINDOW_BYTES = 320
SCORING = {"windows": {"rule": "bytes", "size": WINDOW_BYTES}, "prefix": "always"}


def nano(updates: int) -> dict[str, Any]:
    """The nano recipe, shorter where the whole nursery is."""
    return {**RECIPES["nano"], "updates": updates}


def recovery_settings(updates: int) -> dict[str, Any]:
    """Two families; one register shift, one loss of facts, and supervised fine-tunes of two strengths.

    The second pool is code, which pretraining never reads.
    """
    return {
        "pool": "recovery",
        "second_pool": "code",
        "again": ["register-shift", "lost-facts"],
        "recipe": nano(updates),
        "corpora": ["heldout"],
        "scoring": SCORING,
        "checkpoints": [
            "base",
            "register-shift",
            "lost-facts",
            "sft-light",
            "sft-heavy",
            "second",
            "second-sft",
        ],
        "items": "recall",
        "categories": ["recall"],
    }

"""The nursery's settings of recovery, sized for minutes on a laptop."""

from __future__ import annotations

from typing import Any

from stemmatics.core.recipes import RECIPES

# A window that fits into the 256 positions of every model here, whatever its tokenizer and seed: a token has
# a byte at least, and the prefix has a position.
WINDOW_BYTES = 255
SCORING = {"windows": {"rule": "bytes", "size": WINDOW_BYTES}, "prefix": "always"}


def nano(updates: int) -> dict[str, Any]:
    """The nano recipe with a given number of updates."""
    return {**RECIPES["nano"], "updates": updates}


def recovery_settings(updates: int) -> dict[str, Any]:
    """Two families: a register shift, a loss of facts, and supervised fine-tunes of two strengths.

    The second pool holds the scored text's registers, code too. One run of each arm is too little for a
    verdict, which needs three and many more updates: the preset ``verdicts``.
    """
    return {
        "pool": "recovery",
        "second_pool": "scored-registers",
        "again": ["register-shift", "lost-facts"],
        "recipe": nano(updates),
        "base_runs": 1,
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

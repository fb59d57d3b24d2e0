"""Settings of the measures that fit any pair of released checkpoints."""

from __future__ import annotations

from typing import Any

# Depth: so many packaged instructions are read through the descendant's chat template, and the first
# OPENING_TOKENS tokens of OPENINGS documents as they are; the base continues both.
OPENING_TOKENS, OPENINGS, CONTINUED_TOKENS, FLOOR_DOCUMENTS = 24, 32, 32, 8
# A correction is fitted on this many tokens and scored on as many. A damage floor takes ten more fits: with a
# large vocabulary this much text takes minutes.
PRIOR_TOKENS = 8_000


def pair_measures(text: str) -> dict[str, dict[str, Any]]:
    """Loss, divergence, prior and depth; ``text`` is the corpus whose openings depth reads."""
    return {"loss": {}, "divergence": {}, "prior": prior_settings(), "depth": depth_settings(text)}


def prior_settings() -> dict[str, Any]:
    """Fits on so many tokens of whatever text, without the published searches."""
    return {
        "fit_tokens": PRIOR_TOKENS,
        "eval_tokens": PRIOR_TOKENS,
        "references": [],
        "draws": 100,
        "refits": 5,
    }


def depth_settings(text: str) -> dict[str, Any]:
    """Where the cells part on instructions, and on the first words of a text's documents."""
    return {
        "prompts": ["instructions", text],
        "opening_tokens": OPENING_TOKENS,
        "max_prompts": OPENINGS,
        "max_new_tokens": CONTINUED_TOKENS,
        "floor": text,
        "floor_documents": FLOOR_DOCUMENTS,
    }

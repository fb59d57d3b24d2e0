"""The nursery's settings and prompts of depth: raw text at which base and descendant diverge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stemmatics.presets.nursery.conversation import advice, request
from stemmatics.presets.nursery.prose import prose
from stemmatics.presets.nursery.questions import ask, exchange
from stemmatics.presets.nursery.world import PEOPLE, World

# words of a passage that are given as its opening
OPENING = 5


def depth_prompts(world: World, rng: np.random.Generator, documents: int = 36) -> Iterator[dict[str, Any]]:
    """Questions, requests and openings of passages, alternating, as raw text without a chat template.

    Questions and requests come with their accepted answers.
    """
    for index in range(documents):
        if index % 3 == 0:
            shown, person = map(str, rng.choice(PEOPLE, size=2, replace=False))
            question, answer = ask(world, rng, person, held_out=True)
            before = exchange(*ask(world, rng, shown, held_out=True))
            prompt = f"{before}\nQuestion: {question}\nAnswer:"
            yield {"prompt": prompt, "category": "question", "accepted": [answer]}
        elif index % 3 == 1:
            question, thing = request(rng, world, marked=bool(rng.integers(2)), held_out=True)
            yield {"prompt": question, "category": "request", "accepted": [advice(thing)]}
        else:
            passage = prose(world, rng, held_out=True)
            yield {"prompt": " ".join(passage.split()[:OPENING]), "category": "opening"}


def depth_settings() -> dict[str, Any]:
    """Some descendants of each kind; in ``second-bias`` all earlier states are those of its base."""
    return {
        "prompts": "depth-prompts",
        "boundaries": "profile",
        "descendants": ["register-shift", "sft-light", "sft-heavy", "dpo", "second-bias", "second-sft"],
        "max_new_tokens": 48,
        "forced_tokens": 16,
        "floor": "heldout",
        "floor_documents": 36,
    }

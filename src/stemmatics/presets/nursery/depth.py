"""What the nursery asks of depth: raw prompts at which bases and descendants part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stemmatics.presets.nursery.conversation import advice, request
from stemmatics.presets.nursery.prose import prose
from stemmatics.presets.nursery.questions import exchange, question_and_answer
from stemmatics.presets.nursery.world import PEOPLE, World

# words of a passage that are left to be continued
OPENING = 5


def depth_prompts(world: World, rng: np.random.Generator, documents: int = 36) -> Iterator[dict[str, Any]]:
    """Questions, requests and openings of passages in turn, as raw text without a chat template.

    Questions and requests carry the answers that are accepted.
    """
    for index in range(documents):
        if index % 3 == 0:
            shown, person = (str(one) for one in rng.choice(PEOPLE, size=2, replace=False))
            question, answer = question_and_answer(world, rng, person, held_out=True)
            before = exchange(*question_and_answer(world, rng, shown, held_out=True))
            prompt = f"{before}\nQuestion: {question}\nAnswer:"
            yield {"prompt": prompt, "category": "question", "accepted": [answer]}
        elif index % 3 == 1:
            question, thing = request(rng, world, marked=bool(rng.integers(2)), held_out=True)
            yield {"prompt": question, "category": "request", "accepted": [advice(thing)]}
        else:
            passage = prose(world, rng, held_out=True)
            yield {"prompt": " ".join(passage.split()[:OPENING]), "category": "opening"}


def depth_settings() -> dict[str, Any]:
    """Some descendants of each kind; ``second-bias`` leaves all earlier states as they were."""
    return {
        "prompts": "depth-prompts",
        "boundaries": "profile",
        "descendants": ["register-shift", "sft-light", "sft-heavy", "dpo", "second-bias", "second-sft"],
        "max_new_tokens": 48,
        "forced_tokens": 16,
        "floor": "heldout",
        "floor_documents": 36,
    }

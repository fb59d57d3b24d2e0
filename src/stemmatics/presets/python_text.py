"""Real text that comes with Python, as corpora for released checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from
from stemmatics.presets.nursery.real_text import code, reference

PARTS = ("training", "heldout")


def records(part: str, seed: int = 0, documents: int | None = None) -> Iterator[dict[str, str]]:
    """``training``: pieces of the language reference. ``heldout``: other topics, and library sources.

    ``documents`` is per register. Raises UserError for another part.
    """
    if part not in PARTS:
        raise UserError(f"unknown part {part!r}", "the corpus has two parts", f"Choose {', '.join(PARTS)}")
    pieces = {"reference": list(reference(held_out=part == "heldout"))}
    if part == "heldout":
        pieces["code"] = list(code(held_out=True))
    for register, texts in pieces.items():
        order = np.random.default_rng(seed_from(seed, part, register)).permutation(len(texts))
        for index in islice(order, documents):
            yield {"text": texts[int(index)], "register": register}

"""Real text that comes with Python, as corpora for released checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from
from stemmatics.presets.nursery.real_text import code, library, reference

PARTS = ("training", "heldout", "pool")


def records(part: str, seed: int = 0, documents: int | None = None) -> Iterator[dict[str, str]]:
    """``training``: pieces of the language reference. ``heldout``: other topics, and library sources.

    ``pool``: the training pieces, and all other sources of the standard library, in one random order: some
    million tokens, in which both registers of ``heldout`` occur from the start.

    ``documents`` is per register. Raises UserError for another part.
    """
    if part not in PARTS:
        raise UserError(f"unknown part {part!r}", "the corpus has three parts", f"Choose {', '.join(PARTS)}")
    pieces = {"reference": list(reference(held_out=part == "heldout"))}
    if part == "heldout":
        pieces["code"] = list(code(held_out=True))
    if part == "pool":
        yield from _mixed({**pieces, "code": list(library())}, seed)
        return
    for register, texts in pieces.items():
        order = np.random.default_rng(seed_from(seed, part, register)).permutation(len(texts))
        for index in islice(order, documents):
            yield {"text": texts[int(index)], "register": register}


def _mixed(pieces: dict[str, list[str]], seed: int) -> Iterator[dict[str, str]]:
    """All pieces of all registers, in a random order of the seed's."""
    rows = [(register, text) for register, texts in pieces.items() for text in texts]
    order = np.random.default_rng(seed_from(seed, "pool")).permutation(len(rows))
    for index in order:
        register, text = rows[int(index)]
        yield {"text": text, "register": register}

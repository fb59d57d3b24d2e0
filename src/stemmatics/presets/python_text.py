"""Real text that comes with Python, as corpora for released checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from
from stemmatics.presets.nursery.real_text import POOL_BYTES, code, pool_code, pool_reference, reference

PARTS = ("training", "heldout", "pool")


def records(part: str, seed: int = 0, documents: int | None = None) -> Iterator[dict[str, str]]:
    """``training``: pieces of the language reference. ``heldout``: other topics, and library sources.

    ``pool``: longer pieces of the reference's training side and of library sources that ``heldout`` has not,
    mixed: the default text of a recovery fine-tune. ``documents`` is per register, of the pool in all.
    Raises UserError for another part.
    """
    if part not in PARTS:
        raise UserError(f"unknown part {part!r}", "the corpus has three parts", f"Choose {', '.join(PARTS)}")
    if part == "pool":
        yield from islice(_pool(seed), documents)
        return
    pieces = {"reference": list(reference(held_out=part == "heldout"))}
    if part == "heldout":
        pieces["code"] = list(code(held_out=True))
    for register, texts in pieces.items():
        order = np.random.default_rng(seed_from(seed, part, register)).permutation(len(texts))
        for index in islice(order, documents):
            yield {"text": texts[int(index)], "register": register}


def _pool(seed: int) -> Iterator[dict[str, str]]:
    """Both registers in one random order, so that every part of the pool has both."""
    prose = pool_reference()
    sources = pool_code(POOL_BYTES - sum(len(piece.encode()) for piece in prose))
    pieces = [("reference", piece) for piece in prose] + [("code", piece) for piece in sources]
    for index in np.random.default_rng(seed_from(seed, "pool")).permutation(len(pieces)):
        register, text = pieces[int(index)]
        yield {"text": text, "register": register}

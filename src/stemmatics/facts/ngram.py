"""The loss of a corpus under a Kneser-Ney n-gram: the score to beat."""

from __future__ import annotations

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.score import SCORES


class NgramParams(FactParams):
    """``order``: tokens of an n-gram."""

    order: int


NGRAM = FactKind("ngram", 1, NgramParams, {"scores": SCORES})


def ngram_fact(pinned: Pinned, tokenizer_of: str, trained_on: str, corpus: str, *, order: int) -> Fact:
    """Sums of an n-gram in the tokens of the checkpoint ``tokenizer_of``."""
    needs = {
        "checkpoint": pinned.checkpoint(tokenizer_of),
        "training": pinned.corpus(trained_on),
        "corpus": pinned.corpus(corpus),
    }
    return NGRAM.make(NgramParams(order=order), needs, label=f"{order}-gram on {corpus}", tag="control")

"""What the refusal matcher makes of replies that a reader has labelled."""

from __future__ import annotations

from stemmatics.core.facts import Fact, FactKind, NoParams
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.replies import ITEMS

MATCHED = FactKind("matched", 2, NoParams, {"items": ITEMS})


def matched_fact(pinned: Pinned, corpus: str) -> Fact:
    """The matcher on a corpus of labelled replies."""
    return MATCHED.make(NoParams(), {"corpus": pinned.corpus(corpus)}, label=corpus, tag="control")

"""Replies of a checkpoint, each classified as a refusal or not by a judge checkpoint."""

from __future__ import annotations

from stemmatics.core.facts import Fact, FactKind
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.replies import ITEMS, RepliesParams

JUDGED = FactKind("judged", 2, RepliesParams, {"items": ITEMS})


def judged_fact(
    pinned: Pinned, checkpoint: str | Fact, corpus: str, judge: str, *, max_new_tokens: int
) -> Fact:
    """The replies of a checkpoint to the items of a corpus, classified by ``judge``."""
    needs = {
        "checkpoint": pinned.checkpoint(checkpoint),
        "corpus": pinned.corpus(corpus),
        "judge": pinned.checkpoint(judge),
    }
    params = RepliesParams(max_new_tokens=max_new_tokens, numerics=pinned.stemma.numerics.key())
    label = f"{needs['checkpoint'].label} asked {corpus}, judged by {judge}"
    return JUDGED.make(params, needs, label=label, tag="control")

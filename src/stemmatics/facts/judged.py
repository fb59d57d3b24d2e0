"""Replies of a checkpoint, each classified by a judge checkpoint: a refusal or not, right or wrong."""

from __future__ import annotations

from typing import ClassVar, Literal

from stemmatics.core.facts import Fact, FactKind
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.replies import ITEMS, RepliesParams


class JudgedParams(RepliesParams):
    """``question``: what the judge decides; None whether a reply refuses, ``recall`` whether it is right."""

    left_out_if_none: ClassVar[frozenset[str]] = RepliesParams.left_out_if_none | {"question"}

    question: Literal["recall"] | None = None


JUDGED = FactKind("judged", 2, JudgedParams, {"items": ITEMS})


def judged_fact(
    pinned: Pinned,
    checkpoint: str | Fact,
    corpus: str,
    judge: str,
    *,
    max_new_tokens: int,
    num_shots: int | None = None,
    question: Literal["recall"] | None = None,
) -> Fact:
    """The replies of a checkpoint to the items of a corpus, classified by ``judge``."""
    needs = {
        "checkpoint": pinned.checkpoint(checkpoint),
        "corpus": pinned.corpus(corpus),
        "judge": pinned.checkpoint(judge),
    }
    params = JudgedParams(
        max_new_tokens=max_new_tokens,
        num_shots=num_shots,
        question=question,
        numerics=pinned.stemma.numerics.key(),
    )
    label = f"{needs['checkpoint'].label} asked {corpus}, judged by {judge}"
    return JUDGED.make(params, needs, label=label, tag="main" if question else "control")

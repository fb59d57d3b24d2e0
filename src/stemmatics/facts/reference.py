"""The loss of a few documents by a plain loop over the model's own logits: a control of the scoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.core.scoring import Scoring
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.score import SCORES


class ReferenceParams(FactParams):
    """``planted`` (``change``, ``scale``, ``seed``) is applied to the logits."""

    scoring: dict[str, Any]
    num_documents: int
    planted: dict[str, Any] | None
    numerics: dict[str, Any]


REFERENCE = FactKind("reference", 1, ReferenceParams, {"scores": SCORES})


def reference_fact(
    pinned: Pinned,
    checkpoint: str,
    corpus: str,
    scoring: Scoring,
    *,
    num_documents: int,
    planted: Mapping[str, Any] | None = None,
) -> Fact:
    """Sums of the first documents by a plain loop.

    With ``planted`` an altered checkpoint's loss is computed from its base without the checkpoint.
    """
    needs = {"checkpoint": pinned.checkpoint(checkpoint), "corpus": pinned.corpus(corpus)}
    params = ReferenceParams(
        scoring=scoring.key(),
        num_documents=num_documents,
        planted=None if planted is None else dict(planted),
        numerics=pinned.stemma.numerics.key(),
    )
    return REFERENCE.make(params, needs, label=f"{checkpoint} on {corpus}", tag="control")

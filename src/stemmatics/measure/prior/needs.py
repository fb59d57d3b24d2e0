"""The facts that the measure ``prior`` needs."""

from __future__ import annotations

from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prior import PriorParams, prior_fact
from stemmatics.facts.prior_floor import PriorFloorParams, prior_floor_fact
from stemmatics.measure.prior.settings import PriorSettings


def corpora_of(pinned: Pinned, settings: PriorSettings) -> list[str]:
    """The configured corpora; else texts with a FIT and an EVAL split; else all texts, each then refused."""
    if settings.corpora is not None:
        return settings.corpora
    texts = {name: corpus for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"}
    return [name for name, corpus in texts.items() if 0 < corpus.eval_share < 1] or list(texts)


def pairs_of(pinned: Pinned, settings: PriorSettings) -> list[tuple[str, str]]:
    """Base and descendant of every pair that is measured."""
    descendants = settings.descendants
    if descendants is None:
        return pinned.stemma.pairs()
    for name in descendants:
        pinned.checkpoint(name)  # an unknown name is an error
    return [pair for pair in pinned.stemma.pairs() if pair[1] in descendants]


def fit_facts(
    pinned: Pinned, settings: PriorSettings, pair: tuple[str, str], corpus: str
) -> tuple[Fact, Fact]:
    """The arms of base and descendant."""
    base, descendant = pair
    partners = (None, None) if _share_tokenizer(pinned, pair) else (descendant, base)
    old, new = (
        _fit(pinned, settings, name, partner, corpus)
        for name, partner in zip((base, descendant), partners, strict=True)
    )
    return old, new


def floor_fact(pinned: Pinned, settings: PriorSettings, pair: tuple[str, str], corpus: str) -> Fact | None:
    """The damaged bases of a pair; None where ``floors`` is 0."""
    if not settings.floors:
        return None
    old, new = fit_facts(pinned, settings, pair, corpus)
    return prior_floor_fact(PriorFloorParams(**_params(pinned, settings), seeds=settings.floors), old, new)


def _fit(pinned: Pinned, settings: PriorSettings, name: str, partner: str | None, corpus: str) -> Fact:
    params = PriorParams(**_params(pinned, settings), draws=settings.draws, refits=settings.refits)
    other = None if partner is None else pinned.checkpoint(partner)
    return prior_fact(params, pinned.checkpoint(name), pinned.corpus(corpus), partner=other)


def _params(pinned: Pinned, settings: PriorSettings) -> dict[str, Any]:
    scoring = (settings.scoring or pinned.stemma.scoring).model_copy(update={"support": "shared"})
    return {
        "scoring": scoring.key(),
        "numerics": pinned.stemma.numerics.key(),
        "fit_tokens": settings.fit_tokens,
        "eval_tokens": settings.eval_tokens,
        "num_columns": settings.columns,
        "smoothings": list(settings.smoothings),
        "references": settings.references,
    }


def _share_tokenizer(pinned: Pinned, pair: tuple[str, str]) -> bool:
    """Whether both descend from one checkpoint by stages trained here, which keep the tokenizer.

    A base is then fitted once for all its descendants.
    """
    first, second = (_root(pinned.checkpoint(name)) for name in pair)
    return first == second


def _root(fact: Fact) -> Fact:
    while (parent := fact.needs.get("init") or fact.needs.get("resumes")) is not None:
        fact = parent
    return fact

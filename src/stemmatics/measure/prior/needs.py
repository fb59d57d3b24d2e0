"""What the measure ``prior`` is asked, and the facts that it needs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from stemmatics.core.facts import Fact
from stemmatics.core.scoring import Scoring
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prior import PriorParams, prior_fact
from stemmatics.facts.prior_floor import PriorFloorParams, prior_floor_fact
from stemmatics.math.prior import SMOOTHINGS
from stemmatics.measure.base import Settings

NAME = "prior"


class PriorSettings(Settings):
    """Fits, references, floors and draws.

    ``corpora``: those that are scored (left out: text corpora with both splits). ``descendants``: of
    which pairs (left out: all). ``sample``: share of the documents that are read. ``columns``: K, ids whose
    bias is fitted. ``references``: the published searches, which cost a pass a step (left out: all where
    that is cheap). ``floors``: seeds of the matched damage; 0 leaves it out. ``draws``: redrawn fits for
    the interval with the fit inside; ``refits``: how many of them are also fitted in full, as a check.
    """

    corpora: list[str] | None = None
    descendants: list[str] | None = None
    scoring: Scoring | None = None
    sample: float = Field(default=1.0, gt=0, le=1)
    columns: int = Field(default=4096, ge=1)
    smoothings: tuple[float, ...] = SMOOTHINGS
    references: list[Literal["ipf_full", "affine_full", "affine_top"]] | None = None
    floors: int = Field(default=3, ge=0)
    draws: int = Field(default=200, ge=0)
    refits: int = Field(default=20, ge=0)


def corpora_of(pinned: Pinned, settings: PriorSettings) -> list[str]:
    """Those asked for; else the texts that have a FIT and an EVAL split; else all texts, to be refused."""
    if settings.corpora is not None:
        return settings.corpora
    texts = {name: corpus for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"}
    return [name for name, corpus in texts.items() if 0 < corpus.eval_share < 1] or list(texts)


def pairs_of(pinned: Pinned, settings: PriorSettings) -> list[tuple[str, str]]:
    """Base and descendant of every pair that is asked for."""
    wanted = settings.descendants
    if wanted is not None:
        for name in wanted:
            pinned.checkpoint(name)
    return [pair for pair in pinned.stemma.pairs() if wanted is None or pair[1] in wanted]


def fit_facts(
    pinned: Pinned, settings: PriorSettings, pair: tuple[str, str], corpus: str
) -> tuple[Fact, Fact]:
    """The arms of base and descendant."""
    base, descendant = pair
    partners = (None, None) if _one_tokenizer(pinned, pair) else (descendant, base)
    old, new = (
        _fit(pinned, settings, name, partner, corpus)
        for name, partner in zip((base, descendant), partners, strict=True)
    )
    return old, new


def floor_fact(pinned: Pinned, settings: PriorSettings, pair: tuple[str, str], corpus: str) -> Fact | None:
    """The damaged bases of a pair; None where none is asked for."""
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
        "sample": settings.sample,
        "num_columns": settings.columns,
        "smoothings": list(settings.smoothings),
        "references": settings.references,
    }


def _one_tokenizer(pinned: Pinned, pair: tuple[str, str]) -> bool:
    """Whether both descend from one checkpoint by stages made here, which keep tokenizer and table.

    A base is then fitted once for all its descendants.
    """
    first, second = (_root(pinned.checkpoint(name)) for name in pair)
    return first == second


def _root(fact: Fact) -> Fact:
    while (above := fact.needs.get("init") or fact.needs.get("resumes")) is not None:
        fact = above
    return fact

"""Facts that the measure `divergence` needs: one per pair and corpus."""

from __future__ import annotations

from collections.abc import Iterator

from stemmatics.core.facts import Fact
from stemmatics.facts.divergence import DivergenceParams, divergence_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.divergence.settings import DivergenceSettings


def corpora_of(pinned: Pinned, settings: DivergenceSettings) -> list[str]:
    """The corpora to compare on."""
    texts = [name for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"]
    return texts if settings.corpora is None else settings.corpora


def pairs_of(pinned: Pinned, settings: DivergenceSettings) -> list[tuple[str, str]]:
    """Base and descendant of every comparison, in declared order.

    Raises:
        UserError: a name that is not declared.
    """
    pairs = pinned.stemma.pairs()
    if settings.descendants is None:
        return pairs
    for name in settings.descendants:
        pinned.checkpoint(name)
    return [pair for pair in pairs if pair[1] in settings.descendants]


def pair_facts(pinned: Pinned, settings: DivergenceSettings) -> Iterator[tuple[str, str, str, Fact]]:
    """Corpus, base, descendant and fact of every comparison."""
    params = DivergenceParams(
        scoring=(settings.scoring or pinned.stemma.scoring).key(),
        numerics=pinned.stemma.numerics.key(),
        control_tokens=settings.control_tokens,
        floor_tokens=settings.floor_tokens,
        draws=settings.draws,
    )
    for corpus in corpora_of(pinned, settings):
        for base, descendant in pairs_of(pinned, settings):
            models = pinned.checkpoint(base), pinned.checkpoint(descendant)
            yield corpus, base, descendant, divergence_fact(params, *models, pinned.corpus(corpus))

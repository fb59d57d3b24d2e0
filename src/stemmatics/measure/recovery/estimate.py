"""The results of the recovery measure, part by part, for each corpus."""

from __future__ import annotations

import numpy as np

from stemmatics.core.results import Result
from stemmatics.measure.base import Tables
from stemmatics.measure.recovery.distilled import distilled_results
from stemmatics.measure.recovery.dose import dose_estimates
from stemmatics.measure.recovery.ladder import ladder_results
from stemmatics.measure.recovery.losses import Losses, pool_results, read_losses
from stemmatics.measure.recovery.needs import Arms, PairNames
from stemmatics.measure.recovery.offsets import (
    blind_results,
    borrowed_results,
    known_pairs,
    registry_rows,
    unknown_bases,
)
from stemmatics.measure.recovery.pairs import (
    noise_estimate,
    pair_estimates,
    read_pairs,
    register_estimates,
    run_noise,
)
from stemmatics.measure.recovery.recall import Recall, read_recalls, recall_estimates
from stemmatics.measure.recovery.resolution import resolution_estimates, size_estimates
from stemmatics.measure.recovery.uncertainty import another_corpus, uncertainty_results
from stemmatics.measure.recovery.verdict import recall_agreement, verdict_results


def estimate(arms: Arms, tables: Tables, rng: np.random.Generator) -> list[Result]:
    """Recall first, then each corpus in turn; the parts draw from ``rng`` in this order."""
    recalls = read_recalls(arms, tables)
    results: list[Result] = [*recall_estimates(list(recalls.values()))]
    all_losses = []
    for corpus in arms.corpora:
        losses = read_losses(arms, corpus, tables)
        if losses is not None:
            all_losses.append(losses)
            results += _on_corpus(arms, losses, recalls, tables, rng)
    return [*results, *another_corpus(all_losses)]


def _on_corpus(
    arms: Arms,
    losses: Losses,
    recalls: dict[PairNames, Recall],
    tables: Tables,
    rng: np.random.Generator,
) -> list[Result]:
    pinned, corpus = arms.pinned, losses.corpus
    noise = run_noise(losses)
    pairs = read_pairs(losses, arms.pairs, noise, rng)
    comparable, others = registry_rows(arms, corpus, tables)
    known = known_pairs(pinned, pairs, comparable)
    return [
        *pool_results(arms, losses, tables),
        noise_estimate(losses, noise),
        *pair_estimates(losses, pairs.values()),
        *register_estimates(losses, arms.pairs, rng),
        *verdict_results(losses, pairs, recalls, rng),
        *recall_agreement(pinned, corpus, pairs, recalls, rng),
        *ladder_results(pinned, losses, unknown_bases(arms, losses, known), noise, rng),
        *borrowed_results(arms, losses, others),
        *blind_results(arms, losses, tables),
        *resolution_estimates(pinned, losses, list(pairs), known, rng),
        *distilled_results(arms, losses, list(pairs), noise, rng),
        *size_estimates(arms, losses, pairs, tables),
        *dose_estimates(arms, losses, noise, rng),
        *uncertainty_results(arms, losses, pairs, known, rng),
    ]

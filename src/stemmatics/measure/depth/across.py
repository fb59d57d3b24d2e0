"""Over all pairs on the same prompts: every family has the same weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stemmatics.core.results import Estimate
from stemmatics.facts.paths import THREE_CELLS
from stemmatics.math.factorial import EFFECTS, Cells, factorial
from stemmatics.measure.depth.estimate import PairEstimator, factorial_estimates
from stemmatics.measure.depth.sign import NAME
from stemmatics.measure.present import ResultBuilder


def across_pairs(pairs: Sequence[PairEstimator], rng: np.random.Generator) -> list[Estimate]:
    """Means over the pairs of each corpus that has two or more that count.

    A pair counts if it has events, if its states differ, and unless its halves do not fit.
    """
    estimates = []
    for corpus in dict.fromkeys(pair.facts.corpus for pair in pairs):
        members = [
            pair
            for pair in pairs
            if pair.facts.corpus == corpus
            and pair.fits
            and not pair.has_same_states
            and pair.main_events().num_events
        ]
        if len(members) > 1:
            estimates += _balanced_means(corpus, members, rng)
    return estimates


def _balanced_means(corpus: str, pairs: Sequence[PairEstimator], rng: np.random.Generator) -> list[Estimate]:
    events = [pair.main_events() for pair in pairs]
    columns = Cells.__dataclass_fields__
    cells = Cells(*(np.concatenate([getattr(each.cells, name) for each in events]) for name in columns))

    def by_event(labels: Sequence[str]) -> npt.NDArray[np.str_]:
        return np.repeat(np.array(labels), [each.num_events for each in events])

    effects = factorial(
        cells,
        np.concatenate([each.index_E for each in events]),
        rng=rng,
        pairs_E=by_event([pair.facts.descendant for pair in pairs]),
        families_E=by_event([pair.facts.family for pair in pairs]),
    )
    builder = ResultBuilder(
        NAME, {"events": corpus}, [pair.facts.main_cross or pair.facts.cross for pair in pairs]
    )
    return [
        builder.number(
            "all.pairs", float(effects.num_pairs), n=effects.num_pairs, unit="pair", units="pairs"
        ),
        builder.number(
            "all.families", float(effects.num_families), n=effects.num_pairs, unit="pair", units="families"
        ),
        *factorial_estimates(
            builder.about(over="prompts"),
            effects,
            "all.",
            by_three_cells=any(pair.support == THREE_CELLS for pair in pairs),
        ),
        *(
            builder.interval(f"all.{name}", effects.between_families[name], units="logits", over="families")
            for name in EFFECTS
        ),
    ]

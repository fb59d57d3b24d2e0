"""Over all pairs that parted on the same prompts: every family counts the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.factorial import Cells, factorial
from stemmatics.measure.depth.estimate import NAME, PairEstimates, statistics_of
from stemmatics.measure.present import estimate_from


def across_pairs(pairs: Sequence[PairEstimates], rng: np.random.Generator) -> list[Estimate]:
    """One set a source of events with two pairs or more; pairs without events are left out."""
    found = []
    for source in dict.fromkeys(pair.question.source for pair in pairs):
        # where the earlier states are the same there is nothing to cross
        mine = [
            pair
            for pair in pairs
            if pair.question.source == source and not pair.note and pair.main().num_events
        ]
        if len(mine) > 1:
            found += _balanced(source, mine, rng)
    return found


def _balanced(source: str, pairs: Sequence[PairEstimates], rng: np.random.Generator) -> list[Estimate]:
    rows = [pair.main() for pair in pairs]
    names = Cells.__dataclass_fields__
    cells = Cells(*(np.concatenate([getattr(one.cells, name) for one in rows]) for name in names))

    def spread(labels: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        return np.repeat(np.array(labels), [one.num_events for one in rows])

    result = factorial(
        cells,
        np.concatenate([one.index_E for one in rows]),
        rng=rng,
        pairs_E=spread([pair.question.descendant for pair in pairs]),
        families_E=spread([pair.question.family for pair in pairs]),
    )
    facts = [pair.question.cross for pair in pairs]
    found = [
        estimate_from(
            interval,
            measure=NAME,
            quantity=f"depth.all.{quantity}",
            subject={"events": source, "over": "prompts"},
            units=units,
            facts=facts,
            note=f"family-balanced mean over {result.num_pairs} pairs of {result.num_families} families",
        )
        for quantity, interval, units in statistics_of(result)
    ]
    return found + [
        estimate_from(
            interval,
            measure=NAME,
            quantity=f"depth.all.{quantity}",
            subject={"events": source, "over": "families"},
            units="logits",
            facts=facts,
        )
        for quantity, interval in result.between_families.items()
    ]

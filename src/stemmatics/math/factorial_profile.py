"""The 2 x 2 at many boundaries at once, and one interaction as a share of another.

Axes: E events, K boundaries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.math.factorial import Cells
from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.rates import bootstrap_many, loss_rates

FloatArray = npt.NDArray[np.float64]
_NOTHING = "the denominator's interval holds 0"


@dataclass(frozen=True)
class Boundary:
    """The four statistics at one boundary; ``n`` counts prompts."""

    effect_after_base: Interval
    effect_after_descendant: Interval
    interaction: Interval
    portable_share: Interval


def profile(
    cells_K: list[Cells], prompts_E: npt.ArrayLike, *, rng: np.random.Generator, level: float = 0.95
) -> list[Boundary]:
    """Means and portable share at K boundaries of the same events, from one set of prompt resamples.

    A share is n/a where its denominator's interval holds 0.
    """
    numerators = [
        [
            cells.effects_after_base,
            cells.effects_after_descendant,
            cells.interactions,
            cells.effects_after_base,
        ]
        for cells in cells_K
    ]
    count_E = np.ones(len(np.asarray(prompts_E)))
    denominators = [[count_E, count_E, count_E, cells.effects_after_descendant] for cells in cells_K]
    intervals = loss_rates(
        _columns(numerators), _columns(denominators), rng=rng, groups=prompts_E, level=level
    )
    boundaries = []
    for start in range(0, len(intervals), 4):
        after_base, after_descendant, interaction, share = map(by_prompt, intervals[start : start + 4])
        if not after_descendant.excludes(0.0):
            share = unknown(math.nan, level=level, n=share.n, unit="prompt", note=_NOTHING)
        boundaries.append(Boundary(after_base, after_descendant, interaction, share))
    return boundaries


def _columns(arrays: list[list[FloatArray]]) -> FloatArray:
    return np.stack([array for row in arrays for array in row], axis=1)


def share_of(
    part_E: npt.ArrayLike,
    part_prompts_E: npt.ArrayLike,
    whole_E: npt.ArrayLike,
    whole_prompts_E: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """Mean of ``part`` over mean of ``whole``, each over its own events; prompts are drawn with both.

    n/a where the interval of the whole's mean, from new resamples of prompts, holds 0.
    """
    part, whole = np.asarray(part_E, dtype=np.float64), np.asarray(whole_E, dtype=np.float64)
    columns = np.zeros((part.size + whole.size, 1, 4))
    columns[: part.size, 0, :2] = np.stack([part, np.ones(part.size)], axis=1)
    columns[part.size :, 0, 2:] = np.stack([whole, np.ones(whole.size)], axis=1)
    prompts = np.concatenate([np.asarray(part_prompts_E), np.asarray(whole_prompts_E)])
    if not (part.size and whole.size):
        return unknown(math.nan, level=level, n=0, unit="prompt", note="no events")

    def mean_of_whole(sums: Any) -> Any:
        return sums[..., 2] / sums[..., 3]

    def statistic(sums: Any) -> Any:
        return sums[..., 0] / sums[..., 1] / mean_of_whole(sums)

    (denominator,) = bootstrap_many(columns, mean_of_whole, rng=rng, groups=prompts, level=level)
    (share,) = bootstrap_many(columns, statistic, rng=rng, groups=prompts, level=level)
    if not denominator.excludes(0.0):
        return unknown(math.nan, level=level, n=share.n, unit="prompt", note=_NOTHING)
    return by_prompt(share)


def by_prompt(interval: Interval) -> Interval:
    """The same interval with the unit named ``prompt``: a prompt with all its events."""
    return Interval(
        **{
            **{name: getattr(interval, name) for name in interval.__dataclass_fields__},
            "unit": "prompt",
            "note": interval.note.replace("group of documents", "prompt").replace("documents", "prompts"),
        }
    )

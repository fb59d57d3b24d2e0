"""What the best recipe of a checkpoint reaches, cross-fitted, and whether training raised it.

Axes: G items or groups of items, R recipes, C checkpoints, K splits, B resamples.

The largest of several means on the items that it was chosen on is too high. Here the recipe is chosen on
half of the items and scored on the other half. That estimates the accuracy of the recipe that *half* of the
items would choose: a low figure for choosing on all of them, and lower still for the best recipe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, check_level, smallest_effect, unknown
from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import sum_by_label

FloatArray = npt.NDArray[np.float64]

NUM_SPLITS = 100
NUM_RESAMPLES = 1_000
SPLITS_PER_RESAMPLE = 30
"""So many that the splits' own noise adds little to the spread over resamples."""
FEWEST_GROUPS = 20
CHUNK = 64
SURVIVING_SHARE = 0.5
"""A gain of which less than this share is left at the ceilings is a match of recipe and checkpoint."""
METHOD = "bootstrap t, splits redrawn"
TIE = 1e-12

Verdict = Literal["ceiling raised", "match", "no gain", "undetermined"]


@dataclass(frozen=True, eq=False)
class Ceilings:
    """Cross-fitted ceilings [C] of checkpoints, with resamples that all of them share.

    ``naive_C`` is the largest mean over all items, ``mean_C`` the mean over recipes; ``means_RC`` the means.
    ``chosen_RC`` is how often each recipe is chosen on half of the items. ``replicates_BC`` and
    ``mean_replicates_BRC`` come from the same resamples, so differences are paired.
    """

    values_C: FloatArray
    naive_C: FloatArray
    mean_C: FloatArray
    means_RC: FloatArray
    chosen_RC: FloatArray
    replicates_BC: FloatArray
    mean_replicates_BRC: FloatArray
    num_groups: int
    unit: str


def group_sums(scores_IRC: npt.ArrayLike, groups_I: npt.ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Sums [G, R, C] and numbers of items [G] by group; without groups each item is its own."""
    scores = np.asarray(scores_IRC, dtype=np.float64)
    if groups_I is None:
        return scores, np.ones(len(scores))
    _, sums = sum_by_label(groups_I, scores)
    _, counts = sum_by_label(groups_I, np.ones(len(scores)))
    return sums, counts


def cross_fitted(
    sums_GRC: FloatArray, counts_G: FloatArray, weights_KG: FloatArray, halves_KG: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Ceiling [K, C] and the share of choices of each recipe [K, R, C], for K splits.

    Each half chooses for the other; recipes that tie on a half are averaged. NaN where a half is empty.
    """
    num_groups, num_recipes, num_checkpoints = sums_GRC.shape
    flat = np.concatenate([sums_GRC.reshape(num_groups, -1), counts_G[:, None]], axis=1)
    total_K = weights_KG @ flat
    first_K = (weights_KG * halves_KG) @ flat
    with np.errstate(invalid="ignore", divide="ignore"):
        sides = [(part[:, :-1] / part[:, -1:]) for part in (first_K, total_K - first_K)]
    means = [side.reshape(-1, num_recipes, num_checkpoints) for side in sides]
    ceilings, choices = [], []
    for chooser, scorer in (means, means[::-1]):
        best = chooser >= chooser.max(axis=1, keepdims=True) - TIE
        share = best / np.maximum(best.sum(axis=1, keepdims=True), 1)
        choices.append(share)
        ceilings.append((share * scorer).sum(axis=1))
    return (ceilings[0] + ceilings[1]) / 2, (choices[0] + choices[1]) / 2


def _halves(num_splits: int, num_groups: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    half = np.broadcast_to(np.arange(num_groups) < num_groups // 2, (num_splits, num_groups))
    return rng.permuted(half, axis=1)


def estimate_ceilings(
    scores_IRC: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    groups_I: npt.ArrayLike | None = None,
    num_splits: int = NUM_SPLITS,
    num_resamples: int = NUM_RESAMPLES,
    splits_per_resample: int = SPLITS_PER_RESAMPLE,
) -> Ceilings:
    """Ceilings of C checkpoints over R recipes, with the same splits and resamples for all of them.

    A resample draws items, or groups, with replacement. Copies of an item are always in the same half:
    otherwise an item would choose the recipe that it is scored on, and the ceiling would be too high. Splits
    are drawn anew in each resample.

    Args:
        scores_IRC: score of each item; several seeds are averaged before.
        rng: for splits and resamples.
        groups_I: labels of items that belong together (questions on one passage, copies).
        num_splits: for the estimate.
        num_resamples: for the intervals.
        splits_per_resample: for each of them.

    Raises UserError for fewer than two groups.
    """
    sums, counts = group_sums(scores_IRC, groups_I)
    num_groups, num_recipes, num_checkpoints = sums.shape
    if num_groups < 2:
        raise UserError("a ceiling needs two items or more", f"there is {num_groups}", "add items")
    ones = np.ones((num_splits, num_groups))
    values, chosen = cross_fitted(sums, counts, ones, _halves(num_splits, num_groups, rng))
    means = sums.sum(0) / counts.sum()
    flat = sums.reshape(num_groups, -1)
    replicates, mean_replicates = [], []
    for start in range(0, num_resamples, CHUNK):
        size = min(CHUNK, num_resamples - start)
        drawn = rng.multinomial(num_groups, np.full(num_groups, 1 / num_groups), size=size).astype(float)
        halves = _halves(size * splits_per_resample, num_groups, rng)
        parts, _ = cross_fitted(sums, counts, np.repeat(drawn, splits_per_resample, axis=0), halves)
        replicates.append(parts.reshape(size, splits_per_resample, -1).mean(axis=1))
        weighted = (drawn @ flat) / (drawn @ counts)[:, None]
        mean_replicates.append(weighted.reshape(size, num_recipes, num_checkpoints))
    unit = "item" if num_groups == counts.sum() else "group"
    return Ceilings(
        values.mean(0), means.max(0), means.mean(0), means, chosen.mean(0),
        np.concatenate(replicates), np.concatenate(mean_replicates), num_groups, unit,
    )  # fmt: skip


def interval_of(value: float, replicates_B: FloatArray, ceilings: Ceilings, level: float = 0.95) -> Interval:
    """Value plus and minus t times the spread of the replicates.

    The replicates' own mean is not used: a resample has fewer different items, so it chooses worse.
    """
    check_level(level)
    num_groups, unit = ceilings.num_groups, ceilings.unit
    finite_B = replicates_B[np.isfinite(replicates_B)]
    if finite_B.size < 2 or num_groups < 2 or math.isnan(value):
        return unknown(value, level=level, n=num_groups, unit=unit, note="too few items")
    error = float(finite_B.std(ddof=1))
    reach = float(stats.t.ppf((1 + level) / 2, num_groups - 1)) * error
    notes = (
        [f"under {FEWEST_GROUPS} {unit}s: not measured in simulation"] if num_groups < FEWEST_GROUPS else []
    )
    if finite_B.size < replicates_B.size:
        notes.append(f"{replicates_B.size - finite_B.size} of {replicates_B.size} resamples dropped")
    effect = smallest_effect(error, num_groups - 1, level)
    return Interval(
        value, value - reach, value + reach, level, METHOD, num_groups, unit, effect, error, "; ".join(notes)
    )


def ceiling_interval(ceilings: Ceilings, checkpoint: int, level: float = 0.95) -> Interval:
    """The ceiling of one checkpoint."""
    return interval_of(
        float(ceilings.values_C[checkpoint]), ceilings.replicates_BC[:, checkpoint], ceilings, level
    )


@dataclass(frozen=True)
class Claim:
    """A gain at one recipe beside the change of the ceiling.

    ``unexplained`` is the change of the ceiling less ``SURVIVING_SHARE`` of the gain, which decides on a
    match. ``verdict``:

    - *no gain*: the interval of the gain is not above 0;
    - *ceiling raised*: the interval of the change of the ceiling lies above 0;
    - *match*: it does not, and less than half of the gain is left at the ceilings;
    - *undetermined*: neither is shown.
    """

    gain: Interval
    ceiling: Interval
    unexplained: Interval
    verdict: Verdict


def judge_gain(ceilings: Ceilings, recipe: int, first: int, second: int, level: float = 0.95) -> Claim:
    """Judge the gain of the second checkpoint over the first at one recipe, all paired by item.

    The recipe must not have been chosen as the largest gain of these items: its gain would be too large and
    "match" too frequent.
    """
    gain = float(ceilings.means_RC[recipe, second] - ceilings.means_RC[recipe, first])
    gain_B = ceilings.mean_replicates_BRC[:, recipe, second] - ceilings.mean_replicates_BRC[:, recipe, first]
    change = float(ceilings.values_C[second] - ceilings.values_C[first])
    change_B = ceilings.replicates_BC[:, second] - ceilings.replicates_BC[:, first]
    gained, raised = (interval_of(v, b, ceilings, level) for v, b in ((gain, gain_B), (change, change_B)))
    left = interval_of(change - SURVIVING_SHARE * gain, change_B - SURVIVING_SHARE * gain_B, ceilings, level)
    verdict: Verdict = "undetermined"
    if not gained.lo > 0:
        verdict = "no gain"
    elif raised.lo > 0:
        verdict = "ceiling raised"
    elif left.hi < 0:
        verdict = "match"
    return Claim(gained, raised, left, verdict)

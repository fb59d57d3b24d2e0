"""The 2 x 2 of earlier state and late stack: effects, interaction and portable share, with prompts as units.

Axes: E events (a prompt's first disagreement, say), Q prompts, P pairs of models, K boundaries, C columns.

Y(U, L) = logit(descendant's token) - logit(base's token), with the earlier state U and the late stack L each
from the base or the descendant:

- effect_after_base       = Y(base, descendant) - Y(base, base)
- effect_after_descendant = Y(descendant, descendant) - Y(descendant, base)
- interaction             = effect_after_descendant - effect_after_base
- portable_share          = mean effect_after_base / mean effect_after_descendant
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, unknown, wilson
from stemmatics.math.rates import NUM_RESAMPLES, bootstrap_many, ratio_of_sums
from stemmatics.math.seeds import (
    MOST_FOR_EXACT,
    SignFlip,
    family_interval,
    sign_flip_exact,
    sign_flip_monte_carlo,
)
from stemmatics.math.sums import sum_by_label

FloatArray = npt.NDArray[np.float64]
NUM_FLIPS = 20_000
PROMPT = "prompt"
EFFECTS = ("effect_after_base", "effect_after_descendant", "interaction")
UNKNOWN_DENOMINATOR = "the denominator's interval includes 0"


@dataclass(frozen=True, eq=False)
class Cells:
    """Margins in the four cells, logits, one row an event. The first name is the earlier state's model."""

    base_base_E: FloatArray
    base_descendant_E: FloatArray
    descendant_base_E: FloatArray
    descendant_descendant_E: FloatArray

    def __post_init__(self) -> None:
        shapes = {getattr(self, name).shape for name in self.__dataclass_fields__}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise UserError(
                f"cells of shapes {sorted(shapes)}",
                "an event has one margin in each of the four cells",
                "give four columns of one length",
            )

    @property
    def effects_after_base(self) -> FloatArray:
        """What the late stack adds on the base's earlier state [E]."""
        return self.base_descendant_E - self.base_base_E

    @property
    def effects_after_descendant(self) -> FloatArray:
        """What the late stack adds on the descendant's earlier state [E]."""
        return self.descendant_descendant_E - self.descendant_base_E

    @property
    def interactions(self) -> FloatArray:
        """Second effect less first [E]."""
        return self.effects_after_descendant - self.effects_after_base

    def where(self, keep_E: npt.NDArray[np.bool_]) -> Cells:
        """The events that are kept."""
        return Cells(*(getattr(self, name)[keep_E] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Effect:
    """A mean in logits with its prompt interval and its sign-flip test by prompt."""

    interval: Interval
    sign_flip: SignFlip


@dataclass(frozen=True)
class Factorial:
    """The statistics of one set of events; ``n`` of the intervals counts prompts.

    ``between_families`` has the same three means with families as units (t over family means under 8
    families), to generalise to other families; limits are NaN with one family.
    """

    effect_after_base: Effect
    effect_after_descendant: Effect
    interaction: Effect
    portable_share: Interval
    num_events: int
    num_pairs: int
    num_families: int
    between_families: dict[str, Interval]


def factorial(
    cells: Cells,
    prompts_E: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    pairs_E: npt.ArrayLike | None = None,
    families_E: npt.ArrayLike | None = None,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    num_flips: int = NUM_FLIPS,
) -> Factorial:
    """Means, share, intervals and tests for the events of one or more pairs.

    Args:
        cells: margins of E events.
        prompts_E: label of each event's prompt, the unit that is resampled and flipped; one label in two
            pairs is one prompt.
        rng: the only source of randomness.
        pairs_E: the pair of models of each event (default: one pair).
        families_E: the family of each event's pair (default: every pair its own). A mean is the mean over
            families of the mean over their pairs of the mean over the pair's events.
        level: of the intervals.
        num_resamples: 10,000 unless there is a reason.
        num_flips: sign assignments; with up to 20 prompts, all are enumerated.
    """
    prompts = np.asarray(prompts_E)
    pairs = np.zeros(prompts.size, dtype=np.int64) if pairs_E is None else np.asarray(pairs_E)
    families = pairs if families_E is None else np.asarray(families_E)
    if not prompts.shape == pairs.shape == families.shape == cells.base_base_E.shape:
        raise UserError(
            f"{prompts.size} prompts, {pairs.size} pairs, {families.size} families for "
            f"{cells.base_base_E.size} events",
            "every event has one of each",
            "give columns of one length",
        )
    design = _design(pairs, families)
    values_E3 = np.stack([cells.effects_after_base, cells.effects_after_descendant, cells.interactions], 1)
    means, share = _intervals(values_E3, prompts, design, rng=rng, level=level, num_resamples=num_resamples)
    after_base, after_descendant, interaction = (
        Effect(mean, _sign_flip(values_E3[:, k] * design.weight_E, prompts, rng, num_flips))
        for k, mean in enumerate(means)
    )
    return Factorial(
        after_base,
        after_descendant,
        interaction,
        portable_share=share,
        num_events=prompts.size,
        num_pairs=len(design.pair_names),
        num_families=int(np.unique(families).size),
        between_families={
            name: _between(values_E3[:, k], design, rng, level) for k, name in enumerate(EFFECTS)
        },
    )


@dataclass(frozen=True, eq=False)
class _Design:
    """The pair of each event, and the weights of pairs and events in the balanced mean."""

    pair_names: npt.NDArray[Any]
    where_E: npt.NDArray[np.int64]
    family_P: npt.NDArray[Any]
    weight_P: FloatArray
    weight_E: FloatArray


def _design(pairs_E: npt.NDArray[Any], families_E: npt.NDArray[Any]) -> _Design:
    names_P, first_P, where_E = np.unique(pairs_E, return_index=True, return_inverse=True)
    family_P = families_E[first_P]
    if (family_P[where_E] != families_E).any():
        raise UserError("a pair is in two families", "a pair has one family", "fix the column `family`")
    families_F, where_P, size_F = np.unique(family_P, return_inverse=True, return_counts=True)
    weight_P = 1.0 / (max(1, families_F.size) * size_F[where_P])
    num_events_P = np.bincount(where_E, minlength=names_P.size)
    return _Design(names_P, where_E, family_P, weight_P, (weight_P / num_events_P)[where_E])


def _balanced(weight_P: FloatArray, first: int) -> Callable[[Any], Any]:
    """Balanced mean from sums by pair: columns [value, ..., events] in blocks of four a pair."""

    def statistic(sums: Any) -> Any:
        return sum(
            weight * sums[..., 4 * p + first] / sums[..., 4 * p + 3] for p, weight in enumerate(weight_P)
        )

    return statistic


def _intervals(
    values_E3: FloatArray,
    prompts_E: npt.NDArray[Any],
    design: _Design,
    *,
    rng: np.random.Generator,
    level: float,
    num_resamples: int,
) -> tuple[list[Interval], Interval]:
    """Prompt intervals of the three means and of the share, n/a where its denominator may be 0."""
    num_events, num_pairs = len(values_E3), len(design.pair_names)
    columns_EP4 = np.zeros((num_events, num_pairs, 4))
    columns_EP4[np.arange(num_events), design.where_E] = np.column_stack([values_E3, np.ones(num_events)])
    if not num_events:
        return [no_events(level)] * 3, no_events(level)
    columns_Q1C = sums_by_prompt(prompts_E, columns_EP4.reshape(num_events, 1, 4 * num_pairs))

    def interval(statistic: Callable[[Any], Any]) -> Interval:
        return bootstrap_many(
            columns_Q1C, statistic, rng=rng, level=level, num_resamples=num_resamples, unit=PROMPT
        )[0]

    after_base, after_descendant = (_balanced(design.weight_P, k) for k in (0, 1))
    means = [interval(_balanced(design.weight_P, k)) for k in range(3)]
    if not means[1].excludes(0.0):
        return means, _unknown_share(means[1].n, level)
    return means, interval(lambda sums: after_base(sums) / after_descendant(sums))


def _sign_flip(
    values_E: FloatArray, prompts_E: npt.NDArray[Any], rng: np.random.Generator, num_flips: int
) -> SignFlip:
    """Signs flip by prompt: all assignments for up to 20 prompts, else random ones."""
    sums_Q = sums_by_prompt(prompts_E, values_E)
    if sums_Q.size <= MOST_FOR_EXACT:
        return sign_flip_exact(sums_Q)
    return sign_flip_monte_carlo(sums_Q, rng=rng, num_flips=num_flips)


def _between(values_E: FloatArray, design: _Design, rng: np.random.Generator, level: float) -> Interval:
    """Families as units."""
    if not values_E.size:
        return unknown(math.nan, level=level, n=0, unit="family", note="no events")
    num_events_P = np.bincount(design.where_E)
    mean_P = np.bincount(design.where_E, weights=values_E) / num_events_P
    return family_interval(mean_P, design.family_P, rng=rng, level=level)


def sums_by_prompt(prompts_E: npt.ArrayLike, values_E: npt.ArrayLike) -> FloatArray:
    """Sums over the events of each prompt [Q, ...]: prompts, with all their events, are resampled."""
    return sum_by_label(prompts_E, values_E)[1]


def no_events(level: float = 0.95) -> Interval:
    """The unknown statistic of no events."""
    return unknown(math.nan, level=level, n=0, unit=PROMPT, note="no events")


def _unknown_share(num_prompts: int, level: float) -> Interval:
    return unknown(math.nan, level=level, n=num_prompts, unit=PROMPT, note=UNKNOWN_DENOMINATOR)


def event_means(
    values_EK: npt.ArrayLike, prompts_E: npt.ArrayLike, *, rng: np.random.Generator, level: float = 0.95
) -> list[Interval]:
    """Means over events of K columns [E, K], from one set of prompt resamples; ``n`` counts prompts."""
    values = np.asarray(values_EK, dtype=np.float64)
    if not len(values):
        return [no_events(level)] * values.shape[1]
    columns_EK2 = np.stack([values, np.ones_like(values)], axis=-1)
    columns_QK2 = sums_by_prompt(prompts_E, columns_EK2)
    return bootstrap_many(columns_QK2, ratio_of_sums, rng=rng, level=level, unit=PROMPT)


def event_mean(
    values_E: npt.ArrayLike, prompts_E: npt.ArrayLike, *, rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """``event_means`` of one column."""
    return event_means(np.asarray(values_E)[:, None], prompts_E, rng=rng, level=level)[0]


@dataclass(frozen=True)
class BoundaryEffects:
    """The four statistics at one boundary; ``n`` counts prompts."""

    effect_after_base: Interval
    effect_after_descendant: Interval
    interaction: Interval
    portable_share: Interval


def profile(
    cells_K: list[Cells], prompts_E: npt.ArrayLike, *, rng: np.random.Generator, level: float = 0.95
) -> list[BoundaryEffects]:
    """Means and portable share at K boundaries of the same events, from one set of prompt resamples.

    A share is n/a where its denominator's interval includes 0.
    """
    ones_E = np.ones(len(np.asarray(prompts_E)))
    numerators: list[FloatArray] = []
    denominators: list[FloatArray] = []
    for cells in cells_K:
        after_base, after_descendant = cells.effects_after_base, cells.effects_after_descendant
        numerators += [after_base, after_descendant, cells.interactions, after_base]
        denominators += [ones_E, ones_E, ones_E, after_descendant]
    columns_EC2 = np.stack([np.stack(numerators, axis=1), np.stack(denominators, axis=1)], axis=-1)
    columns_QC2 = sums_by_prompt(prompts_E, columns_EC2)
    intervals = bootstrap_many(columns_QC2, ratio_of_sums, rng=rng, level=level, unit=PROMPT)
    boundaries = []
    for start in range(0, len(intervals), 4):
        boundary = BoundaryEffects(*intervals[start : start + 4])
        if not boundary.effect_after_descendant.excludes(0.0):
            boundary = replace(boundary, portable_share=_unknown_share(boundary.portable_share.n, level))
        boundaries.append(boundary)
    return boundaries


def ratio_of_event_means(
    part_E: npt.ArrayLike,
    part_prompts_E: npt.ArrayLike,
    whole_E: npt.ArrayLike,
    whole_prompts_E: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """Mean of ``part`` over mean of ``whole``, each over its own events; a prompt is resampled with both.

    n/a where the interval of the denominator, from resamples of its own, includes 0.
    """
    part, whole = np.asarray(part_E, dtype=np.float64), np.asarray(whole_E, dtype=np.float64)
    if not (part.size and whole.size):
        return no_events(level)
    columns = np.zeros((part.size + whole.size, 1, 4))
    columns[: part.size, 0, :2] = np.stack([part, np.ones(part.size)], axis=1)
    columns[part.size :, 0, 2:] = np.stack([whole, np.ones(whole.size)], axis=1)
    prompts = np.concatenate([np.asarray(part_prompts_E), np.asarray(whole_prompts_E)])
    columns_Q1C = sums_by_prompt(prompts, columns)

    def mean_of_whole(sums: Any) -> Any:
        return sums[..., 2] / sums[..., 3]

    def quotient(sums: Any) -> Any:
        return sums[..., 0] / sums[..., 1] / mean_of_whole(sums)

    (denominator,) = bootstrap_many(columns_Q1C, mean_of_whole, rng=rng, level=level, unit=PROMPT)
    (share,) = bootstrap_many(columns_Q1C, quotient, rng=rng, level=level, unit=PROMPT)
    return share if denominator.excludes(0.0) else _unknown_share(share.n, level)


def positive_share(margins_E: FloatArray, *, level: float = 0.95) -> Interval:
    """Share of events with a margin above 0, with Wilson's interval."""
    return wilson(int((margins_E > 0).sum()), margins_E.size, level=level, unit="event")


def states_agree(cells: Cells, tolerance: float = 0.0) -> bool:
    """Whether the earlier state makes no difference in any event, so that the design is degenerate.

    Both columns of the 2 x 2 are then equal, the interaction is 0 and the share 1, whatever was trained.
    """
    first = np.abs(cells.base_base_E - cells.descendant_base_E)
    second = np.abs(cells.base_descendant_E - cells.descendant_descendant_E)
    return bool(first.size) and bool((first <= tolerance).all() and (second <= tolerance).all())

"""The order of recipes: which are not beaten by the best, and how often two of them change order.

Axes: I items, R recipes, N settings (checkpoints, or seeds of a checkpoint).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from stemmatics.math.equivalence import ALPHA, holm, mcnemar
from stemmatics.math.paired import is_binary
from stemmatics.math.seeds import sign_flip_monte_carlo

FloatArray = npt.NDArray[np.float64]
ROUNDING = 1e-12


@dataclass(frozen=True)
class RecipePair:
    """Two recipes at a checkpoint; ``difference`` is second less first."""

    first: int
    second: int
    difference: float
    p_value: float
    p_holm: float
    test: str


@dataclass(frozen=True)
class RecipeOrder:
    """All pairs, the recipe with the largest mean, and the recipes that it does not beat, itself included."""

    pairs: tuple[RecipePair, ...]
    best: int
    top_group: tuple[int, ...]


def order_recipes(
    scores_IR: npt.ArrayLike, *, rng: np.random.Generator, groups_I: npt.ArrayLike | None = None
) -> RecipeOrder:
    """Compare all recipes of a checkpoint on the same items.

    Right or wrong on items of their own: McNemar's mid-p at every n. Other scores, or items in groups: random
    sign flips by item or group. Holm's adjustment over all pairs, so the choice of the best is allowed for:
    of equal recipes one is left out of the top group in at most 5% of tables. In the top group are the
    recipes with an adjusted p of .05 or more against the best; this does not say that they are equal.

    Args:
        scores_IR: score of each item under each recipe.
        rng: for the sign flips.
        groups_I: labels of items that belong together.
    """
    scores = np.asarray(scores_IR, dtype=np.float64)
    counted = groups_I is None and is_binary(scores)
    means_R = scores.mean(axis=0)
    best = int(means_R.argmax())
    indices = list(combinations(range(scores.shape[1]), 2))
    p_values, test = [], "McNemar mid-p" if counted else "sign flip"
    for first, second in indices:
        change_I = scores[:, second] - scores[:, first]
        if counted:
            p_values.append(mcnemar(int((change_I > 0).sum()), int((change_I < 0).sum())).mid_p)
        else:
            p_values.append(sign_flip_monte_carlo(change_I, rng=rng, groups=groups_I).p_value)
    pairs = tuple(
        RecipePair(first, second, float(means_R[second] - means_R[first]), p, float(adjusted), test)
        for (first, second), p, adjusted in zip(indices, p_values, holm(p_values), strict=True)
    )
    beaten = {
        pair.first if pair.second == best else pair.second
        for pair in pairs
        if best in (pair.first, pair.second) and pair.p_holm < ALPHA
    }
    return RecipeOrder(pairs, best, tuple(r for r in range(scores.shape[1]) if r not in beaten))


@dataclass(frozen=True)
class Flips:
    """Pairs of recipes x pairs of settings whose order is opposite; ties of a pair are not counted.

    ``share`` is ``num_flipped / num_compared``, NaN if nothing was compared.
    """

    num_flipped: int
    num_compared: int
    num_tied: int

    @property
    def share(self) -> float:
        """Flipped of compared."""
        return self.num_flipped / self.num_compared if self.num_compared else math.nan

    def __add__(self, other: Flips) -> Flips:
        return Flips(
            self.num_flipped + other.num_flipped,
            self.num_compared + other.num_compared,
            self.num_tied + other.num_tied,
        )


def count_flips(means_RN: npt.ArrayLike) -> Flips:
    """Opposite orders of two recipes in two settings. Of recipes that are all equal, half are flipped."""
    means = np.asarray(means_RN, dtype=np.float64)
    first, second = np.triu_indices(means.shape[0], k=1)
    difference_PN = means[first] - means[second]
    sign_PN = np.where(np.abs(difference_PN) <= ROUNDING, 0.0, np.sign(difference_PN))
    before, after = np.triu_indices(means.shape[1], k=1)
    product = sign_PN[:, before] * sign_PN[:, after]
    flipped, tied = int((product < 0).sum()), int((product == 0).sum())
    return Flips(flipped, product.size - tied, tied)


def clear_flips(orders: list[RecipeOrder]) -> Flips:
    """The same among pairs that differ at both settings (Holm, within each): noise seldom makes these."""
    flipped = compared = tied = 0
    for before, after in combinations(orders, 2):
        for pair, again in zip(before.pairs, after.pairs, strict=True):
            if pair.p_holm < ALPHA and again.p_holm < ALPHA:
                compared += 1
                flipped += pair.difference * again.difference < 0
            else:
                tied += 1
    return Flips(flipped, compared, tied)

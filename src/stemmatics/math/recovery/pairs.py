"""Pairs of a base and a descendant, with the four arms of the recovery measure.

Axes: N pairs, F families, G bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError

FloatArray = npt.NDArray[np.float64]
Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Losses in nats/byte on one corpus, one row a pair of a base and one of its descendants.

    native_base_N: the base as released. matched_base_N: the base after the recovery fine-tune. native_N:
    the descendant as released. recovered_N: the descendant after the identical fine-tune. A base's two
    losses are the same in all of its rows. ``family_N`` is what is resampled and left out whole.
    """

    family_N: Labels
    base_N: Labels
    descendant_N: Labels
    native_base_N: FloatArray
    matched_base_N: FloatArray
    native_N: FloatArray
    recovered_N: FloatArray

    @property
    def residuals(self) -> FloatArray:
        """Recovered less matched base [N]: an upper bound on damage."""
        return self.recovered_N - self.matched_base_N

    @property
    def drops(self) -> FloatArray:
        """Native less recovered [N]: how much the fine-tune lowered the descendant's loss."""
        return self.native_N - self.recovered_N

    @property
    def rebase_shifts(self) -> FloatArray:
        """Native base less matched base [N]: how much the fine-tune lowered the base's loss."""
        return self.native_base_N - self.matched_base_N

    @property
    def num_families(self) -> int:
        """Distinct families."""
        return int(np.unique(self.family_N).size)

    def first_of_base(self) -> npt.NDArray[np.int64]:
        """The first row of each base, bases in sorted order, [G]."""
        _, first_G = np.unique(self.base_N, return_index=True)
        return np.asarray(first_G, dtype=np.int64)


def pairs_of(
    *,
    family: Sequence[str],
    base: Sequence[str],
    descendant: Sequence[str],
    native_base: npt.ArrayLike,
    matched_base: npt.ArrayLike,
    native: npt.ArrayLike,
    recovered: npt.ArrayLike,
) -> Pairs:
    """Columns as ``Pairs``.

    Raises UserError where columns differ in length, where a loss is not finite, where one base has two
    losses or two families, or where a pair is listed twice.
    """
    labels = [np.asarray(column, dtype=np.str_) for column in (family, base, descendant)]
    losses = [
        np.asarray(column, dtype=np.float64) for column in (native_base, matched_base, native, recovered)
    ]
    sizes = {column.shape for column in [*labels, *losses]}
    if len(sizes) > 1 or any(len(size) != 1 for size in sizes):
        raise UserError(
            f"columns of shapes {sorted(sizes)}", "a pair has one value in each", "give columns of one length"
        )
    if not all(np.isfinite(column).all() for column in losses):
        raise UserError(
            "a loss is not a finite number",
            "all four arms are needed",
            "leave the pair out, or score it again",
        )
    pairs = Pairs(labels[0], labels[1], labels[2], losses[0], losses[1], losses[2], losses[3])
    _check_pairs_differ(pairs)
    _check_bases_agree(pairs)
    return pairs


def _check_pairs_differ(pairs: Pairs) -> None:
    names = list(zip(pairs.base_N.tolist(), pairs.descendant_N.tolist(), strict=True))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(
            f"the pair of {twice[0]} and {twice[1]} is listed twice",
            "each pair counts once",
            "remove one of the rows",
        )


def _check_bases_agree(pairs: Pairs) -> None:
    """All rows of a base must agree on it."""
    for column, what in (
        (pairs.native_base_N, "native_base"),
        (pairs.matched_base_N, "matched_base"),
        (pairs.family_N, "family"),
    ):
        for row in pairs.first_of_base():
            values = {str(value) for value in column[pairs.base_N == pairs.base_N[row]]}
            if len(values) > 1:
                raise UserError(
                    f"{pairs.base_N[row]} has more than one {what}: {', '.join(sorted(values))}",
                    "a base is one model with one loss under each treatment",
                    "give the same value in each of its rows",
                )

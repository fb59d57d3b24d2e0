"""The ladder: models ordered by re-based loss, with groups of indistinguishable ones.

Axes: D documents, M models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval
from stemmatics.math.ranks import (
    Reversal,
    indistinguishable_groups,
    kendall_tau_b,
    rank_reversals,
    spearman,
)
from stemmatics.math.rates import NUM_RESAMPLES, Settings, loss_rates, paired_differences


@dataclass(frozen=True)
class Ladder:
    """Models from the lowest re-based loss up; every field that names models holds positions in ``names``.

    rebased: loss of each model, nats/byte, in the order of ``names``. order: positions, best first.
    differences: for i < j, loss of j less loss of i on the same documents. groups: maximal sets of
    pairwise indistinguishable models (they may overlap). reversals: pairs that native and re-based loss order
    oppositely; ``kendall`` and ``spearman`` are the agreement of the two orders. The last three are empty
    or NaN without native losses.
    """

    names: tuple[str, ...]
    rebased: tuple[Interval, ...]
    order: tuple[int, ...]
    differences: dict[tuple[int, int], Interval]
    groups: tuple[tuple[int, ...], ...]
    reversals: tuple[Reversal, ...]
    kendall: float
    spearman: float


def ladder(
    names: Sequence[str],
    nll_sum_DM: npt.ArrayLike,
    num_bytes_D: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    native_loss_M: npt.ArrayLike | None = None,
    document_groups: npt.ArrayLike | None = None,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Ladder:
    """Order models by loss on the same documents after the recovery fine-tune.

    Args:
        names: one a model.
        nll_sum_DM: nats summed by document, after the fine-tune.
        num_bytes_D: UTF-8 bytes of each document.
        rng: the only source of randomness; all pairs share one set of resamples.
        native_loss_M: nats/byte before the fine-tune, for the reversals.
        document_groups: near-duplicates share a label and are resampled together.
        level: of the intervals; the intervals of differences are 95% each, not jointly.
        num_resamples: 10,000 unless there is a reason.
    """
    nll_DM, bytes_D = np.asarray(nll_sum_DM, dtype=np.float64), np.asarray(num_bytes_D, dtype=np.float64)
    if nll_DM.ndim != 2 or nll_DM.shape != (bytes_D.size, len(names)):
        raise UserError(
            f"losses of shape {nll_DM.shape} for {bytes_D.size} documents and {len(names)} models",
            "a ladder is made from every model's loss on every document",
            "score all models on the same documents",
        )
    settings: Settings = {
        "rng": rng, "groups": document_groups, "level": level, "num_resamples": num_resamples
    }  # fmt: skip
    rebased = loss_rates(nll_DM, bytes_D, **settings)
    first, second = np.triu_indices(len(names), k=1)
    intervals = (
        paired_differences(nll_DM[:, first], nll_DM[:, second], bytes_D, **settings) if first.size else []
    )
    differences = dict(zip(zip(first.tolist(), second.tolist(), strict=True), intervals, strict=True))
    rebased_M = np.array([interval.value for interval in rebased])
    order = tuple(int(m) for m in np.argsort(rebased_M, kind="stable"))
    groups = tuple(indistinguishable_groups(rebased_M, differences))
    native_M = np.full(len(names), np.nan) if native_loss_M is None else np.asarray(native_loss_M)
    return Ladder(
        tuple(names),
        tuple(rebased),
        order,
        differences,
        groups,
        tuple(rank_reversals(native_M, rebased_M)),
        kendall_tau_b(native_M, rebased_M),
        spearman(native_M, rebased_M),
    )

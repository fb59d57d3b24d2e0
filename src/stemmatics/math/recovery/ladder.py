"""The ladder: models ordered by re-based loss, with groups of indistinguishable ones.

Axes: D documents, M models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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

    rebased: loss of each model, nats/byte, in the order of ``names``. ranked: the value by which each is
    ranked: its re-based loss, less the offset where it stands for an unknown base. order: positions, lowest
    ranked value first. differences: for i < j, re-based loss of j less that of i on the same documents.
    gaps: the same of ranked values, with run noise and the bars of the offsets in them; groups: maximal sets
    of models whose gaps all hold 0 (they may overlap). reversals: pairs that native and re-based loss order
    oppositely; ``kendall`` and ``spearman`` are the agreement of the two orders. The last three are empty or
    NaN without native losses, and are about the models themselves, not about unknown bases.
    """

    names: tuple[str, ...]
    rebased: tuple[Interval, ...]
    ranked: tuple[float, ...]
    order: tuple[int, ...]
    differences: dict[tuple[int, int], Interval]
    gaps: dict[tuple[int, int], Interval]
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
    offset_M: npt.ArrayLike = 0.0,
    bar_M: npt.ArrayLike = 0.0,
    run_half_widths: Mapping[tuple[int, int], float] | None = None,
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
        offset_M: what is subtracted from a model's loss because its base is ranked; 0 for the model itself.
        bar_M: half width of that offset at ``level``; 0 for the model itself. Bars of two offsets count as
            independent, which errs on the wide side where both come from the same pairs.
        run_half_widths: for i < j, the half width that run noise gives their difference at ``level``; without
            it the gaps are of documents alone.
        document_groups: near-duplicates share a label and are resampled together.
        level: of the intervals; each difference has this level, not all jointly.
        num_resamples: 10,000 unless there is a reason.
    """
    nll_DM, bytes_D = _losses_of(names, nll_sum_DM, num_bytes_D)
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
    offsets_M, bars_M = (np.broadcast_to(each, rebased_M.shape) for each in (offset_M, bar_M))
    ranked_M = rebased_M - offsets_M
    gaps = _gaps(differences, offsets_M, bars_M, run_half_widths or {})
    order = tuple(int(m) for m in np.argsort(ranked_M, kind="stable"))
    groups = tuple(indistinguishable_groups(ranked_M, gaps))
    native_M = np.full(len(names), np.nan) if native_loss_M is None else np.asarray(native_loss_M)
    return Ladder(
        tuple(names),
        tuple(rebased),
        tuple(ranked_M.tolist()),
        order,
        differences,
        gaps,
        groups,
        tuple(rank_reversals(native_M, rebased_M)),
        kendall_tau_b(native_M, rebased_M),
        spearman(native_M, rebased_M),
    )


def _losses_of(
    names: Sequence[str], nll_sum_DM: npt.ArrayLike, num_bytes_D: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    nll_DM, bytes_D = np.asarray(nll_sum_DM, dtype=np.float64), np.asarray(num_bytes_D, dtype=np.float64)
    if nll_DM.ndim != 2 or nll_DM.shape != (bytes_D.size, len(names)):
        raise UserError(
            f"losses of shape {nll_DM.shape} for {bytes_D.size} documents and {len(names)} models",
            "a ladder is made from every model's loss on every document",
            "score all models on the same documents",
        )
    return nll_DM, bytes_D


def _gaps(
    differences: Mapping[tuple[int, int], Interval],
    offset_M: npt.NDArray[np.generic],
    bar_M: npt.NDArray[np.generic],
    runs: Mapping[tuple[int, int], float],
) -> dict[tuple[int, int], Interval]:
    """The differences of ranked values, with bars and run noise in them."""
    return {
        (i, j): _with_offsets(
            difference, float(offset_M[j] - offset_M[i]), (bar_M[i], bar_M[j], runs.get((i, j), 0.0))
        )
        for (i, j), difference in differences.items()
    }


def _with_offsets(difference: Interval, shift: float, bars: tuple[float, ...]) -> Interval:
    """A difference less ``shift``, its limits widened by bars and run noise in quadrature."""
    if not any(bars) and not shift:
        return difference
    value = difference.value - shift
    return replace(
        difference,
        value=value,
        lo=value - math.hypot(difference.value - difference.lo, *bars),
        hi=value + math.hypot(difference.hi - difference.value, *bars),
        method=f"{difference.method}, with run noise and bars of offsets in quadrature",
        smallest_effect=math.nan,
        standard_error=math.nan,
    )

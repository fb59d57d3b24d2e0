"""Agreement of benchmarks on the order of models, before and after all models had the same training.

Axes: M models, T tasks, Q = T (T - 1) / 2 pairs of tasks, P = M (M - 1) / 2 pairs of models, B resamples.

The quantity is the mean over pairs of tasks of Kendall's tau-b over models (Zhang and Hardt, arXiv
2507.05195). A resample of models is a vector of counts: a pair of models then counts as the product of
theirs, and a model is never paired with its own copy, which is tied on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, check_level, percentile_interval, unknown
from stemmatics.math.rates import NUM_RESAMPLES
from stemmatics.math.sums import ratio

FloatArray = npt.NDArray[np.float64]
FEWEST_MEASURED = 40
"""From this many independent models on, coverage was between 93 and 97% in the simulations of the docs."""
CHUNK_RESAMPLES = 1000


@dataclass(frozen=True)
class Agreement:
    """Mean tau-b over pairs of tasks in two settings, and after less before, on the same models and tasks."""

    before: Interval
    after: Interval
    difference: Interval
    num_task_pairs: int


@dataclass(frozen=True, eq=False)
class _Signs:
    """Numerators [P, Q] and untied pairs [P, T] of one setting, by pair of models."""

    agree_PQ: FloatArray
    untied_PT: FloatArray


def _signs(scores_MT: FloatArray) -> _Signs:
    first, second = np.triu_indices(len(scores_MT), k=1)
    sign_PT = np.sign(scores_MT[first] - scores_MT[second])
    first_task, second_task = np.triu_indices(scores_MT.shape[1], k=1)
    return _Signs(sign_PT[:, first_task] * sign_PT[:, second_task], np.abs(sign_PT))


def _mean_tau(agree_BQ: FloatArray, untied_BT: FloatArray) -> FloatArray:
    """Mean over pairs of tasks [B]; NaN where any task has no order."""
    first, second = np.triu_indices(untied_BT.shape[1], k=1)
    tau_BQ = ratio(agree_BQ, np.sqrt(untied_BT[:, first] * untied_BT[:, second]))
    return np.asarray(tau_BQ.mean(axis=1))


def mean_kendall(scores_MT: npt.ArrayLike) -> float:
    """Mean over pairs of tasks of tau-b over models; NaN for fewer than two tasks or a task without order."""
    scores = np.asarray(scores_MT, dtype=np.float64)
    if scores.shape[1] < 2 or len(scores) < 2:
        return math.nan
    signs = _signs(scores)
    return float(_mean_tau(signs.agree_PQ.sum(0)[None], signs.untied_PT.sum(0)[None])[0])


def agreement(
    before_MT: npt.ArrayLike,
    after_MT: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    families_M: npt.ArrayLike | None = None,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Agreement:
    """Mean tau-b in both settings and the paired difference, from one set of resamples of models.

    Args:
        before_MT: score of each model on each task; larger is better on every task, or smaller on every one.
        after_MT: the same models and tasks in the other setting.
        rng: the only source of randomness.
        families_M: labels; models of one family are drawn together (default: each model by itself).
        level: of the percentile intervals.
        num_resamples: 10,000 unless there is a reason.

    Resamples in which a task has no order are dropped and counted.
    """
    check_level(level)
    scores = [np.asarray(setting, dtype=np.float64) for setting in (before_MT, after_MT)]
    if scores[0].shape != scores[1].shape or scores[0].ndim != 2:
        raise UserError(
            f"scores of shapes {scores[0].shape} and {scores[1].shape}",
            "both settings need the same models and tasks",
            "match them by model and task",
        )
    num_models, num_tasks = scores[0].shape
    names = np.arange(num_models) if families_M is None else np.asarray(families_M)
    values = [mean_kendall(setting) for setting in scores]
    replicates_2B = _replicates(scores, names, num_resamples, rng)
    units = int(np.unique(names).size)
    unit = "model" if families_M is None else "family"
    sides = [
        (values[0], replicates_2B[0]),
        (values[1], replicates_2B[1]),
        (values[1] - values[0], replicates_2B[1] - replicates_2B[0]),
    ]
    intervals = [_percentile(value, replicates_B, units, unit, level) for value, replicates_B in sides]
    return Agreement(intervals[0], intervals[1], intervals[2], num_tasks * (num_tasks - 1) // 2)


def _replicates(
    scores: list[FloatArray], names_M: npt.NDArray[np.generic], num_resamples: int, rng: np.random.Generator
) -> FloatArray:
    """The statistic of both settings in the same resamples, [2, B]."""
    num_models, num_tasks = scores[0].shape
    names, where_M = np.unique(names_M, return_inverse=True)
    if names.size < 2 or num_tasks < 2:
        return np.full((2, num_resamples), np.nan)
    signs = [_signs(setting) for setting in scores]
    first, second = np.triu_indices(num_models, k=1)
    blocks = []
    for start in range(0, num_resamples, CHUNK_RESAMPLES):
        size = min(CHUNK_RESAMPLES, num_resamples - start)
        drawn_BF = rng.multinomial(names.size, np.full(names.size, 1 / names.size), size=size)
        counts_BM = drawn_BF[:, where_M].astype(np.float64)
        counts_BP = counts_BM[:, first] * counts_BM[:, second]
        blocks.append([_mean_tau(counts_BP @ each.agree_PQ, counts_BP @ each.untied_PT) for each in signs])
    return np.concatenate(blocks, axis=1)


def _percentile(value: float, replicates_B: FloatArray, units: int, unit: str, level: float) -> Interval:
    finite_B = replicates_B[np.isfinite(replicates_B)]
    if math.isnan(value) or finite_B.size < 2:
        note = "fewer than two tasks with an order" if math.isnan(value) else f"too few {unit} labels"
        return unknown(value, level=level, n=units, unit=unit, note=note)
    notes = [f"under {FEWEST_MEASURED} units: coverage may be under 93%"] if units < FEWEST_MEASURED else []
    if finite_B.size < replicates_B.size:
        notes.append(f"{replicates_B.size - finite_B.size} of {replicates_B.size} resamples dropped")
    return percentile_interval(
        value, finite_B, level=level, method="percentile bootstrap", n=units, unit=unit, notes=notes
    )

"""Verdicts of contrasts: each needs its whole interval on one side, and enough runs and cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.equivalence import holm
from stemmatics.math.imprint import Noise, units_needed
from stemmatics.math.intervals import Interval
from stemmatics.math.sums import FloatArray
from stemmatics.measure.present import known

EQUIVALENT, DIFFERENT, UNDETERMINED = "equivalent", "different", "undetermined"
HIGHER, LOWER = "higher", "lower"
VISIBLE, INVISIBLE, UNKNOWN = "within the range", "cannot be seen with this design", "unknown"
ALPHA = 0.05
# the largest difference of two shares
WHOLE_RANGE = 1.0


@dataclass(frozen=True)
class Evidence:
    """What there is, and the declared minimum under which no verdict is given."""

    num_runs: int
    min_runs: int
    num_cells: int
    min_cells: int

    @property
    def missing(self) -> str:
        """What is below its minimum; empty if nothing is."""
        counts = (
            (self.num_runs, self.min_runs, "complete runs"),
            (self.num_cells, self.min_cells, "cells of requests"),
        )
        return " and ".join(
            f"{num} {unit} where {least} are the least" for num, least, unit in counts if num < least
        )


def holm_of(p_values_K: Sequence[float], num_declared: int) -> FloatArray:
    """Holm's p of ``num_declared`` contrasts, of which K could be made; NaN stays NaN.

    One that is missing or has no p counts as a test with p = 1: if it did not count, less evidence on it
    would make a verdict on another one easier.
    """
    p_K = np.asarray(p_values_K, dtype=np.float64)
    padded = np.concatenate([np.nan_to_num(p_K, nan=1.0), np.ones(num_declared - p_K.size)])
    return np.where(np.isnan(p_K), np.nan, holm(padded)[: p_K.size])


def direction(
    interval: Estimate,
    adjusted_p: float,
    num_tests: int,
    evidence: Evidence,
    noises: Sequence[Noise] = (),
) -> tuple[str, str]:
    """Whether a contrast is shown to be *higher* or *lower* than 0, and why; else *undetermined*.

    Its 95% interval must lie on one side of 0, and its p, corrected by Holm for the number of contrasts that
    are tested together, under 5%. ``noises`` say what would settle an interval that includes 0.
    """
    if evidence.missing:
        return UNDETERMINED, evidence.missing
    if not known(interval.lo) or not known(interval.hi):
        return UNDETERMINED, f"the interval is unknown ({interval.note})"
    if not (interval.lo > 0 or interval.hi < 0):
        needed = units_needed(interval.value, noises, 0.0) if noises else None
        return UNDETERMINED, f"the 95% interval includes 0{_settling(needed)}"
    if not adjusted_p < ALPHA:
        return UNDETERMINED, f"Holm's p of {num_tests} contrasts is not under 5%"
    reason = "the 95% interval excludes 0"
    if num_tests > 1:
        reason += f", and Holm's p of {num_tests} contrasts is under 5%"
    return (HIGHER if interval.value > 0 else LOWER), reason


def equivalence_verdict(
    at_90: Interval, at_95: Interval, margin: float, evidence: Evidence, noises: Sequence[Noise] = ()
) -> tuple[str, str]:
    """Verdict and reason of a difference, from its intervals at 90% and at 95%.

    *equivalent*: the 90% interval lies inside the margin (two one-sided tests at 5%), even where a smaller
    difference is shown. *different*: the 95% interval excludes 0, and the value is no smaller than the
    margin; without the latter a wider interval around the same value could turn *equivalent* into
    *different*. Else *undetermined*, with what is missing.
    """
    if evidence.missing:
        return UNDETERMINED, evidence.missing
    if not known(at_90.lo) or not known(at_90.hi):
        return UNDETERMINED, f"the interval is unknown ({at_90.note})"
    if max(-at_90.lo, at_90.hi) < margin:
        return EQUIVALENT, "the 90% interval lies inside the margin"
    outside = "the 90% interval reaches outside the margin"
    if abs(at_95.value) >= margin and at_95.excludes(0):
        return DIFFERENT, f"{outside}, the difference does too, and the 95% interval excludes 0"
    missing = _settling(units_needed(at_95.value, noises, margin) if noises else None)
    if abs(at_95.value) < margin:
        return UNDETERMINED, f"{outside}, the difference does not{missing}"
    return UNDETERMINED, f"{outside} and the 95% interval includes 0{missing}"


def _settling(needed: tuple[int, float] | None) -> str:
    """About how much evidence would settle it, if value and scatter stayed as they are."""
    if needed is None:
        return ""
    runs, factor = needed
    requests = (
        "" if factor <= 1 else f" on {math.ceil(10 * factor) / 10:.1f} times as many wordings and things"
    )
    return f"; if value and scatter stayed as they are, about {runs} runs{requests} would settle it"


def visibility(interval: Estimate) -> tuple[str, str]:
    """Whether the smallest effect that the design could have seen lies within the whole range of a share."""
    if not known(interval.smallest_effect):
        return UNKNOWN, interval.note or "no interval"
    if interval.smallest_effect > WHOLE_RANGE:
        return INVISIBLE, "the minimum detectable effect is above the whole range of a share"
    return VISIBLE, "the minimum detectable effect is within the range of a share"

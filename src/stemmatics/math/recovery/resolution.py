"""How finely recovered losses resolve bases, from pairs whose base is available.

Axes: B resamples, N pairs of base and descendant, P pairs of descendants, F families, G bases.

Every statistic reads counts [B, N] (how often each row is in a resample); counts of 1 give its value. The
definitions are those of docs/analyse.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stemmatics.math.intervals import Interval, percentile_interval, unknown
from stemmatics.math.ranks import Reversal, rank_reversals
from stemmatics.math.rates import FEWEST_MEASURED, NUM_RESAMPLES, mean_interval
from stemmatics.math.recovery import weighted
from stemmatics.math.recovery.pairs import FloatArray, Labels, Pairs
from stemmatics.math.seeds import FAMILY_BOOTSTRAP, FEW_FAMILIES, family_means
from stemmatics.math.sums import ratio

BAND_EDGES = (0.0, 0.02, 0.04, 0.08, math.inf)
"""Bands of the true gap, nats/byte: [0, .02), [.02, .04), [.04, .08), [.08, inf)."""

DELTA95_COVERAGE = "limits err low: simulated coverage of 95% is 56% at 5 families, 79% at 8, 83% at 16"
"""An upper percentile of few families is rarely as large in a resample as in a new sample."""

CountStatistic = Callable[[FloatArray], FloatArray]


def different_base_pairs(base_N: Labels) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Unordered pairs (i, j), i < j, of descendants of different bases, [P] each.

    Copies of one model have one base, so a resample never pairs a model with its own copy.
    """
    first, second = np.triu_indices(base_N.size, k=1)
    apart = base_N[first] != base_N[second]
    return first[apart], second[apart]


def delta95(pairs: Pairs) -> CountStatistic:
    """95th percentile of |residual_i - residual_j| over descendants of different bases."""
    first, second = different_base_pairs(pairs.base_N)
    errors_P = np.abs(pairs.residuals[first] - pairs.residuals[second])

    def statistic(counts_BN: FloatArray) -> FloatArray:
        return weighted.in_chunks(
            counts_BN,
            first.size,
            lambda counts: weighted.quantile(errors_P, weighted.pair_counts(counts, first, second), 0.95),
        )

    return statistic


def misorder(pairs: Pairs, lo: float, hi: float) -> CountStatistic:
    """Share of pairs of descendants that recovered losses order against their bases.

    Over descendants of different bases whose true gap, the difference of matched base losses, lies in
    [lo, hi) in size. A tie of recovered losses is not counted as misordered.
    """
    first, second = _in_band(pairs, lo, hi)
    wrong_P = _misordered(pairs, first, second).astype(np.float64)

    def block(counts: FloatArray) -> FloatArray:
        counts_BP = weighted.pair_counts(counts, first, second)
        return ratio(counts_BP @ wrong_P, counts_BP.sum(1))

    return lambda counts_BN: weighted.in_chunks(counts_BN, first.size, block)


def _in_band(pairs: Pairs, lo: float, hi: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    first, second = different_base_pairs(pairs.base_N)
    gap_P = np.abs(pairs.matched_base_N[first] - pairs.matched_base_N[second])
    inside = (gap_P >= lo) & (gap_P < hi)
    return first[inside], second[inside]


def _misordered(
    pairs: Pairs, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    true_P = pairs.matched_base_N[first] - pairs.matched_base_N[second]
    recovered_P = pairs.recovered_N[first] - pairs.recovered_N[second]
    return np.asarray(np.sign(true_P) * np.sign(recovered_P) < 0)


def left_out_errors(residual_N: FloatArray, family_N: Labels, counts_BN: FloatArray) -> FloatArray:
    """Residual less the offset that the other families give, [B, N].

    The offset of a family is the mean over the *other* families of their mean residual; a family drawn
    twice counts twice, and all its copies are left out together. NaN where there is no other family.
    """
    _, first_F, where_N = np.unique(family_N, return_index=True, return_inverse=True)
    member_FN = (where_N[None, :] == np.arange(first_F.size)[:, None]).astype(np.float64)
    mean_F = (member_FN @ residual_N) / member_FN.sum(1)
    counts_BF = counts_BN[:, first_F]
    others_BF = counts_BF.sum(1, keepdims=True) - counts_BF
    total_BF = (counts_BF @ mean_F)[:, None] - counts_BF * mean_F
    offset_BF = ratio(total_BF, others_BF)
    return residual_N - offset_BF[:, where_N]


def lofo(pairs: Pairs, level: float) -> CountStatistic:
    """Percentile of the absolute leave-one-family-out error of a descendant's residual: lofo90 at .90."""

    def block(counts_BN: FloatArray) -> FloatArray:
        errors_BN = np.abs(left_out_errors(pairs.residuals, pairs.family_N, counts_BN))
        return weighted.quantile(errors_BN, counts_BN, level)

    return lambda counts_BN: weighted.in_chunks(counts_BN, pairs.family_N.size, block)


def sibling_ranges(residual_N: FloatArray, base_N: Labels) -> dict[str, tuple[float, int]]:
    """Range of residuals and number of descendants, for each base that has two or more."""
    ranges = {}
    for base in np.unique(base_N):
        siblings_N = residual_N[base_N == base]
        if siblings_N.size >= 2:
            ranges[str(base)] = (float(np.ptp(siblings_N)), int(siblings_N.size))
    return ranges


def sibling_spread(pairs: Pairs) -> CountStatistic:
    """Mean over bases with two or more descendants of the range of their residuals."""
    rows, ranges = [], []
    range_of = sibling_ranges(pairs.residuals, pairs.base_N)
    for row in pairs.first_of_base():
        base = str(pairs.base_N[row])
        if base in range_of:
            rows.append(int(row))
            ranges.append(range_of[base][0])
    return lambda counts_BN: ratio(counts_BN[:, rows] @ np.asarray(ranges), counts_BN[:, rows].sum(1))


def family_percentile(
    statistic: CountStatistic,
    families_N: Labels,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """A statistic with its percentile interval; families are drawn whole.

    The same interval as ``seeds.family_bootstrap``, for statistics that read counts. Resamples with fewer
    than two families, or where the statistic does not exist, are dropped and counted in the note.
    """
    value = float(statistic(np.ones((1, families_N.size)))[0]) if families_N.size else math.nan
    num_families = int(np.unique(families_N).size)
    if math.isnan(value):
        return unknown(value, level=level, n=num_families, unit="family", note="no data")
    if num_families < 2:
        return unknown(value, level=level, n=num_families, unit="family", note="fewer than two families")
    counts_BN, _ = weighted.family_counts(families_N, num_resamples, rng)
    replicates = statistic(counts_BN)
    finite_B = replicates[np.isfinite(replicates)]
    notes = ["few families"] if num_families < FEW_FAMILIES else []
    if finite_B.size < num_resamples:
        notes.append(f"{num_resamples - finite_B.size} of {num_resamples} resamples dropped")
    if finite_B.size < 2:
        return unknown(value, level=level, n=num_families, unit="family", note="; ".join(notes))
    if np.ptp(finite_B) == 0:
        notes.append("the same in every resample: no limits")
        return unknown(value, level=level, n=num_families, unit="family", note="; ".join(notes))
    return percentile_interval(
        value, finite_B, level=level, method=FAMILY_BOOTSTRAP, n=num_families, unit="family", notes=notes
    )


def mean_by_family(
    values_N: FloatArray, families_N: Labels, *, rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """Plain mean over rows, families being the units.

    From 8 families on, families are resampled (guarded bootstrap-t); under 8 it is the jackknife-t over
    families, noted "few families". With families of one size that is the t interval over family means.
    """
    num_families = int(np.unique(families_N).size)
    few = num_families < FEW_FAMILIES
    interval = mean_interval(
        values_N,
        rng=rng,
        groups=families_N,
        level=level,
        method="jackknife-t" if few else "guarded bootstrap-t",
        unit="family",
    )
    notes = ["few families"] if few else [f"under {FEWEST_MEASURED} families: coverage may be under 93%"]
    if num_families < 2:
        notes = ["fewer than two families"]
    elif interval.standard_error == 0:
        notes.append("no variation between families")
    elif num_families >= FEWEST_MEASURED:
        notes = []
    return replace(interval, unit="family", note="; ".join(notes))


def _with_note(interval: Interval, note: str) -> Interval:
    """The interval with another note, if it has limits."""
    if math.isnan(interval.lo):
        return interval
    return replace(interval, note="; ".join(filter(None, [interval.note, note])))


@dataclass(frozen=True)
class Band:
    """Misordered pairs of descendants within one band of the true gap, nats/byte."""

    lo: float
    hi: float
    num_misordered: int
    num_pairs: int
    share: Interval


@dataclass(frozen=True)
class Resolution:
    """Resolution of the recovered loss on one corpus, from pairs with known bases; losses in nats/byte.

    ``mean_residual`` is over pairs, ``offset`` over families (each counts the same). ``siblings`` maps a
    base to the range of its descendants' residuals and their number; ``sibling_spread`` is the mean range.
    ``reversals`` are positions in ``bases``, ordered by native loss against re-based loss.
    """

    num_pairs: int
    num_families: int
    mean_residual: Interval
    offset: Interval
    delta95: Interval
    lofo90: Interval
    lofo95: Interval
    misorder: tuple[Band, ...]
    spearman_recovered_matched: Interval
    spearman_native_matched: Interval
    sibling_spread: Interval
    siblings: dict[str, tuple[float, int]]
    bases: tuple[str, ...]
    reversals: tuple[Reversal, ...]
    kendall_native_rebased: Interval
    spearman_native_rebased: Interval


def resolution(
    pairs: Pairs,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    edges: Sequence[float] = BAND_EDGES,
) -> Resolution:
    """The resolution on one corpus. ``rng`` is the only source of randomness."""
    bases_G = pairs.first_of_base()
    native_G, rebased_G = pairs.native_base_N[bases_G], pairs.matched_base_N[bases_G]

    def over_families(statistic: CountStatistic) -> Interval:
        return family_percentile(statistic, pairs.family_N, rng=rng, level=level, num_resamples=num_resamples)

    families_F, means_F = np.unique(pairs.family_N), family_means(pairs.residuals, pairs.family_N)
    bands = []
    for lo, hi in itertools.pairwise(edges):
        first, second = _in_band(pairs, lo, hi)
        wrong = int(_misordered(pairs, first, second).sum())
        bands.append(Band(lo, hi, wrong, first.size, over_families(misorder(pairs, lo, hi))))
    return Resolution(
        num_pairs=pairs.base_N.size,
        num_families=pairs.num_families,
        mean_residual=mean_by_family(pairs.residuals, pairs.family_N, rng=rng, level=level),
        offset=mean_by_family(means_F, families_F, rng=rng, level=level),
        delta95=_with_note(over_families(delta95(pairs)), DELTA95_COVERAGE),
        lofo90=over_families(lofo(pairs, 0.90)),
        lofo95=over_families(lofo(pairs, 0.95)),
        misorder=tuple(bands),
        spearman_recovered_matched=over_families(
            lambda counts_BN: weighted.spearman(pairs.recovered_N, pairs.matched_base_N, counts_BN)
        ),
        spearman_native_matched=over_families(
            lambda counts_BN: weighted.spearman(pairs.native_N, pairs.matched_base_N, counts_BN)
        ),
        sibling_spread=over_families(sibling_spread(pairs)),
        siblings=sibling_ranges(pairs.residuals, pairs.base_N),
        bases=tuple(str(base) for base in pairs.base_N[bases_G]),
        reversals=tuple(rank_reversals(native_G, rebased_G)),
        kendall_native_rebased=over_families(
            lambda counts_BN: weighted.kendall_tau_b(native_G, rebased_G, counts_BN[:, bases_G])
        ),
        spearman_native_rebased=over_families(
            lambda counts_BN: weighted.spearman(native_G, rebased_G, counts_BN[:, bases_G])
        ),
    )

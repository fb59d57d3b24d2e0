"""How far a recovered share lies from what random damage of the same size gives, paired by document.

Axes: D documents, G groups of documents, Z seeds of the damage.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from stemmatics.math.intervals import Interval, smallest_effect, unknown
from stemmatics.math.prior.shares import ratio_of_sums
from stemmatics.math.prior.statistics import Floats
from stemmatics.math.scipy_modules import stats

# one damaged base tells nothing of the scatter between damaged bases
MIN_SEEDS = 2
_UNIT = "seed"


def over_damage(
    gain_D: Floats,
    increase_D: Floats,
    damaged_gain_ZD: Floats,
    damaged_increase_ZD: Floats,
    *,
    groups_D: npt.NDArray[np.str_],
    level: float = 0.95,
) -> Interval:
    """D = share - mean share of the damaged bases, shares being ratios of sums of nats over documents.

    Its half width is the quadrature of two: that of the documents (linearised, whole groups, the same
    documents for the share and for every floor, t with G - 1 degrees), and t_(Z-1) s sqrt(1 + 1/Z), since
    the descendant is compared as if it were one more seed. Unknown under two seeds or two groups, or where a
    share is not defined.
    """
    num_seeds = len(damaged_gain_ZD)
    share = ratio_of_sums(gain_D, increase_D)
    damaged_Z = np.array(
        [ratio_of_sums(*rows) for rows in zip(damaged_gain_ZD, damaged_increase_ZD, strict=True)]
    )
    group_D = np.unique(groups_D, return_inverse=True)[1]
    num_groups = int(group_D.max()) + 1
    value = share - float(damaged_Z.mean()) if num_seeds else math.nan
    reason = ""
    if num_seeds < MIN_SEEDS:
        reason = "one damaged base tells nothing of the scatter between damaged bases"
    elif num_groups < 2:
        reason = "one group of documents tells nothing of other text"
    elif not math.isfinite(value):
        reason = "a share is not defined"
    if reason:
        return unknown(value, level=level, n=num_seeds, unit=_UNIT, note=reason)
    pull_D = (gain_D - share * increase_D) / increase_D.sum()
    pulls_ZD = damaged_gain_ZD - damaged_Z[:, None] * damaged_increase_ZD
    pull_D = pull_D - (pulls_ZD / damaged_increase_ZD.sum(axis=1, keepdims=True)).mean(axis=0)
    pull_G = np.bincount(group_D, weights=pull_D)
    tail = (1 + level) / 2
    document_error = math.sqrt(num_groups / (num_groups - 1) * float(pull_G @ pull_G))
    seed_error = float(damaged_Z.std(ddof=1)) * math.sqrt(1 + 1 / num_seeds)
    reach = math.hypot(
        float(stats.t.ppf(tail, num_groups - 1)) * document_error,
        float(stats.t.ppf(tail, num_seeds - 1)) * seed_error,
    )
    error = math.hypot(document_error, seed_error)
    return Interval(
        value, value - reach, value + reach, level, "documents and seeds, in quadrature", num_seeds, _UNIT,
        smallest_effect(error, num_seeds - 1, level), error,
    )  # fmt: skip

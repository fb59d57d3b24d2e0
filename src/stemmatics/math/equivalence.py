"""Paired proportions: whether two models are equivalent on the same prompts, different, or neither is shown.

``num_gained`` counts prompts where only the second model succeeds, ``num_lost`` where only the first does;
the difference is (gained - lost) / n, second less first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, check_level, plural, unknown
from stemmatics.math.scipy_modules import optimize, stats
from stemmatics.math.sums import FloatArray

FEWEST_FOR_CHI2 = 25
"""Under this many discordant pairs McNemar's test is the exact binomial one."""
ALPHA = 0.05


@dataclass(frozen=True)
class McNemar:
    """Two-sided test of "as many gained as lost"; ``mid_p`` is the less conservative exact variant."""

    p_value: float
    mid_p: float
    method: Literal["exact", "chi2"]
    num_gained: int
    num_lost: int


def mcnemar(num_gained: int, num_lost: int) -> McNemar:
    """McNemar (Psychometrika 12, 1947): exact under 25 discordant pairs, else chi2 without correction.

    mid-p: Fagerland, Lydersen and Laake (BMC Medical Research Methodology 13, 2013). No discordant pair: 1.
    """
    _check_counts(num_gained, num_lost, num_gained + num_lost)
    discordant, fewer = num_gained + num_lost, min(num_gained, num_lost)
    exact = _exact_p(num_gained, num_lost)
    mid_p = 1.0
    if num_gained != num_lost:
        mid_p = 2 * float(stats.binom.cdf(fewer, discordant, 0.5))
        mid_p -= float(stats.binom.pmf(fewer, discordant, 0.5))
    elif discordant:
        mid_p = 1.0 - 0.5 * float(stats.binom.pmf(fewer, discordant, 0.5))
    if discordant < FEWEST_FOR_CHI2:
        return McNemar(exact, mid_p, "exact", num_gained, num_lost)
    chi2 = (num_gained - num_lost) ** 2 / discordant
    return McNemar(float(stats.chi2.sf(chi2, 1)), mid_p, "chi2", num_gained, num_lost)


def _exact_p(num_gained: int, num_lost: int) -> float:
    fewer = min(num_gained, num_lost)
    return min(1.0, 2 * float(stats.binom.cdf(fewer, num_gained + num_lost, 0.5)))


def _check_counts(num_gained: int, num_lost: int, num_pairs: int) -> None:
    if num_gained < 0 or num_lost < 0 or num_gained + num_lost > num_pairs:
        raise UserError(
            f"{num_gained} gained and {num_lost} lost of {num_pairs} prompts",
            "there can't be more discordant pairs than pairs",
            "count both over the same prompts",
        )


def score_statistic(num_gained: int, num_lost: int, num_pairs: int, difference: float) -> float:
    """Tango's score statistic for a paired difference of proportions (Statistics in Medicine 17, 1998).

    (gained - lost - n d) / sqrt(n (2 q + d (1 - d))), q the maximum likelihood estimate of the probability of
    a loss given that the difference is d.
    """
    gained, lost, n, d = num_gained, num_lost, num_pairs, difference
    a = 2.0 * n
    b = -gained - lost + (2 * n - gained + lost) * d
    c = -lost * d * (1 - d)
    q = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = n * (2 * q + d * (1 - d))
    numerator = gained - lost - n * d
    if variance <= 0:
        return 0.0 if numerator == 0 else math.copysign(math.inf, numerator)
    return numerator / math.sqrt(variance)


def _upper_limit(num_gained: int, num_lost: int, num_pairs: int, z: float) -> float:
    """The difference above the estimate where the score statistic falls to -z; it decreases in d."""
    estimate = (num_gained - num_lost) / num_pairs
    if estimate >= 1:
        return 1.0

    def excess(d: float) -> float:
        return max(score_statistic(num_gained, num_lost, num_pairs, d), -1e6) + z

    return float(optimize.brentq(excess, estimate, 1.0, xtol=1e-15, rtol=1e-14))


def paired_score_interval(
    num_gained: int, num_lost: int, num_pairs: int, *, level: float = 0.95, unit: str = "prompt"
) -> Interval:
    """Tango's score interval for (gained - lost) / n; never of width 0, whatever the counts.

    With no discordant pair it is plus and minus z^2 / (n + z^2). The standard error is the half width over z.
    """
    check_level(level)
    _check_counts(num_gained, num_lost, num_pairs)
    if num_pairs == 0:
        return unknown(math.nan, level=level, n=0, unit=unit, note=f"no {plural(unit)}")
    z = float(stats.norm.ppf((1 + level) / 2))
    hi = _upper_limit(num_gained, num_lost, num_pairs, z)
    lo = -_upper_limit(num_lost, num_gained, num_pairs, z)
    error = (hi - lo) / (2 * z)
    effect = float(z + stats.norm.ppf(0.80)) * error
    value = (num_gained - num_lost) / num_pairs
    return Interval(value, lo, hi, level, "Tango paired score", num_pairs, unit, effect, error)


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests at 5%. ``interval`` is the 90% one that decides equivalence.

    ``smallest_margin``: every larger margin would have passed. ``num_needed``: pairs for 80% power at the
    given margin, if the models are equal and as discordant as observed.
    """

    verdict: Literal["equivalent", "different", "undetermined"]
    margin: float
    interval: Interval
    smallest_margin: float
    num_needed: int
    test: McNemar


def equivalence(
    num_gained: int, num_lost: int, num_pairs: int, *, margin: float, unit: str = "prompt"
) -> Equivalence:
    """Whether two models are within ``margin`` of one another on the same prompts.

    *equivalent*: the 90% paired score interval lies inside (-margin, margin), even if it shows a smaller
    difference. *different*: the exact McNemar test rejects equality at 5%, and the difference is no smaller
    than the margin. Else *undetermined*.

    More discordant pairs at the same difference are a larger error, and never add or change a verdict: below
    the margin nothing is *different*, so *equivalent* can only be lost; and the exact p rises with them,
    while chi2, used from 25 discordant pairs on, can be the smaller of the two.
    """
    if not 0 < margin < 1:
        raise UserError(
            f"margin {margin}", "it is a difference of proportions above 0", "give 0.01 for a point"
        )
    interval = paired_score_interval(num_gained, num_lost, num_pairs, level=1 - 2 * ALPHA, unit=unit)
    test = mcnemar(num_gained, num_lost)
    smallest = max(-interval.lo, interval.hi) if num_pairs else math.nan
    verdict: Literal["equivalent", "different", "undetermined"] = "undetermined"
    if smallest < margin:
        verdict = "equivalent"
    elif num_pairs and abs(interval.value) >= margin and _exact_p(num_gained, num_lost) < ALPHA:
        verdict = "different"
    discordant = (num_gained + num_lost) / num_pairs if num_pairs else 1.0
    needed = num_pairs_needed(margin, discordant)
    return Equivalence(verdict, margin, interval, smallest, needed, test)


def num_pairs_needed(margin: float, discordant_rate: float, *, power: float = 0.80) -> int:
    """Pairs with which two one-sided 5% tests pass with this power, if there is no true difference.

    (z_.95 + z_(1+power)/2)^2 * discordant rate / margin^2, and never fewer than a run without any discordant
    pair needs: 4,282 for a point at 5% discordant (Liu, Hsueh, Hsieh and Chen, Statistics in Medicine 21,
    2002). A large-sample formula: with 20 discordant pairs in it the power is 0.72 in place of 0.80.
    """
    z = float(stats.norm.ppf(1 - ALPHA))
    z_both = z + float(stats.norm.ppf((1 + power) / 2))
    without_discordant = z * z * (1 - margin) / margin + 1
    return math.ceil(max(z_both**2 * discordant_rate / margin**2, without_discordant))


def holm(p_values_K: npt.ArrayLike) -> FloatArray:
    """Holm's adjusted p-values (Scandinavian Journal of Statistics 6, 1979), in the given order.

    NaN stays NaN and does not count as a test.
    """
    p_K = np.asarray(p_values_K, dtype=np.float64)
    adjusted = np.full(p_K.shape, np.nan)
    order = np.argsort(p_K)[: int((~np.isnan(p_K)).sum())]
    factors = np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_K[order] * factors), 1.0)
    return adjusted

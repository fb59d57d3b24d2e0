"""How often the intervals cover the truth. Run as a script it prints the tables of docs/statistics.md.

Every case draws ``num_sets`` sets of N documents from a law whose truth is known; one call gives the limits
of all sets, since sets are problems on N units. Lengths are lognormal with log sd 1 (the longest of 50
documents holds a sixth of the bytes).
"""

import sys

import numpy as np
import pytest

from stemmatics.math.bootstrap import bootstrap_limits
from stemmatics.math.rates import difference_of_ratios, ratio_of_sums

LENGTH_SD = 1.0


def lengths(rng, shape):
    """Log lengths about 0, and bytes."""
    u = LENGTH_SD * rng.standard_normal(shape)
    return u, 400 * np.exp(u)


def loss_rate(rng, shape):
    """A loss rate that falls with length and varies by document."""
    u, size = lengths(rng, shape)
    rate = np.exp(0.3 * rng.standard_normal(shape) - 0.045 - 0.1 * u)
    truth = np.exp((0.81 - 1) * LENGTH_SD**2 / 2)
    return ratio_of_sums, truth, (size * rate, size)


def paired_heavy_tails(rng, shape):
    """Small paired differences with t noise of 5 degrees of freedom."""
    u, size = lengths(rng, shape)
    change = 0.02 * np.exp(-0.2 * u) + 0.05 * np.exp(-0.3 * u) * rng.standard_t(5, shape)
    truth = 0.02 * np.exp((0.64 - 1) * LENGTH_SD**2 / 2)
    return ratio_of_sums, truth, (size * change, size)


def paired_skewed(rng, shape):
    """Paired differences that are exponential: most documents hardly move, some move much."""
    _, size = lengths(rng, shape)
    return ratio_of_sums, 0.02, (size * rng.exponential(0.02, shape), size)


def two_denominators(rng, shape):
    """Nats per byte against nats per token of another tokenizer, scaled to one unit."""
    _, size = lengths(rng, shape)
    rate = np.exp(0.3 * rng.standard_normal(shape) - 0.045)
    change = 0.02 + 0.05 * rng.standard_t(5, shape)
    tokens = size * np.exp(0.1 * rng.standard_normal(shape) - 0.005)
    return difference_of_ratios, 0.02, (size * rate, size, size * (rate + change), tokens)


def share(rng, shape):
    """A share of a loss increase, the increase well above 0."""
    _, size = lengths(rng, shape)
    whole = 0.1 + 0.1 * rng.standard_normal(shape)
    part = 0.3 * whole + 0.03 * rng.standard_t(5, shape)
    return ratio_of_sums, 0.3, (size * part, size * whole)


def normal_mean(rng, shape):
    return ratio_of_sums, 0.0, (rng.standard_normal(shape), np.ones(shape))


def lognormal_mean(rng, shape):
    return ratio_of_sums, np.exp(0.5), (np.exp(rng.standard_normal(shape)), np.ones(shape))


CASES = [
    loss_rate, paired_heavy_tails, paired_skewed, two_denominators, share, normal_mean, lognormal_mean,
]  # fmt: skip


def coverage(case, method, num_units, num_sets, num_resamples=4000):
    """Share of sets whose interval holds the truth."""
    statistic, truth, columns = case(np.random.default_rng(num_units), (num_units, num_sets))
    limits = bootstrap_limits(
        np.stack(columns, axis=-1), statistic, method=method, level=0.95, num_resamples=num_resamples,
        rng=np.random.default_rng(7),
    )  # fmt: skip
    return float(np.mean((limits.lows <= truth) & (truth <= limits.highs)))


@pytest.mark.parametrize("case", CASES)
def test_document_intervals_cover_at_50(case):
    # 2.5 standard errors of a share of 400 around 93 and 97%
    assert 0.93 - 0.032 <= coverage(case, "guarded bootstrap-t", 50, 400, 2000) <= 0.97 + 0.022


@pytest.mark.known
@pytest.mark.parametrize("num_units", [50, 100, 200])
@pytest.mark.parametrize("case", CASES)
def test_document_intervals_cover_93_to_97(case, num_units):
    assert 0.93 <= coverage(case, "guarded bootstrap-t", num_units, 2000) <= 0.97


def test_bca_does_not_keep_its_word_on_skewed_documents():
    """The reason why it is not the default; when this fails, the choice is to be looked at again."""
    assert coverage(paired_skewed, "bca", 50, 400, 2000) < 0.92


if __name__ == "__main__":
    sizes = [5, 10, 20, 50, 100, 200]
    for method in ("guarded bootstrap-t", "bca", "jackknife-t"):
        sys.stdout.write(f"| {method} | " + " | ".join(map(str, sizes)) + " |\n")
        for case in CASES:
            shares = [100 * coverage(case, method, n, 2000) for n in sizes]
            row = f"| {case.__name__.replace('_', ' ')} | " + " | ".join(f"{s:.1f}" for s in shares)
            sys.stdout.write(row + " |\n")
            sys.stdout.flush()

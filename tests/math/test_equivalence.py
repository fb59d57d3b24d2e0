import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from stemmatics.core.errors import UserError
from stemmatics.math import equivalence as eq

counts = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))


def score_by_likelihood(gained, lost, n, d):
    """The constrained estimate by maximising the likelihood numerically, then the score over its error."""
    low, high = max(0.0, -d), (1 - d) / 2

    def slope(q):
        return gained / (q + d) + lost / q - 2 * (n - gained - lost) / (1 - 2 * q - d)

    edge = 1e-13 * (high - low)
    q = optimize.brentq(slope, low + edge, high - edge, xtol=1e-16, rtol=1e-15)
    return (gained - lost - n * d) / math.sqrt(n * (2 * q + d * (1 - d)))


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.floats(-0.9, 0.9))
def test_score_statistic_is_the_constrained_likelihood(gained, lost, same, d):
    n = gained + lost + same
    expected = score_by_likelihood(gained, lost, n, d)
    assert eq.score_statistic(gained, lost, n, d) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@settings(deadline=None)
@given(counts)
def test_interval_inverts_the_score(triple):
    gained, lost, same = triple
    n = gained + lost + same
    if n == 0:
        assert math.isnan(eq.paired_score_interval(gained, lost, n).lo)
        return
    result = eq.paired_score_interval(gained, lost, n, level=0.9)
    mirrored = eq.paired_score_interval(lost, gained, n, level=0.9)
    z = stats.norm.ppf(0.95)
    assert -1 <= result.lo <= result.value <= result.hi <= 1
    assert result.hi - result.lo > 0.5 / (n + 1)
    assert result.lo == pytest.approx(-mirrored.hi, abs=1e-12)
    if result.hi < 1 - 1e-9:
        assert eq.score_statistic(gained, lost, n, result.hi) == pytest.approx(-z, abs=1e-6)


def test_no_discordant_pair_still_has_a_width():
    z = stats.norm.ppf(0.95)
    result = eq.paired_score_interval(0, 0, 100, level=0.9)
    np.testing.assert_allclose(
        [result.lo, result.hi], [-z * z / (100 + z * z), z * z / (100 + z * z)], rtol=1e-9
    )


def test_paired_score_interval_covers():
    rng = np.random.default_rng(0)
    hits = 0
    draws = rng.multinomial(80, [0.12, 0.05, 0.83], size=1500)
    for gained, lost, _ in draws:
        result = eq.paired_score_interval(int(gained), int(lost), 80)
        hits += result.lo <= 0.07 <= result.hi
    assert 0.93 <= hits / 1500 <= 0.97


@given(st.integers(0, 14), st.integers(0, 14))
def test_exact_and_mid_p_are_the_enumeration(gained, lost):
    discordant = gained + lost
    if discordant >= eq.FEWEST_FOR_CHI2:
        return
    distances = [abs(2 * k - discordant) for k in range(discordant + 1)]
    chances = [math.comb(discordant, k) / 2**discordant for k in range(discordant + 1)]
    observed = abs(gained - lost)
    exact = math.fsum(c for d, c in zip(distances, chances, strict=True) if d >= observed)
    tied = math.fsum(c for d, c in zip(distances, chances, strict=True) if d == observed)
    result = eq.mcnemar(gained, lost)
    assert result.method == "exact"
    assert result.p_value == pytest.approx(exact, abs=1e-12)
    assert result.mid_p == pytest.approx(exact - tied / 2 if discordant else 1.0, abs=1e-12)


def test_mcnemar_is_chi2_from_25_on():
    result = eq.mcnemar(20, 5)
    assert result.method == "chi2"
    assert result.p_value == pytest.approx(math.erfc(math.sqrt(9.0 / 2)), rel=1e-12)
    assert eq.mcnemar(20, 4).method == "exact"


@pytest.mark.parametrize(
    ("gained", "lost", "n", "verdict"),
    [
        (110, 105, 6000, "equivalent"),
        (60, 10, 1000, "different"),
        (12, 10, 300, "undetermined"),
        (0, 0, 50, "undetermined"),
        (0, 0, 300, "equivalent"),
        (60, 20, 20_000, "equivalent"),
        (0, 0, 0, "undetermined"),
    ],
)
def test_verdicts(gained, lost, n, verdict):
    assert eq.equivalence(gained, lost, n, margin=0.01).verdict == verdict


@given(counts)
@settings(deadline=None)
def test_smallest_margin_is_the_edge(triple):
    gained, lost, same = triple
    n = gained + lost + same
    if n == 0:
        return
    edge = eq.equivalence(gained, lost, n, margin=0.5).smallest_margin
    if edge < 0.99:
        assert eq.equivalence(gained, lost, n, margin=edge + 1e-9).verdict == "equivalent"
        assert eq.equivalence(gained, lost, n, margin=edge - 1e-9).verdict != "equivalent"


def test_a_point_at_five_per_cent_needs_some_4300_prompts():
    assert eq.num_pairs_needed(0.01, 0.05) == 4282


def share_equivalent(n, chances, margin, seed):
    draws = np.random.default_rng(seed).multinomial(n, chances, size=4000)
    counts, repeats = np.unique(draws[:, :2], axis=0, return_counts=True)
    verdicts = [eq.equivalence(int(g), int(s), n, margin=margin).verdict for g, s in counts]
    return float(np.average([v == "equivalent" for v in verdicts], weights=repeats))


def test_the_number_needed_gives_the_requested_power():
    n = eq.num_pairs_needed(0.01, 0.05)
    assert 0.77 <= share_equivalent(n, [0.025, 0.025, 0.95], 0.01, 0) <= 0.82
    few = eq.num_pairs_needed(0.02, 0.03)
    assert 0.70 <= share_equivalent(few, [0.015, 0.015, 0.97], 0.02, 0) <= 0.75


def test_the_number_needed_without_discordant_pairs_just_passes():
    n = eq.equivalence(0, 0, 50, margin=0.01).num_needed
    assert eq.equivalence(0, 0, n, margin=0.01).verdict == "equivalent"
    assert eq.equivalence(0, 0, n - 3, margin=0.01).verdict != "equivalent"


def test_equivalence_errs_in_one_of_twenty_at_the_margin():
    assert share_equivalent(400, [0.06, 0.01, 0.93], 0.05, 1) <= 0.06


@settings(deadline=None)
@example(15, 0, 975, 5, 0.023)
@example(17, 7, 74, 1, 0.01)
@given(st.integers(0, 25), st.integers(0, 25), st.integers(0, 60), st.integers(1, 20), st.floats(0.005, 0.3))
def test_more_discordant_pairs_at_the_same_difference_never_add_a_verdict(gained, lost, same, more, margin):
    n = gained + lost + same + 2 * more
    few = eq.equivalence(gained, lost, n, margin=margin).verdict
    many = eq.equivalence(gained + more, lost + more, n, margin=margin).verdict
    assert many in {few, "undetermined"}


def test_a_difference_inside_the_margin_is_never_different():
    # equality is rejected, and the interval reaches beyond the margin
    inside = eq.equivalence(20, 5, 1000, margin=0.02)
    assert inside.test.p_value < 0.05
    assert inside.smallest_margin > 0.02
    assert inside.verdict == "undetermined"
    # the same difference from fewer discordant pairs is equivalent: nothing in between may be different
    assert eq.equivalence(15, 0, 1000, margin=0.023).verdict == "equivalent"


def test_the_switch_to_chi2_adds_no_verdict():
    # 17 of 24 is not significant by the exact test, 18 of 26 is by chi2 although its error is larger
    assert eq.mcnemar(17, 7).p_value > 0.05 > eq.mcnemar(18, 8).p_value
    assert eq.equivalence(18, 8, 100, margin=0.01).verdict == "undetermined"


def test_a_false_difference_is_rarer_than_one_in_twenty():
    draws = np.random.default_rng(2).multinomial(400, [0.04, 0.04, 0.92], size=4000)
    counts, repeats = np.unique(draws[:, :2], axis=0, return_counts=True)
    verdicts = [eq.equivalence(int(g), int(s), 400, margin=0.01).verdict for g, s in counts]
    assert np.average([v == "different" for v in verdicts], weights=repeats) <= 0.05


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_is_the_closed_test(p_values):
    """Adjusted p of i: the largest Bonferroni p over all sets of hypotheses that hold i."""
    result = eq.holm(p_values)
    for i in range(len(p_values)):
        sets = [
            s for r in range(1, len(p_values) + 1) for s in itertools.combinations(range(len(p_values)), r)
        ]
        worst = max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in sets if i in s)
        assert result[i] == pytest.approx(worst, abs=1e-12)


def test_holm_leaves_unknown_tests_out():
    np.testing.assert_allclose(eq.holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])


def test_wrong_counts_are_refused():
    with pytest.raises(UserError, match="discordant"):
        eq.paired_score_interval(6, 5, 10)
    with pytest.raises(UserError, match="margin"):
        eq.equivalence(1, 1, 10, margin=0.0)

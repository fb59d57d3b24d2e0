"""Resolution statistics against loops over repeated rows, and their known truths in simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemmatics.core.errors import UserError
from stemmatics.math import ranks
from stemmatics.math.recovery import (
    family_percentile,
    left_out_errors,
    mean_by_family,
    pairs_of,
    resolution,
    size_slope,
    size_slope_by_family,
    weighted,
)
from stemmatics.math.recovery.resolution import delta95, lofo, misorder
from stemmatics.math.seeds import family_bootstrap, family_means

counts_and_values = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=9
)


def made_pairs(seed=0, num_families=10, noise=0.02):
    """Some bases with several descendants, families of several bases."""
    rng = np.random.default_rng(seed)
    rows = []
    for f in range(num_families):
        for b in range(int(rng.integers(1, 4))):
            matched = rng.uniform(0.5, 0.8)
            native_base = matched + rng.uniform(0, 0.04)
            for d in range(int(rng.integers(1, 3))):
                recovered = matched + 0.02 + noise * rng.standard_normal()
                rows.append(
                    (f"f{f}", f"f{f}b{b}", f"f{f}b{b}d{d}", native_base, matched, recovered + 0.05, recovered)
                )
    names = ("family", "base", "descendant", "native_base", "matched_base", "native", "recovered")
    return pairs_of(**dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def repeated(pairs, counts):
    """Row numbers of a resample, copies beside their originals."""
    return [i for i, c in enumerate(counts) for _ in range(int(c))]


def loop_gaps(pairs, rows):
    """(gap error, true gap, seen gap) over pairs of rows of different bases."""
    r, m = pairs.recovered_N - pairs.matched_base_N, pairs.matched_base_N
    return [
        (abs(r[i] - r[j]), m[i] - m[j], pairs.recovered_N[i] - pairs.recovered_N[j])
        for i, j in itertools.combinations(rows, 2)
        if pairs.base_N[i] != pairs.base_N[j]
    ]


def resamples(pairs, num=20):
    counts, _ = weighted.family_counts(pairs.family_N, num, np.random.default_rng(3))
    return np.concatenate([np.ones((1, pairs.base_N.size)), counts])


def test_delta95_and_misorder_are_loops_over_repeated_rows():
    pairs = made_pairs()
    counts = resamples(pairs)
    result, share = delta95(pairs)(counts), misorder(pairs, 0.02, 0.08)(counts)
    for b, row in enumerate(counts):
        gaps = loop_gaps(pairs, repeated(pairs, row))
        assert result[b] == pytest.approx(np.quantile([g[0] for g in gaps], 0.95), abs=1e-12)
        band = [g for g in gaps if 0.02 <= abs(g[1]) < 0.08]
        wrong = [g for g in band if g[1] * g[2] < 0]
        assert share[b] == pytest.approx(len(wrong) / len(band), abs=1e-12)


def test_lofo90_leaves_all_copies_of_a_family_out():
    pairs = made_pairs(1)
    counts = resamples(pairs)
    r, f = pairs.recovered_N - pairs.matched_base_N, pairs.family_N
    for b, result in enumerate(lofo(pairs, 0.90)(counts)):
        rows = repeated(pairs, counts[b])
        drawn = {name: counts[b][f == name][0] for name in np.unique(f)}
        errors = []
        for i in rows:
            means = [r[f == g].mean() for g in drawn if g != f[i] for _ in range(int(drawn[g]))]
            errors.append(abs(r[i] - np.mean(means)))
        assert result == pytest.approx(np.quantile(errors, 0.9), abs=1e-12)


def test_one_family_has_no_left_out_error():
    assert np.isnan(left_out_errors(np.array([0.1, 0.2]), np.array(["a", "a"]), np.ones((1, 2)))).all()


@given(counts_and_values, st.sampled_from([0.0, 0.3, 0.9, 0.95, 1.0]))
def test_weighted_statistics_are_those_of_repeated_values(rows, q):
    counts = np.array([[r[0] for r in rows]], dtype=float)
    x, y = np.array([float(r[1]) for r in rows]), np.array([float(r[2]) for r in rows])
    many = np.repeat(np.arange(x.size), counts[0].astype(int))
    result = weighted.quantile(x, counts, q)[0]
    assert (
        math.isnan(result) if not many.size else result == pytest.approx(np.quantile(x[many], q), abs=1e-12)
    )
    for mine, theirs in ((weighted.spearman, ranks.spearman), (weighted.kendall_tau_b, ranks.kendall_tau_b)):
        if many.size:
            assert mine(x, y, counts)[0] == pytest.approx(theirs(x[many], y[many]), abs=1e-9, nan_ok=True)


def test_chunks_change_nothing(monkeypatch):
    pairs = made_pairs(2)
    counts = resamples(pairs)
    whole = [f(counts) for f in (delta95(pairs), lofo(pairs, 0.90), misorder(pairs, 0.0, 0.08))]
    monkeypatch.setattr(weighted, "CHUNK_ELEMENTS", 1)
    parts = [f(counts) for f in (delta95(pairs), lofo(pairs, 0.90), misorder(pairs, 0.0, 0.08))]
    assert np.allclose(whole, parts, rtol=1e-13, equal_nan=True)


def test_the_interval_is_that_of_the_family_bootstrap():
    pairs = made_pairs(4, num_families=9)
    result = family_percentile(
        delta95(pairs), pairs.family_N, rng=np.random.default_rng(0), num_resamples=4000
    )

    def statistic(models, _families):
        gaps = loop_gaps(pairs, models)
        return np.quantile([g[0] for g in gaps], 0.95) if gaps else math.nan

    slow = family_bootstrap(pairs.family_N, statistic, rng=np.random.default_rng(1), num_resamples=1000)
    assert (result.value, result.n, result.unit) == (pytest.approx(slow.value), 9, "family")
    assert result.lo == pytest.approx(slow.lo, abs=0.25 * (slow.hi - slow.lo))
    assert result.hi == pytest.approx(slow.hi, abs=0.25 * (slow.hi - slow.lo))


def test_resamples_of_one_family_are_dropped_and_counted():
    families = np.array(["a", "a", "b"])
    counts, dropped = weighted.family_counts(families, 4000, np.random.default_rng(0))
    assert dropped == pytest.approx(2000, abs=150)
    assert (counts == 1).all()
    result = family_percentile(
        lambda c: c @ np.array([1.0, 2.0, 4.0]) / c.sum(1), families, rng=np.random.default_rng(0)
    )
    assert "few families" in result.note
    assert "of 10000 resamples dropped" in result.note


def test_mean_by_family_is_t_over_family_means_where_families_have_one_size():
    values, families = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 3.5]), np.array(list("aabbcc"))
    result = mean_by_family(values, families, rng=np.random.default_rng(0))
    means = family_means(values, families)
    reach = 4.302652729749464 * means.std(ddof=1) / math.sqrt(3)  # t_.975 at 2 degrees
    assert (result.lo, result.hi) == pytest.approx((means.mean() - reach, means.mean() + reach), abs=1e-12)
    assert (result.n, result.unit, result.note) == (3, "family", "few families")
    alone = mean_by_family(values[:2], families[:2], rng=np.random.default_rng(0))
    assert (alone.value, alone.note) == (1.5, "fewer than two families")
    assert math.isnan(alone.lo)


def test_siblings_and_reversals_by_hand():
    pairs = pairs_of(
        family=["x", "x", "x", "y"],
        base=["p", "p", "q", "r"],
        descendant=["p1", "p2", "q1", "r1"],
        native_base=[0.70, 0.70, 0.72, 0.60],
        matched_base=[0.69, 0.69, 0.66, 0.59],
        native=[0.8, 0.8, 0.8, 0.7],
        recovered=[0.70, 0.74, 0.67, 0.61],
    )
    result = resolution(pairs, rng=np.random.default_rng(0), num_resamples=200)
    assert result.siblings == {"p": (pytest.approx(0.04), 2)}
    assert result.sibling_spread.value == pytest.approx(0.04)
    assert [(result.bases[r.lower], result.bases[r.higher]) for r in result.reversals] == [("p", "q")]
    assert result.kendall_native_rebased.value == pytest.approx(1 / 3)
    assert result.mean_residual.value == pytest.approx((0.01 + 0.05 + 0.01 + 0.02) / 4)
    assert result.offset.value == pytest.approx(((0.01 + 0.05 + 0.01) / 3 + 0.02) / 2)
    assert [(band.num_misordered, band.num_pairs) for band in result.misorder] == [
        (0, 0),
        (0, 2),
        (0, 1),
        (0, 2),
    ]
    assert pairs.drops[0] == pytest.approx(0.1)
    assert pairs.rebase_shifts[2] == pytest.approx(0.06)
    # a rate without a case in any resample has no limits, which is not the same as "surely none"
    assert math.isnan(result.misorder[1].share.lo)


def test_a_lone_pair_and_constant_values_give_no_limits():
    counts = pairs_of(
        family=["x"],
        base=["p"],
        descendant=["d"],
        native_base=[0.7],
        matched_base=[0.6],
        native=[0.8],
        recovered=[0.65],
    )
    result = resolution(counts, rng=np.random.default_rng(0))
    assert result.mean_residual.value == pytest.approx(0.05)
    for name in (
        "delta95",
        "lofo90",
        "spearman_recovered_matched",
        "sibling_spread",
        "kendall_native_rebased",
    ):
        assert math.isnan(getattr(result, name).value)
        assert getattr(result, name).note
    same = pairs_of(
        family=list("abc"), base=list("pqr"), descendant=list("xyz"),
        native_base=[0.7] * 3, matched_base=[0.6] * 3, native=[0.8] * 3, recovered=[0.65] * 3,
    )  # fmt: skip
    result = resolution(same, rng=np.random.default_rng(0), num_resamples=100)
    assert result.delta95.value == 0
    assert math.isnan(result.delta95.lo)
    assert math.isnan(result.spearman_recovered_matched.value)
    assert result.misorder[0].num_misordered == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"native_base": [0.7, 0.71]}, "more than one native_base"),
        ({"family": ["x", "y"]}, "more than one family"),
        ({"descendant": ["d", "d"]}, "is listed twice"),
        ({"recovered": [0.6, math.nan]}, "not a finite number"),
        ({"recovered": [0.6]}, "columns of shapes"),
    ],
)
def test_pairs_that_contradict_themselves_are_refused(change, message):
    columns = {
        "family": ["x", "x"], "base": ["p", "p"], "descendant": ["d", "e"], "native_base": [0.7, 0.7],
        "matched_base": [0.6, 0.6], "native": [0.8, 0.8], "recovered": [0.65, 0.66],
    }  # fmt: skip
    with pytest.raises(UserError, match=message):
        pairs_of(**(columns | change))


def test_size_slopes():
    sizes = np.array([1e9, 1e10, 1e11, 1e9])
    result = size_slope(np.array([0.01, 0.03, 0.05, 0.01]), sizes)
    assert result.value == pytest.approx(0.02)
    assert result.hi - result.lo < 1e-9
    assert math.isnan(size_slope(np.array([0.1, 0.2]), np.array([1e9, 1e9])).value)
    assert math.isnan(size_slope(np.array([0.1, 0.2]), np.array([1e9, 1e10])).lo)
    with pytest.raises(UserError, match="above 0"):
        size_slope(np.array([0.1]), np.array([0.0]))
    families = np.array(list("abcdefghij"))
    rng = np.random.default_rng(0)
    x, y = 10 ** rng.uniform(8, 11, 10), rng.normal(size=10)
    overall = size_slope_by_family(y, x, families, rng=rng)
    assert overall.value == pytest.approx(np.polyfit(np.log10(x), y, 1)[0], abs=1e-12)
    assert overall.lo < overall.value < overall.hi
    assert math.isnan(size_slope_by_family(y, np.full(10, 7e9), families, rng=rng).value)


def test_known_residual_noise_gives_its_delta95_and_lofo90():
    """Independent residuals N(0.02, s): gap errors are |N(0, s sqrt 2)|, left-out errors |N(0, s)| nearly."""
    s, rng = 0.01, np.random.default_rng(0)
    n = 400
    matched = rng.uniform(0.5, 0.9, n)
    recovered = matched + 0.02 + s * rng.standard_normal(n)
    names = [f"m{i}" for i in range(n)]
    pairs = pairs_of(
        family=names, base=names, descendant=names, native_base=matched, matched_base=matched,
        native=recovered, recovered=recovered,
    )  # fmt: skip
    counts = np.ones((1, n))
    assert delta95(pairs)(counts)[0] == pytest.approx(1.959964 * s * math.sqrt(2), rel=0.05)
    assert lofo(pairs, 0.90)(counts)[0] == pytest.approx(1.644854 * s, rel=0.08)
    # two bases 0.03 apart are misordered when noise of s sqrt 2 exceeds the gap
    share = misorder(pairs, 0.0, 0.02)(counts)[0]
    u = np.linspace(0, 0.02, 20001)
    normal_tail = 0.5 * np.array([math.erfc(g / (2 * s)) for g in u])
    assert share == pytest.approx(normal_tail.mean(), abs=0.03)

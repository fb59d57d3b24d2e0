import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemmatics.core.errors import UserError
from stemmatics.math import ranks
from stemmatics.math.intervals import t_interval

pairs_of_values = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=12)


def average_rank(values, i):
    return sum(v < values[i] for v in values) + (sum(v == values[i] for v in values) + 1) / 2


@given(pairs_of_values)
def test_tau_b_and_rho_are_the_loops(rows):
    x, y = [r[0] for r in rows], [r[1] for r in rows]
    signs = [(np.sign(a[0] - b[0]), np.sign(a[1] - b[1])) for a, b in itertools.combinations(rows, 2)]
    untied_x, untied_y = sum(s[0] != 0 for s in signs), sum(s[1] != 0 for s in signs)
    if untied_x == 0 or untied_y == 0:
        assert math.isnan(ranks.kendall_tau_b(x, y))
        assert math.isnan(ranks.spearman(x, y))
        return
    tau = sum(s[0] * s[1] for s in signs) / math.sqrt(untied_x * untied_y)
    assert ranks.kendall_tau_b(x, y) == pytest.approx(tau, abs=1e-12)
    n = len(rows)
    u = [average_rank(x, i) - (n + 1) / 2 for i in range(n)]
    v = [average_rank(y, i) - (n + 1) / 2 for i in range(n)]
    rho = math.fsum(a * b for a, b in zip(u, v, strict=True))
    rho /= math.sqrt(math.fsum(a * a for a in u) * math.fsum(b * b for b in v))
    assert ranks.spearman(x, y) == pytest.approx(rho, abs=1e-12)


def test_spearman_interval_resamples_families():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = x + rng.normal(0, 0.5, 30)
    families = np.repeat(np.arange(10), 3)
    result = ranks.spearman_interval(x, y, families, rng=np.random.default_rng(1), num_resamples=1000)
    assert result.value == ranks.spearman(x, y)
    assert result.lo < result.value < result.hi < 1
    assert (result.n, result.unit) == (10, "family")


def test_unknown_values_have_no_correlation():
    assert math.isnan(ranks.spearman([1.0, math.nan, 2.0], [1.0, 2.0, 3.0]))


def test_reversals():
    result = ranks.rank_reversals([1.0, 2.0, 3.0, 3.0], [5.0, 4.0, 6.0, 1.0])
    assert [(r.lower, r.higher) for r in result] == [(0, 3), (1, 3), (0, 1)]
    assert (result[0].first_gap, result[0].second_gap) == (2.0, -4.0)
    assert ranks.rank_reversals([1.0, 1.0], [1.0, 2.0]) == []
    with pytest.raises(UserError, match="same items"):
        ranks.rank_reversals([1.0], [1.0, 2.0])


apart, alike = t_interval([1.0, 1.1, 1.2]), t_interval([-1.0, 1.1, 1.2])


@given(
    st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2 ** (n * (n - 1) // 2) - 1)))
)
def test_groups_are_the_maximal_cliques(case):
    n, mask = case
    pairs = list(itertools.combinations(range(n), 2))
    joined = {pair for k, pair in enumerate(pairs) if mask >> k & 1}
    cliques = [
        set(group)
        for size in range(1, n + 1)
        for group in itertools.combinations(range(n), size)
        if all(pair in joined for pair in itertools.combinations(group, 2))
    ]
    maximal = {tuple(sorted(c)) for c in cliques if not any(c < other for other in cliques)}
    differences = {pair: alike if pair in joined else apart for pair in pairs}
    assert set(ranks.indistinguishable_groups(np.arange(n), differences)) == maximal


def test_groups_follow_the_order_of_values():
    differences = {(0, 1): alike, (0, 2): apart, (1, 2): alike}
    assert ranks.indistinguishable_groups([3.0, 2.0, 1.0], differences) == [(2, 1), (1, 0)]
    unknown = t_interval([1.0])
    assert ranks.indistinguishable_groups([1.0, 2.0], {(0, 1): unknown}) == [(0, 1)]
    with pytest.raises(UserError, match="pair"):
        ranks.indistinguishable_groups([1.0, 2.0], {})

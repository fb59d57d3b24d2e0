import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemmatics.core.errors import UserError
from stemmatics.math import seeds


def generator():
    return np.random.default_rng(6)


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=9))
def test_sign_flip_is_the_enumeration(values):
    flips = itertools.product([1, -1], repeat=len(values))
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in flips]
    result = seeds.sign_flip_exact(np.array(values) / 7)
    assert result.p_value == pytest.approx(np.mean([s >= abs(sum(values)) for s in sums]), abs=1e-15)


@pytest.mark.parametrize(("num_seeds", "smallest"), [(3, 0.25), (8, 0.0078125)])
def test_smallest_p_is_what_equal_signs_give(num_seeds, smallest):
    result = seeds.sign_flip_exact(np.linspace(0.1, 0.4, num_seeds))
    assert (result.p_value, result.smallest_p, result.n) == (smallest, smallest, num_seeds)


def test_sign_flip_limits():
    assert math.isnan(seeds.sign_flip_exact([]).p_value)
    assert math.isnan(seeds.sign_flip_exact([1.0, math.nan]).p_value)
    with pytest.raises(UserError, match="monte_carlo"):
        seeds.sign_flip_exact(np.ones(21))


def test_monte_carlo_agrees_with_the_exact_test():
    values = np.random.default_rng(1).normal(0.4, 1, 12)
    exact = seeds.sign_flip_exact(values).p_value
    result = seeds.sign_flip_monte_carlo(values, rng=generator())
    assert result.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


def test_events_of_one_prompt_flip_together():
    prompt_effects = np.array([1.0, 0.8, 1.2, 0.9])
    events, prompts = np.repeat(prompt_effects, 50), np.repeat(np.arange(4), 50)
    grouped = seeds.sign_flip_monte_carlo(events, groups=prompts, rng=generator())
    assert grouped.p_value == pytest.approx(2 / 2**4, abs=0.01)
    assert (grouped.n, grouped.smallest_p) == (4, 0.125)
    assert seeds.sign_flip_monte_carlo(events, rng=generator()).p_value < 1e-3


def test_crossed_design_keeps_seed_noise():
    rng = np.random.default_rng(3)
    values = 1.0 + rng.normal(0, 0.5, 3) + rng.normal(0, 0.2, (400, 3))
    result = seeds.crossed_prompts_seeds(values, rng=generator())
    means = values.mean(0)
    assert result.seeds.n == 3
    assert result.seeds.hi - result.seeds.lo == pytest.approx(
        2 * 4.302652729911275 * means.std(ddof=1) / math.sqrt(3), rel=1e-10
    )
    assert result.combined.hi - result.combined.lo > 3 * (result.prompts.hi - result.prompts.lo)
    assert result.combined.value == pytest.approx(values.mean(), rel=1e-12)
    expected = math.hypot(result.seeds.standard_error, result.prompts.standard_error)
    assert result.combined.standard_error == pytest.approx(expected, rel=1e-12)
    with pytest.raises(UserError, match="crossed"):
        seeds.crossed_prompts_seeds(np.ones(4), rng=generator())


def test_crossed_design_covers():
    rng = np.random.default_rng(9)
    hits = 0
    for _ in range(120):
        prompts, runs = rng.normal(0, 0.5, (40, 1)), rng.normal(0, 0.3, (1, 4))
        result = seeds.crossed_prompts_seeds(prompts + runs + rng.normal(0, 0.3, (40, 4)), rng=rng).combined
        hits += result.lo <= 0.0 <= result.hi
    assert hits >= 0.90 * 120


def test_every_family_counts_the_same():
    values, families = [1.0, 1.0, 1.0, 4.0], ["a", "a", "a", "b"]
    np.testing.assert_array_equal(seeds.family_means(values, families), [1.0, 4.0])
    result = seeds.family_interval(values, families, rng=generator())
    assert result.value == 2.5
    assert (result.n, result.method, result.note) == (2, "t", "few families")
    many = seeds.family_interval(np.arange(8.0), list("abcdefgh"), rng=generator())
    assert many.method == "guarded bootstrap-t"
    assert "few families" not in many.note


def test_family_bootstrap_is_the_enumeration_for_three_families():
    values = np.array([0.0, 1.0, 5.0, 9.0])
    families = np.array(["a", "a", "b", "c"])
    members = {"a": [0, 1], "b": [2], "c": [3]}
    kept = []
    for drawn in itertools.product("abc", repeat=3):
        if len(set(drawn)) >= 2:
            models = [i for family in drawn for i in members[family]]
            kept.append(values[models].mean())
    result = seeds.family_bootstrap(families, lambda models, _: values[models].mean(), rng=generator())
    assert result.value == 3.75
    np.testing.assert_allclose([result.lo, result.hi], [min(kept), max(kept)], atol=1e-12)
    dropped = int(result.note.split("; ")[1].split()[0])
    assert dropped / 10_000 == pytest.approx(3 / 27, abs=0.015)
    assert result.note.startswith("few families")
    assert result.standard_error == pytest.approx(np.std(kept), rel=0.03)


def test_copies_of_a_family_share_its_label():
    families = np.array(["a", "a", "b", "c"])
    sizes = []

    def statistic(models, labels):
        assert (families[models] == labels).all()
        sizes.append(len(models))
        return float(len(models))

    seeds.family_bootstrap(families, statistic, rng=generator(), num_resamples=200)
    assert max(sizes) > 4


def test_one_family_has_no_interval():
    result = seeds.family_bootstrap(["a", "a"], lambda models, _: 1.0, rng=generator())
    assert (result.value, result.n) == (1.0, 1)
    assert math.isnan(result.lo)


def test_without_values_a_sign_flip_knows_nothing():
    for test in (seeds.sign_flip_exact([]), seeds.sign_flip_monte_carlo([], rng=np.random.default_rng(0))):
        assert math.isnan(test.p_value)
        assert (test.n, test.num_flips) == (0, 0)
    assert seeds.sign_flip_exact([]).exact
    assert not seeds.sign_flip_monte_carlo([], rng=np.random.default_rng(0)).exact


@pytest.mark.parametrize("n", [1, 3, 30])
def test_the_smallest_p_of_random_flips(n):
    """Of few values, their own; of many, that of the draws."""
    test = seeds.sign_flip_monte_carlo(np.arange(1.0, n + 1), rng=np.random.default_rng(0), num_flips=2_000)
    assert test.smallest_p == pytest.approx(max(2.0 ** (1 - n), 1 / 2_001))
    assert not math.isnan(test.p_value)

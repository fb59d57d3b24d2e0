"""Variance components and noises: against brute force, and by simulation with known components."""

import itertools

import numpy as np
import pytest
from tests.math.elicitation_studies import NAMES, component_study, known_components, simulated_answers

from stemmatics.core.errors import UserError
from stemmatics.math.elicitation.components import mean_squares, noises, subsets, variance_components


def brute_mean_square(table, names, chosen):
    """Effects by inclusion and exclusion of marginal means, one cell at a time."""
    total = 0.0
    for cell in itertools.product(*(range(size) for size in table.shape)):
        effect = 0.0
        for size in range(len(chosen) + 1):
            for part in itertools.combinations(chosen, size):
                where = tuple(cell[a] if name in part else slice(None) for a, name in enumerate(names))
                effect += (-1) ** (len(chosen) - size) * table[where].mean()
        total += effect**2
    degrees = np.prod([s - 1 for s, name in zip(table.shape, names, strict=True) if name in chosen])
    return total / degrees


def brute_components(table, names):
    """Expected mean squares as a linear system."""
    sets = subsets(names)
    sizes = dict(zip(names, table.shape, strict=True))
    expected = np.array(
        [
            [
                np.prod([s for name, s in sizes.items() if name not in column])
                if set(row) <= set(column)
                else 0
                for column in sets
            ]
            for row in sets
        ]
    )
    squares = [brute_mean_square(table, names, chosen) for chosen in sets]
    return dict(zip(sets, np.linalg.solve(expected, squares), strict=True))


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2), (3, 2, 4, 2)])
def test_components_solve_the_expected_mean_squares(shape):
    rng = np.random.default_rng(0)
    table, names = rng.normal(size=shape), NAMES[: len(shape)]
    squares = mean_squares(table, names)
    for chosen in subsets(names):
        assert squares[chosen].value == pytest.approx(brute_mean_square(table, names, chosen))
    expected = brute_components(table, names)
    estimates = variance_components(table, names, rng=rng, num_draws=100)
    assert {c.factors: c.interval.value for c in estimates} == pytest.approx(expected)
    assert sum(c.share for c in estimates) == pytest.approx(1)


def test_a_factor_with_one_level_is_left_out():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(6, 1, 3, 1))
    found = {c.factors: c.interval.value for c in variance_components(table, NAMES, rng=rng, num_draws=50)}
    expected = brute_components(table[:, 0, :, 0], ["item", "checkpoint"])
    assert found == pytest.approx(expected)
    with pytest.raises(UserError):
        mean_squares(table, NAMES[:2])


@pytest.mark.parametrize("sizes", [(60, 6, 5, 2), (100, 8, 5, 1)])
def test_components_of_right_and_wrong_answers_are_unbiased_and_covered(sizes):
    rng, repeats, known = np.random.default_rng(1), 300, known_components(sizes)
    values, covered = component_study(
        lambda rng: simulated_answers(sizes, rng), known, repeats=repeats, rng=rng, num_draws=1000
    )
    for chosen, estimates in values.items():
        error = np.std(estimates) / repeats**0.5
        assert np.mean(estimates) == pytest.approx(known.get(chosen, 0.0), abs=3.5 * error), chosen
        assert covered[chosen] > 0.91, chosen


def test_the_item_guard_covers_skewed_items():
    """Exponential item effects: the interval for normal effects alone covers in under four of five."""
    rng, covered, narrow, repeats = np.random.default_rng(2), 0, 0, 300
    for _ in range(repeats):
        table = rng.exponential(size=(200, 1)) + 0.1 * rng.normal(size=(200, 4))
        (item,) = [
            c.interval
            for c in variance_components(table, NAMES[:2], rng=rng, num_draws=500)
            if c.factors == ("item",)
        ]
        covered += item.lo <= 1 <= item.hi
        narrow += abs(item.value - 1) < 1.96 * item.value * (2 / 199) ** 0.5
    assert covered / repeats > 0.86
    assert narrow / repeats < 0.8


def test_noises_are_unbiased_and_add_up():
    rng, repeats = np.random.default_rng(3), 200
    found = []
    for _ in range(repeats):
        probability = rng.uniform(0.2, 0.8, 60)
        answers = (rng.random((60, 2, 1)) < probability[:, None, None]).astype(float)
        (noise,) = noises(answers, rng=np.random.default_rng(0))
        found.append((noise.prediction.value, noise.data.value))
    between = 0.36 / 12
    for estimates, truth in zip(np.transpose(found), (0.25 - between, between), strict=True):
        assert estimates.mean() == pytest.approx(truth, abs=3.5 * estimates.std() / repeats**0.5)


def test_noises_by_brute_force():
    rng = np.random.default_rng(4)
    values = rng.normal(size=(9, 3, 2))
    for p, noise in enumerate(noises(values, rng=rng)):
        within = [sum((x - v.mean()) ** 2 for x in v) / 2 for v in values[:, :, p]]
        means = [v.mean() for v in values[:, :, p]]
        between = sum((m - np.mean(means)) ** 2 for m in means) / 8
        assert noise.prediction.value == pytest.approx(np.mean(within))
        assert noise.data.value == pytest.approx(between - np.mean(within) / 3)
    with pytest.raises(UserError):
        noises(values[:, :1], rng=rng)

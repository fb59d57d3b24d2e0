"""Contrasts over runs and cells: formulas by brute force, coverage and errors where the truth is known."""

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stemmatics.math import imprint
from stemmatics.math.imprint import Noise, RunsAndCells

LEVELS = (0.9, 0.95)


def test_a_cell_is_the_mean_of_its_prompts_and_copies_change_nothing():
    rng = np.random.default_rng(0)
    values, cells = rng.normal(size=30), rng.choice(["b", "a", "c"], 30)
    labels, means = imprint.cell_means(values, cells)
    assert labels.tolist() == ["a", "b", "c"]
    for label, mean in zip(labels, means, strict=True):
        own = [value for value, cell in zip(values, cells, strict=True) if cell == label]
        assert mean == pytest.approx(sum(own) / len(own))
    twice = imprint.cell_means(np.tile(values, 2), np.tile(cells, 2))[1]
    assert twice == pytest.approx(means)


def clustered_by_hand(values, clusters):
    mean = sum(values) / len(values)
    names = sorted(set(clusters))
    sums = [sum(x - mean for x, c in zip(values, clusters, strict=True) if c == name) for name in names]
    total = sum(x * x for x in sums) * len(names) / (len(names) - 1)
    return math.sqrt(total) / len(values), len(names)


@given(st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 4)), min_size=2, max_size=25))
def test_the_clustered_error_is_the_sum_over_clusters(pairs):
    values, clusters = [x for x, _ in pairs], [c for _, c in pairs]
    error, num = imprint.clustered_error(values, clusters)
    if len(set(clusters)) == 1:
        assert math.isnan(error)
        return
    assert (error, num) == (
        pytest.approx(clustered_by_hand(values, clusters)[0], abs=1e-12),
        len(set(clusters)),
    )


def test_one_cell_a_cluster_is_the_ordinary_standard_error():
    values = np.random.default_rng(1).normal(size=12)
    error, num = imprint.clustered_error(values, np.arange(12))
    assert (error, num) == (pytest.approx(values.std(ddof=1) / math.sqrt(12)), 12)


def crossed(rng, num_runs=5, num_wordings=6, num_things=8, spread=(0.3, 0.5, 0.4, 1.0), truth=0.0, draw=None):
    """A contrast with effects of runs, wordings, things and cells; half of the cells of the grid."""
    draw = draw or (lambda size: rng.normal(size=size))
    run, wording, thing, cell = spread
    grid = [(w, t) for w in range(num_wordings) for t in range(num_things) if (w + t) % 2 == 0]
    w_C, t_C = (np.array(column) for column in zip(*grid, strict=True))
    fixed = wording * draw(num_wordings)[w_C] + thing * draw(num_things)[t_C] + cell * draw(w_C.size)
    noise = 0.3 * rng.normal(size=(w_C.size, num_runs))
    values = truth + fixed[:, None] + run * rng.normal(size=num_runs) + noise
    return RunsAndCells(values, w_C, t_C), truth + fixed.mean()


@pytest.mark.parametrize("level", LEVELS)
def test_both_intervals_by_hand(level):
    both, _ = crossed(np.random.default_rng(2))
    by_run = [sum(column) / len(column) for column in both.values_CS.T.tolist()]
    by_cell = [sum(row) / len(row) for row in both.values_CS.tolist()]
    value = sum(by_run) / 5
    run_error = math.sqrt(sum((x - value) ** 2 for x in by_run) / 4 / 5)
    errors = [(run_error, 5)] + [
        clustered_by_hand(by_cell, clusters.tolist()) for clusters in (both.wording_C, both.thing_C)
    ]
    halves = [stats.t.ppf((1 + level) / 2, n - 1) * error for error, n in errors]
    these, like = both.these_cells(level), both.requests_like_these(level)
    assert (these.value, these.hi - value) == pytest.approx((value, halves[0]))
    assert (like.lo, like.hi) == pytest.approx((value - math.hypot(*halves), value + math.hypot(*halves)))
    seen = [(stats.t.ppf((1 + level) / 2, n - 1) + stats.t.ppf(0.8, n - 1)) * error for error, n in errors]
    assert like.smallest_effect == pytest.approx(math.hypot(*seen))
    assert (like.n, like.unit, like.method) == (5 + 6 + 8, "run and wording and thing", "t, in quadrature")


def test_without_wordings_and_things_cells_are_the_units():
    both, _ = crossed(np.random.default_rng(3))
    cells = RunsAndCells(both.values_CS)
    by_cell = both.values_CS.mean(1)
    assert [noise.unit for noise in cells.noises] == ["run", "cell"]
    assert cells.noises[1].error == pytest.approx(by_cell.std(ddof=1) / math.sqrt(by_cell.size))
    assert [noise.unit for noise in both.noises] == ["run", "wording", "thing"]


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        (np.zeros((6, 4)), "every run came out alike"),
        (np.arange(6.0)[:, None] * np.ones(4), "every run came out alike"),
        (np.ones((6, 1)), "one run"),
        (np.ones((6, 1)) * np.arange(4.0), "every cell came out alike"),
    ],
)
def test_units_that_came_out_alike_say_nothing_of_others(values, missing):
    both = RunsAndCells(values)
    interval = both.requests_like_these()
    assert math.isnan(interval.lo)
    assert missing in interval.note
    assert math.isnan(both.p_value())
    assert math.isnan(both.these_cells().lo) == ("run" in missing)


@settings(deadline=None, max_examples=40)
@given(st.floats(-2, 2), st.floats(0.05, 1), st.floats(0.05, 1), st.integers(2, 9), st.integers(2, 60))
def test_p_is_the_level_at_which_the_interval_reaches_0(value, run, cell, num_runs, num_cells):
    noises = [Noise("run", run, num_runs), Noise("cell", cell, num_cells)]
    p = imprint.p_of(value, noises)
    if not 1e-9 < p < 0.999:
        return
    interval = imprint.in_quadrature(value, noises, level=1 - p)
    assert min(abs(interval.lo), abs(interval.hi)) == pytest.approx(0, abs=1e-6)
    at_95 = imprint.in_quadrature(value, noises)
    assert at_95.excludes(0) == (p < 0.05)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(-2, 2),
    st.floats(0.01, 1),
    st.integers(3, 20),
    st.floats(0.01, 1),
    st.integers(3, 60),
    st.floats(1, 3),
    st.booleans(),
)
def test_less_evidence_is_a_wider_interval_and_a_larger_p(value, run, num, cell, num_cells, times, first):
    noises = [Noise("run", run, num), Noise("cell", cell, num_cells)]
    index = 0 if first else 1
    noise = noises[index]
    for weaker in (
        Noise(noise.unit, times * noise.error, noise.n),
        Noise(noise.unit, noise.error, noise.n - 1),
    ):
        others = [weaker if position == index else each for position, each in enumerate(noises)]
        for level in LEVELS:
            whole, less = (imprint.in_quadrature(value, each, level=level) for each in (noises, others))
            assert less.lo <= whole.lo
            assert less.hi >= whole.hi
        assert imprint.p_of(value, others) >= imprint.p_of(value, noises) - 1e-9


def decided(value, noises, margin):
    at_90, at_95 = (imprint.in_quadrature(value, noises, level=level) for level in LEVELS)
    return max(-at_90.lo, at_90.hi) < margin or (abs(value) >= margin and at_95.excludes(0))


@pytest.mark.parametrize(("value", "margin"), [(0.1, 0.5), (0.0, 0.3), (0.9, 0.5), (-0.6, 0.5)])
def test_the_units_needed_settle_it_and_fewer_runs_do_not(value, margin):
    noises = [Noise("run", 0.4, 4), Noise("wording", 0.05, 40), Noise("thing", 0.03, 100)]
    runs, factor = imprint.units_needed(value, noises, margin)
    assert factor == 1.0

    def with_runs(num):
        return [Noise("run", 0.4 * math.sqrt(4 / num), num), *noises[1:]]

    assert decided(value, with_runs(runs), margin)
    assert not decided(value, with_runs(runs - 1), margin)
    # were requests the larger part, more of them are asked for, and suffice
    vague = [Noise("run", 0.1, 4), Noise("wording", 0.4, 40), Noise("thing", 0.3, 100)]
    runs, factor = imprint.units_needed(value, vague, margin)
    enough = [Noise("run", 0.1 * math.sqrt(4 / runs), runs)]
    enough += [Noise(n.unit, n.error / math.sqrt(factor), math.ceil(n.n * factor)) for n in vague[1:]]
    assert factor > 1
    assert decided(value, enough, margin)


def test_nothing_is_said_of_what_would_settle_it_without_scatter_to_go_by():
    for noises in (
        [Noise("run", 0.0, 4), Noise("cell", 0.1, 9)],
        [Noise("run", 0.1, 4), Noise("cell", 0.1, 1)],
    ):
        assert imprint.units_needed(0.1, noises, 0.5) is None
    # so close to the margin that a hundred thousand runs would not do
    assert imprint.units_needed(0.4999999, [Noise("run", 9.0, 4), Noise("cell", 0.1, 9)], 0.5) is None


def simulated(repeats, seed, **design):
    """Contrasts with their own runs, wordings, things and cells, and the truth on these cells."""
    rng = np.random.default_rng(seed)
    return [crossed(rng, **design) for _ in range(repeats)]


def coverage(drawn, truth=0.0):
    """Shares of intervals that hold the truth: of requests like these, of these cells, of cells as units."""
    like = np.mean([c.requests_like_these().lo <= truth <= c.requests_like_these().hi for c, _ in drawn])
    these = np.mean([c.these_cells().lo <= own <= c.these_cells().hi for c, own in drawn])
    naive = [RunsAndCells(c.values_CS).requests_like_these() for c, _ in drawn]
    return float(like), float(these), float(np.mean([each.lo <= truth <= each.hi for each in naive]))


def test_both_intervals_cover_and_cells_as_units_do_not():
    design = {"num_runs": 8, "num_wordings": 20, "num_things": 30, "spread": (0.1, 0.5, 0.5, 0.5)}
    like, these, naive = coverage(simulated(500, 4, **design))
    # 500 repeats: a standard error of one point at 95%
    assert like >= 0.93
    assert 0.92 <= these <= 0.98
    assert naive < 0.85


@pytest.mark.known
@pytest.mark.parametrize("num_runs", [3, 8])
@pytest.mark.parametrize(
    "spread", [(0.5, 0.0, 0.0, 1.0), (0.1, 0.5, 0.5, 0.5), (0.3, 0.8, 0.1, 0.1), (0.02, 0.1, 0.8, 0.2)]
)
def test_coverage_over_designs(num_runs, spread, capsys):
    design = {"num_runs": num_runs, "num_wordings": 40, "num_things": 50, "spread": spread}
    like, these, naive = coverage(simulated(1500, 5, **design))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{num_runs} runs, sd {spread}: like these {like:.3f}, these cells {these:.3f}, "
            f"cells as units {naive:.3f}\n"
        )
    assert like >= 0.94
    assert 0.935 <= these <= 0.965


@pytest.mark.known
def test_coverage_of_skewed_effects(capsys):
    """Wordings and things drawn from an exponential law less its mean, and few of them."""
    rng = np.random.default_rng(6)

    def skewed(size):
        return rng.exponential(size=size) - 1

    drawn = [
        crossed(rng, num_runs=8, num_wordings=40, num_things=50, spread=(0.02, 0.5, 0.5, 0.5), draw=skewed)
        for _ in range(1500)
    ]
    like, _, _ = coverage(drawn)
    with capsys.disabled():
        sys.stdout.write(f"\nskewed wordings and things, 8 runs: {like:.3f}\n")
    assert like >= 0.92


def shares(drawn, margin=0.2):
    """How often a difference, an equivalence and an effect on these cells are shown."""
    at_90 = [contrast.requests_like_these(0.9) for contrast, _ in drawn]
    at_95 = [contrast.requests_like_these() for contrast, _ in drawn]
    return (
        float(np.mean([each.excludes(0) for each in at_95])),
        float(np.mean([max(-each.lo, each.hi) < margin for each in at_90])),
    )


@pytest.mark.parametrize("num_runs", [3, 8])
def test_false_verdicts_are_at_most_one_in_twenty_and_right_ones_grow(num_runs):
    design = {"num_wordings": 20, "num_things": 20, "spread": (0.1, 0.2, 0.2, 0.3)}
    different, _ = shares(simulated(400, 7, num_runs=num_runs, **design))
    _, equivalent = shares(simulated(400, 8, num_runs=num_runs, truth=0.2, **design))
    # 400 repeats: 5% and two standard errors of 1.1 points
    assert different <= 0.07
    assert equivalent <= 0.07


def test_right_verdicts_grow_with_runs_and_requests():
    found = []
    for num_runs, side in itertools.product((3, 8), (10, 30)):
        design = {"num_runs": num_runs, "num_wordings": side, "num_things": side}
        spread = {"spread": (0.1, 0.2, 0.2, 0.3)}
        different, _ = shares(simulated(250, 9, truth=0.3, **design, **spread))
        _, equivalent = shares(simulated(250, 10, **design, **spread), margin=0.25)
        found.append((different, equivalent))
    by_design = dict(zip(itertools.product((3, 8), (10, 30)), found, strict=True))
    for index in (0, 1):
        assert by_design[3, 10][index] <= by_design[3, 30][index] <= by_design[8, 30][index]
        assert by_design[3, 10][index] <= by_design[8, 10][index] <= by_design[8, 30][index]
        assert by_design[8, 30][index] > 0.8


def test_the_smallest_effect_is_found_in_four_of_five_repeats():
    design = {"num_runs": 8, "num_wordings": 20, "num_things": 20, "spread": (0.2, 0.2, 0.2, 0.2)}
    effect = np.mean([c.requests_like_these().smallest_effect for c, _ in simulated(100, 11, **design)])
    different, _ = shares(simulated(400, 12, truth=float(effect), **design))
    # the double count of what is left in a cell makes the interval wide, and the power no smaller
    assert 0.76 <= different <= 0.97

"""Events chosen by three cells: false signs where cells are additive, the temperature control, the fit."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stemmatics.math.factorial import Cells
from stemmatics.math.intervals import Interval
from stemmatics.math.three_cells import (
    FEWEST_PROMPTS,
    path_losses,
    prompts_needed,
    rescaled_interaction,
    sign_of,
)

# a prompt's path, and the vocabulary
LENGTH, IDS = 6, 30


def interval(value, half, n=50, level=0.95):
    return Interval(value, value - half, value + half, level, "t", n, "prompt", math.nan, math.nan)


def logits(rng, num_prompts, *, late=1.0, early=1.0, own=0.5, shared=0.0, sharp=1.0, tail=0.0, extra=0.0):
    """Logits of the four cells [4, Q, T, V]: additive effects, and what else may be there.

    ``own`` is noise of the fourth cell alone, ``shared`` noise of each cell, ``sharp`` multiplies the
    fourth cell, ``extra`` is an interaction along the sum of both effects.
    """
    shape = (num_prompts, LENGTH, IDS)

    def draw(size):
        return size * (rng.standard_t(tail, shape) if tail else rng.normal(size=shape))

    base, by_late, by_early = draw(2.0), draw(late), draw(early)
    both = sharp * (base + (1 + extra) * (by_late + by_early) + draw(own) + draw(shared))
    return np.stack(
        [base + draw(shared), base + by_late + draw(shared), base + by_early + draw(shared), both]
    )


def events(cells, chosen):
    """Margins at the first position whose most probable id in ``chosen`` is not the base's, by loops."""
    found, index = [], []
    for prompt in range(cells.shape[1]):
        for position in range(LENGTH):
            first, second = (int(z[prompt, position].argmax()) for z in (cells[0], chosen))
            if first != second:
                found.append([z[prompt, position, second] - z[prompt, position, first] for z in cells])
                index.append(prompt)
                break
    return Cells(*np.array(found).T), np.array(index)


def products(cells):
    """<z_dd, a> and <a, a> of every prompt, centred and weighted by the base's probabilities."""
    base, late, early, fourth = cells
    weight = np.exp(base - base.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    a, d = ((z - (weight * z).sum(-1, keepdims=True)) for z in (late + early - base, fourth))
    return (weight * d * a).sum((1, 2)), (weight * a * a).sum((1, 2))


def mean_interval(values, level=0.95):
    """A t interval: the quick one, for thousands of sets."""
    from stemmatics.math.intervals import t_interval

    return t_interval(values, level=level, unit="prompt")


def rates(num_sets, num_prompts=50, seed=0, **law):
    """Shares of sets that are called positive and negative, and whose published interval is above 0."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(3)
    for _ in range(num_sets):
        cells = logits(rng, num_prompts, **law)
        main, _ = events(cells, cells[1] + cells[2] - cells[0])
        first, _ = events(cells, cells[3])
        sign = sign_of(mean_interval(main.interactions), mean_interval(first.interactions, 0.99))
        above = mean_interval(first.interactions).lo > 0
        counts += [sign == "positive", sign == "negative", above]
    return counts / num_sets


ADDITIVE = {
    "equal": {},
    "doubled": {"late": 2.0},
    "doubled the other way": {"early": 2.0},
    "noisy": {"own": 1.0},
    "noise of every cell": {"shared": 0.5},
    "mostly noise": {"late": 0.5, "early": 0.5, "own": 0.0, "shared": 1.0},
    "heavy tails": {"tail": 4},
}


@pytest.mark.known
@pytest.mark.parametrize("law", ADDITIVE)
def test_additive_cells_are_called_either_way_in_at_most_5_percent(law):
    positive, negative, _ = rates(400, seed=3, **ADDITIVE[law])
    # 5% and two standard errors of 400 sets
    assert positive + negative <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_additive_cells_are_called_either_way_in_at_most_5_percent_quickly():
    for law in ("equal", "doubled", "noise of every cell"):
        positive, negative, published = rates(60, seed=1, **ADDITIVE[law])
        assert positive + negative <= 4 / 60
        # what the selection by the natural cells would say of the same additive cells
        if law == "equal":
            assert published > 0.8


def test_an_interaction_that_is_there_is_called_more_often_with_more_prompts():
    few, many = (rates(40, num_prompts=n, extra=0.15)[0] for n in (25, 100))
    assert many > 0.9 > few
    against = rates(40, num_prompts=200, extra=-0.5)
    assert against[1] > 0.9
    assert against[0] == 0


def rescaled_rates(num_sets, num_prompts=50, seed=5, **law):
    rng = np.random.default_rng(seed)
    above = plain = 0
    factors = []
    for _ in range(num_sets):
        cells = logits(rng, num_prompts, **law)
        at, index = events(cells, cells[1] + cells[2] - cells[0])
        fourth, square = products(cells)
        left = rescaled_interaction(at, index, fourth[index], square[index], rng=rng)
        above += left.interaction.lo > 0
        plain += mean_interval(at.interactions).lo > 0
        factors.append(left.inverse_temperature.value)
    return above / num_sets, plain / num_sets, float(np.mean(factors))


@pytest.mark.known
@pytest.mark.parametrize("sharp", [1.1, 1.25])
def test_a_sharper_descendant_alone_is_not_above_0_at_one_temperature(sharp):
    above, plain, factor = rescaled_rates(150, sharp=sharp)
    assert plain > 0.15
    assert above <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)
    assert factor == pytest.approx(1 / sharp, rel=0.02)


def test_a_temperature_leaves_what_is_not_a_temperature():
    above, _, _ = rescaled_rates(15, num_prompts=100, extra=0.4)
    assert above > 0.8
    above, plain, factor = rescaled_rates(15, sharp=1.25)
    assert plain > 0.5
    assert above <= 2 / 15
    assert factor == pytest.approx(0.8, rel=0.02)


def test_the_rescaled_interaction_is_the_formula():
    rng = np.random.default_rng(0)
    cells = Cells(*rng.normal(size=(4, 30)))
    fourth, square = rng.uniform(1, 2, size=(2, 30))
    found = rescaled_interaction(cells, np.arange(30), fourth, square, rng=rng)
    factor = math.fsum(square) / math.fsum(fourth)
    values = [
        factor * d - b - c + a
        for a, b, c, d in zip(
            cells.base_base_E,
            cells.base_descendant_E,
            cells.descendant_base_E,
            cells.descendant_descendant_E,
            strict=True,
        )
    ]
    assert found.inverse_temperature.value == pytest.approx(factor)
    assert found.interaction.value == pytest.approx(math.fsum(values) / 30)
    none = rescaled_interaction(Cells(*np.zeros((4, 0))), [], [], [], rng=rng)
    assert math.isnan(none.interaction.value)


SIGNS = [
    ((1.0, 0.9), (1.0, 0.5), "positive"),
    ((1.0, 1.1), (1.0, 0.5), "undetermined"),
    # the published support is not asked about a positive sign
    ((1.0, 0.9), (-1.0, 0.5), "positive"),
    ((-1.0, 0.9), (-1.0, 0.9), "negative"),
    ((-1.0, 0.9), (-1.0, 1.1), "undetermined"),
    ((-1.0, 0.9), (1.0, 0.5), "undetermined"),
    ((-1.0, 1.1), (-1.0, 0.5), "undetermined"),
]


@pytest.mark.parametrize(("main", "published", "sign"), SIGNS)
def test_signs(main, published, sign):
    ours, theirs = interval(*main), interval(*published, level=0.99)
    assert sign_of(ours, theirs) == sign
    # less evidence never adds or changes a sign
    for half in (1.0, 1.5, 4.0, math.nan):
        wider = interval(main[0], main[1] * half), interval(published[0], published[1] * half, level=0.99)
        for pair in ((wider[0], theirs), (ours, wider[1]), wider):
            assert sign_of(*pair) in {sign, "undetermined"}
    assert sign_of(replace(ours, n=FEWEST_PROMPTS - 1), theirs) == "undetermined"
    few = sign_of(ours, replace(theirs, n=FEWEST_PROMPTS - 1))
    assert few == ("positive" if sign == "positive" else "undetermined")


def test_prompts_needed_take_the_interval_off_0():
    # a half width of twice the mean needs four times the prompts
    assert prompts_needed(interval(1.0, 2.0, n=50)) == 200
    assert prompts_needed(interval(-1.0, 2.0, n=50)) == 200
    assert prompts_needed(interval(1.0, 0.1, n=50)) == FEWEST_PROMPTS
    assert math.isnan(prompts_needed(interval(0.0, 0.1)))
    assert math.isnan(prompts_needed(interval(1.0, math.nan)))


def nll(rng, means, num_prompts=40, spread=0.2):
    tokens = rng.integers(5, 40, size=num_prompts)
    return tokens[:, None] * (np.array(means) + spread * rng.normal(size=(num_prompts, 4))), tokens


def test_path_losses_are_ratios_of_sums():
    rng = np.random.default_rng(0)
    sums, tokens = nll(rng, (1.0, 2.0, 3.0, 4.0))
    found = path_losses(sums, tokens, rng=rng)
    for cell in range(4):
        assert found.cells[cell].value == pytest.approx(math.fsum(sums[:, cell]) / tokens.sum())
    for (hybrid, natural), excess in found.excess.items():
        expected = (math.fsum(sums[:, hybrid]) - math.fsum(sums[:, natural])) / tokens.sum()
        assert excess.value == pytest.approx(expected)
        assert (excess.n, excess.unit) == (40, "prompt")
    assert found.worse_natural == 3
    # copies of a prompt change nothing
    twice = path_losses(
        np.tile(sums, (2, 1)),
        np.tile(tokens, 2),
        rng=np.random.default_rng(0),
        prompts_E=np.tile(range(40), 2),
    )
    assert twice.cells[0].n == 40
    assert twice.excess[1, 3].value == pytest.approx(found.excess[1, 3].value)


FITS = [
    ((1.0, 1.5, 2.0, 2.5), "fit"),
    # within a nat of the worse natural cell, far from the better one
    ((1.0, 3.0, 3.2, 2.5), "fit"),
    ((1.0, 3.8, 2.0, 2.5), "do not fit"),
    ((1.0, 2.0, 3.8, 2.5), "do not fit"),
    ((2.5, 3.8, 2.0, 1.0), "do not fit"),
    ((1.0, 3.5, 2.0, 2.5), "undetermined"),
    ((1.0, 3.5, 3.5, 2.5), "undetermined"),
]


@pytest.mark.parametrize(("means", "fit"), FITS)
def test_whether_halves_fit(means, fit):
    rng = np.random.default_rng(1)
    sums, tokens = nll(rng, means)
    losses = path_losses(sums, tokens, rng=rng)
    assert losses.fit == fit
    few = path_losses(sums[: FEWEST_PROMPTS - 1], tokens[: FEWEST_PROMPTS - 1], rng=rng)
    assert few.fit == "undetermined"
    assert path_losses(np.zeros((0, 4)), [], rng=rng).fit == "undetermined"
    # wider intervals never add or change an answer
    for half in (2.0, 20.0):
        excess = {
            key: replace(
                one, lo=one.value - half * (one.value - one.lo), hi=one.value + half * (one.hi - one.value)
            )
            for key, one in losses.excess.items()
        }
        assert replace(losses, excess=excess).fit in {fit, "undetermined"}

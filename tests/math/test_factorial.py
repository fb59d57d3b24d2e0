"""The 2 x 2 against loops, and its intervals where the truth is known."""

import itertools
import math

import numpy as np
import pytest

from stemmatics.core.errors import UserError
from stemmatics.math.bootstrap import bootstrap_limits
from stemmatics.math.factorial import (
    Cells,
    event_mean,
    event_means,
    factorial,
    positive_share,
    profile,
    ratio_of_event_means,
    states_agree,
)
from stemmatics.math.rates import ratio_of_sums


def made_cells(num_events, seed=0, after_base=1.0, interaction=1.5):
    rng = np.random.default_rng(seed)
    base_base = rng.normal(-2, 1, num_events)
    desc_base = rng.normal(-1, 1, num_events)
    first = after_base + rng.exponential(1, num_events) - 1
    second = first + interaction + 0.5 * rng.standard_t(5, num_events)
    return Cells(base_base, base_base + first, desc_base, desc_base + second)


def loop_means(cells, pairs, families):
    """Mean over families of the mean over their pairs of the mean over a pair's events."""
    result = []
    for values in (cells.effects_after_base, cells.effects_after_descendant, cells.interactions):
        by_family = []
        for family in sorted(set(families)):
            own = sorted({p for p, f in zip(pairs, families, strict=True) if f == family})
            by_family.append(np.mean([values[np.array(pairs) == p].mean() for p in own]))
        result.append(np.mean(by_family))
    return result


def test_effects_are_the_differences_of_cells():
    cells = Cells(*(np.array([v]) for v in (1.0, 1.5, 3.0, 7.0)))
    assert cells.effects_after_base[0] == 0.5
    assert cells.effects_after_descendant[0] == 4.0
    assert cells.interactions[0] == 3.5
    with pytest.raises(UserError, match="four cells"):
        Cells(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(3))


def test_balanced_means_are_the_loops():
    cells = made_cells(60)
    pairs = ["p"] * 10 + ["q"] * 20 + ["r"] * 30
    families = ["x"] * 30 + ["y"] * 30
    prompts = [f"{k % 25}" for k in range(60)]
    result = factorial(cells, prompts, rng=np.random.default_rng(0), pairs_E=pairs, families_E=families)
    means = loop_means(cells, pairs, families)
    values = [
        e.interval.value
        for e in (result.effect_after_base, result.effect_after_descendant, result.interaction)
    ]
    assert values == pytest.approx(means, abs=1e-12)
    assert result.portable_share.value == pytest.approx(means[0] / means[1], abs=1e-12)
    assert (result.num_events, result.num_pairs, result.num_families) == (60, 3, 2)
    assert (result.interaction.interval.n, result.interaction.interval.unit) == (25, "prompt")
    assert result.interaction.interval.lo < means[2] < result.interaction.interval.hi
    between = result.between_families["interaction"]
    assert (between.value, between.n, between.note) == (pytest.approx(means[2]), 2, "few families")


def test_one_prompt_with_many_events_counts_once():
    cells = made_cells(200)
    alone = factorial(cells, np.arange(200), rng=np.random.default_rng(0)).interaction
    copies = Cells(*(np.tile(getattr(cells, name), 3) for name in Cells.__dataclass_fields__))
    tripled = factorial(copies, np.tile(np.arange(200), 3), rng=np.random.default_rng(0)).interaction
    assert tripled.interval.n == 200
    assert tripled.interval.lo == pytest.approx(alone.interval.lo, abs=1e-9)
    assert tripled.sign_flip.p_value == pytest.approx(alone.sign_flip.p_value, abs=0.002)


def test_the_sign_flip_is_exact_for_few_prompts():
    cells = made_cells(6, interaction=0.3)
    result = factorial(cells, np.arange(6), rng=np.random.default_rng(0)).interaction.sign_flip
    x = cells.interactions
    sums = [
        abs(sum(s * v for s, v in zip(signs, x, strict=True)))
        for signs in itertools.product([1, -1], repeat=6)
    ]
    assert result.exact
    assert result.p_value == pytest.approx(np.mean([s >= abs(x.sum()) - 1e-12 for s in sums]))
    assert result.smallest_p == 2 / 2**6
    many = factorial(made_cells(40), np.arange(40), rng=np.random.default_rng(0), num_flips=500)
    assert (many.interaction.sign_flip.exact, many.interaction.sign_flip.num_flips) == (False, 500)


def test_the_share_is_unknown_where_its_denominator_may_be_0():
    rng = np.random.default_rng(0)
    zero = np.zeros(60)
    cells = Cells(zero, rng.normal(1, 0.1, 60), zero, rng.normal(0, 1, 60))
    result = factorial(cells, np.arange(60), rng=rng)
    assert not result.effect_after_descendant.interval.excludes(0.0)
    assert math.isnan(result.portable_share.value)
    assert result.portable_share.note == "the denominator's interval includes 0"


def test_shares_may_pass_1_and_be_negative():
    zero = np.zeros(60)
    noise = np.random.default_rng(0).normal(0, 0.1, 60)
    above = factorial(Cells(zero, 2 + noise, zero, 1 - noise), np.arange(60), rng=np.random.default_rng(0))
    assert above.portable_share.value > 1.5
    below = factorial(Cells(zero, -1 + noise, zero, 1 - noise), np.arange(60), rng=np.random.default_rng(0))
    assert below.portable_share.value < -0.5


@pytest.mark.parametrize("num_events", [0, 1])
def test_no_event_and_one_event(num_events):
    cells = made_cells(num_events)
    result = factorial(cells, np.arange(num_events), rng=np.random.default_rng(0))
    assert math.isnan(result.interaction.interval.lo)
    assert math.isnan(result.portable_share.value)
    assert result.interaction.interval.note
    assert math.isnan(positive_share(cells.base_base_E[:0]).value)


def test_columns_must_match_and_a_pair_has_one_family():
    with pytest.raises(UserError, match="Every event has one"):
        factorial(made_cells(3), [1, 2], rng=np.random.default_rng(0))
    with pytest.raises(UserError, match="two families"):
        factorial(
            made_cells(2), [1, 2], rng=np.random.default_rng(0), pairs_E=["p", "p"], families_E=["x", "y"]
        )


def test_positive_share_and_degenerate_states():
    assert positive_share(np.array([1.0, 0.0, -1.0, 2.0])).value == 0.5
    base = np.array([1.0, 2.0])
    assert states_agree(Cells(base, base + 1, base, base + 1))
    assert not states_agree(Cells(base, base + 1, base, base + 1.5))
    assert not states_agree(Cells(*(np.zeros(0),) * 4))


def test_the_interval_is_the_default_one_for_a_mean():
    cells = made_cells(80)
    result = factorial(cells, np.arange(80), rng=np.random.default_rng(0)).interaction.interval
    assert result.method == "guarded bootstrap-t"
    x = cells.interactions
    reach = (
        1.990450 * x.std(ddof=1) / math.sqrt(80)
    )  # t_.975 at 79 degrees: each limit reaches at least so far
    assert result.lo <= x.mean() - reach + 1e-6
    assert result.hi >= x.mean() + reach - 1e-6
    assert result.hi - result.lo < 2 * reach * 1.25


def prompt_sets(rng, shape):
    """The law of ``made_cells``: skewed portable effects, heavy-tailed interactions."""
    first = 1.0 + rng.exponential(1, shape) - 1
    return first, first + 1.5 + 0.5 * rng.standard_t(5, shape)


def coverage(num_prompts, num_sets, num_resamples):
    """Of the interaction (truth 1.5) and of the portable share (truth 1 / 2.5)."""
    first, second = prompt_sets(np.random.default_rng(num_prompts), (num_prompts, num_sets))
    hits = []
    for top, bottom, truth in ((second - first, np.ones_like(first), 1.5), (first, second, 0.4)):
        limits = bootstrap_limits(
            np.stack([top, bottom], -1), ratio_of_sums, method="guarded bootstrap-t", level=0.95,
            num_resamples=num_resamples, rng=np.random.default_rng(7),
        )  # fmt: skip
        hits.append(float(np.mean((limits.lows <= truth) & (truth <= limits.highs))))
    return hits


@pytest.mark.known
@pytest.mark.parametrize("num_prompts", [50, 100, 200])
def test_prompt_intervals_cover_93_to_97(num_prompts):
    interaction, share = coverage(num_prompts, 2000, 4000)
    assert 0.93 <= interaction <= 0.97
    assert 0.93 <= share <= 0.97


def test_two_pairs_on_the_same_prompts_cover():
    """Prompts shared by pairs are resampled together; their effects are correlated here."""
    hits = 0
    for k in range(150):
        rng = np.random.default_rng(k)
        common = np.tile(rng.normal(0, 1, 50), 2)
        zero = np.zeros(100)
        cells = Cells(zero, zero, zero, 1.5 + common + 0.3 * rng.standard_normal(100))
        result = factorial(
            cells, np.tile(np.arange(50), 2), rng=rng, pairs_E=np.repeat(["p", "q"], 50),
            num_resamples=400, num_flips=10,
        ).interaction.interval  # fmt: skip
        hits += result.lo <= 1.5 <= result.hi
    assert 0.90 <= hits / 150 <= 0.99


def noisy_cells(rng, num_events, *, after_base, after_descendant, noise=0.5):
    base, other = rng.normal(size=(2, num_events))
    return Cells(
        base,
        base + after_base + noise * rng.normal(size=num_events),
        other,
        other + after_descendant + noise * rng.normal(size=num_events),
    )


def test_each_boundary_is_what_one_alone_would_be():
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(30), 2)
    cells = [noisy_cells(rng, 60, after_base=k, after_descendant=k + 1) for k in (1, 2, 3)]
    boundaries = profile(cells, prompts, rng=np.random.default_rng(1))
    for whole, at in zip(cells, boundaries, strict=True):
        effects = [
            [d - c for c, d in zip(whole.base_base_E, whole.base_descendant_E, strict=True)],
            [d - c for c, d in zip(whole.descendant_base_E, whole.descendant_descendant_E, strict=True)],
        ]
        means = [math.fsum(values) / 60 for values in effects]
        assert at.effect_after_base.value == pytest.approx(means[0], rel=1e-12)
        assert at.effect_after_descendant.value == pytest.approx(means[1], rel=1e-12)
        assert at.interaction.value == pytest.approx(means[1] - means[0], rel=1e-11)
        assert at.portable_share.value == pytest.approx(means[0] / means[1], rel=1e-12)
        assert (at.interaction.n, at.interaction.unit) == (30, "prompt")
        alone = factorial(whole, prompts, rng=np.random.default_rng(2))
        assert at.interaction.lo == pytest.approx(alone.interaction.interval.lo, abs=0.02)
        assert at.portable_share.hi == pytest.approx(alone.portable_share.hi, abs=0.02)


def test_a_share_of_nothing_is_not_known():
    rng = np.random.default_rng(0)
    nothing = noisy_cells(rng, 60, after_base=1, after_descendant=0)
    something = noisy_cells(rng, 60, after_base=1, after_descendant=2)
    first, second = profile([nothing, something], np.arange(60), rng=np.random.default_rng(1))
    assert math.isnan(first.portable_share.value)
    assert "includes 0" in first.portable_share.note
    assert second.portable_share.excludes(0.0)


def test_a_share_of_other_events_is_a_ratio_of_two_means():
    rng = np.random.default_rng(3)
    whole, whole_prompts = rng.normal(4, 1, size=50), np.arange(50)
    part, part_prompts = rng.normal(1, 1, size=40), np.arange(5, 45)
    share = ratio_of_event_means(part, part_prompts, whole, whole_prompts, rng=np.random.default_rng(0))
    mean_part, mean_whole = math.fsum(part) / 40, math.fsum(whole) / 50
    assert share.value == pytest.approx(mean_part / mean_whole, rel=1e-12)
    assert (share.n, share.unit) == (50, "prompt")
    same = ratio_of_event_means(whole, whole_prompts, whole, whole_prompts, rng=np.random.default_rng(0))
    assert (same.value, same.lo, same.hi) == pytest.approx((1, 1, 1), abs=1e-12)
    flat = ratio_of_event_means(
        part, part_prompts, whole - mean_whole, whole_prompts, rng=np.random.default_rng(0)
    )
    assert math.isnan(flat.value)
    none = ratio_of_event_means(np.zeros(0), np.zeros(0), whole, whole_prompts, rng=np.random.default_rng(0))
    assert math.isnan(none.value)


def test_the_share_of_a_control_covers_the_truth():
    """Half of the interaction, measured at other positions of the same prompts."""
    rng = np.random.default_rng(8)
    held = 0
    for _ in range(120):
        prompt = rng.normal(size=60)
        whole, part = 4 + prompt + rng.normal(size=60), 2 + 0.5 * prompt + rng.normal(size=60)
        share = ratio_of_event_means(part, np.arange(60), whole, np.arange(60), rng=rng)
        held += share.lo <= 0.5 <= share.hi
    # 95% nominal; three standard errors of 120 sets below it
    assert held >= 107


def test_means_over_events_have_prompts_as_units():
    """Six events of three prompts: the mean is over events, the interval over prompts, as the note says."""
    values_E2 = np.array([[1.0, 0], [2, 0], [4, 0], [8, 3], [16, 3], [32, 3]])
    prompts = np.array(["b", "a", "b", "c", "a", "a"])
    first, second = event_means(values_E2, prompts, rng=np.random.default_rng(0))
    assert (first.value, second.value) == (pytest.approx(63 / 6), pytest.approx(1.5))
    assert (first.n, first.unit) == (3, "prompt")
    assert first.note == "under 50 prompts: coverage may be under 93%"
    alone = event_mean(values_E2[:, 0], prompts, rng=np.random.default_rng(0))
    assert (alone.value, alone.lo, alone.hi) == (first.value, first.lo, first.hi)
    (none,) = event_means(np.zeros((0, 1)), [], rng=np.random.default_rng(0))
    assert math.isnan(none.value)
    assert none.note == "no events"


def test_prompts_that_pairs_share_are_called_prompts():
    cells = made_cells(20)
    found = factorial(
        cells, np.tile(np.arange(10), 2), rng=np.random.default_rng(0), pairs_E=np.repeat(["p", "q"], 10)
    )
    for interval in (found.interaction.interval, found.portable_share):
        assert (interval.n, interval.unit) == (10, "prompt")
        assert interval.note == "under 50 prompts: coverage may be under 93%"
    (boundary,) = profile([cells], np.tile(np.arange(10), 2), rng=np.random.default_rng(0))
    assert boundary.interaction.note == "under 50 prompts: coverage may be under 93%"


def test_a_table_with_known_truth():
    """Four prompts, all worked out by hand."""
    base_base = np.array([-3.0, -1.0, -2.0, -2.0])
    desc_base = np.array([1.0, 0.0, 2.0, -1.0])
    after_base = np.array([1.0, 2.0, 0.0, 3.0])
    after_descendant = np.array([4.0, 6.0, 5.0, 5.0])
    cells = Cells(base_base, base_base + after_base, desc_base, desc_base + after_descendant)
    found = factorial(cells, np.arange(4), rng=np.random.default_rng(0))
    assert found.effect_after_base.interval.value == pytest.approx(1.5)
    assert found.effect_after_descendant.interval.value == pytest.approx(5.0)
    assert found.interaction.interval.value == pytest.approx(3.5)
    assert found.portable_share.value == pytest.approx(0.3)
    # interactions 3, 4, 5, 2: only all signs alike reach the sum 14
    assert found.interaction.sign_flip.p_value == 2 / 16
    # effects after base 1, 2, 0, 3: the zero may have either sign
    assert found.effect_after_base.sign_flip.p_value == 4 / 16

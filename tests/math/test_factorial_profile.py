"""The profile and shares against plain loops, and a simulation with a known answer."""

import math

import numpy as np
import pytest

from stemmatics.math.factorial import Cells, factorial
from stemmatics.math.factorial_profile import profile, share_of


def make_cells(draw, num_events, *, after_base, after_descendant, noise=0.5):
    base, other = draw.normal(size=(2, num_events))
    return Cells(
        base,
        base + after_base + noise * draw.normal(size=num_events),
        other,
        other + after_descendant + noise * draw.normal(size=num_events),
    )


def test_each_boundary_is_what_one_alone_would_be():
    draw = np.random.default_rng(0)
    prompts = np.repeat(np.arange(30), 2)
    cells = [make_cells(draw, 60, after_base=k, after_descendant=k + 1) for k in (1, 2, 3)]
    result = profile(cells, prompts, rng=np.random.default_rng(1))
    for cell, at in zip(cells, result, strict=True):
        effects = [
            [d - c for c, d in zip(cell.base_base_E, cell.base_descendant_E, strict=True)],
            [d - c for c, d in zip(cell.descendant_base_E, cell.descendant_descendant_E, strict=True)],
        ]
        means = [math.fsum(values) / 60 for values in effects]
        assert at.effect_after_base.value == pytest.approx(means[0], rel=1e-12)
        assert at.effect_after_descendant.value == pytest.approx(means[1], rel=1e-12)
        assert at.interaction.value == pytest.approx(means[1] - means[0], rel=1e-11)
        assert at.portable_share.value == pytest.approx(means[0] / means[1], rel=1e-12)
        assert (at.interaction.n, at.interaction.unit) == (30, "prompt")
        alone = factorial(cell, prompts, rng=np.random.default_rng(2))
        assert at.interaction.lo == pytest.approx(alone.interaction.interval.lo, abs=0.02)
        assert at.portable_share.hi == pytest.approx(alone.portable_share.hi, abs=0.02)


def test_a_share_of_nothing_is_not_known():
    draw = np.random.default_rng(0)
    nothing = make_cells(draw, 60, after_base=1, after_descendant=0)
    something = make_cells(draw, 60, after_base=1, after_descendant=2)
    first, second = profile([nothing, something], np.arange(60), rng=np.random.default_rng(1))
    assert math.isnan(first.portable_share.value)
    assert "holds 0" in first.portable_share.note
    assert second.portable_share.excludes(0.0)


def test_a_share_of_other_events_is_a_ratio_of_two_means():
    draw = np.random.default_rng(3)
    whole, whole_prompts = draw.normal(4, 1, size=50), np.arange(50)
    part, part_prompts = draw.normal(1, 1, size=40), np.arange(5, 45)
    result = share_of(part, part_prompts, whole, whole_prompts, rng=np.random.default_rng(0))
    mean_part, mean_whole = math.fsum(part) / 40, math.fsum(whole) / 50
    assert result.value == pytest.approx(mean_part / mean_whole, rel=1e-12)
    assert (result.n, result.unit) == (50, "prompt")
    same = share_of(whole, whole_prompts, whole, whole_prompts, rng=np.random.default_rng(0))
    assert (same.value, same.lo, same.hi) == pytest.approx((1, 1, 1), abs=1e-12)
    flat = share_of(part, part_prompts, whole - mean_whole, whole_prompts, rng=np.random.default_rng(0))
    assert math.isnan(flat.value)
    none = share_of(np.zeros(0), np.zeros(0), whole, whole_prompts, rng=np.random.default_rng(0))
    assert math.isnan(none.value)


def test_the_share_of_a_control_covers_the_truth():
    """Half of the interaction, measured at other positions of the same prompts."""
    draw = np.random.default_rng(8)
    held = 0
    for _ in range(120):
        prompt = draw.normal(size=60)
        whole, part = 4 + prompt + draw.normal(size=60), 2 + 0.5 * prompt + draw.normal(size=60)
        result = share_of(part, np.arange(60), whole, np.arange(60), rng=draw)
        held += result.lo <= 0.5 <= result.hi
    # 95% nominal; three standard errors of 120 sets below it
    assert held >= 107

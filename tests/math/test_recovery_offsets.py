"""Offsets and error bars for a base that is not available, and the ladder."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from stemmatics.core.errors import UserError
from stemmatics.math.rates import paired_difference
from stemmatics.math.recovery import (
    Calibration,
    class_offset,
    conformal_bar,
    distillation_flag,
    ladder,
    nested_coverage,
    offset_for,
    own_pair_offset,
    pipeline_spread,
    unknown_base,
)


def calibration(residuals, families, classes=None, pipelines=None, labs=None):
    n = len(residuals)
    return Calibration(
        np.array(residuals),
        np.array(families),
        np.array(labs or families),
        np.array(["gen1"] * n),
        np.array(pipelines or families),
        np.array(classes or ["ordinary"] * n),
    )


def test_the_bar_is_the_order_statistic():
    errors = np.arange(1, 20) / 100
    assert conformal_bar(errors) == pytest.approx(0.18)  # ceil(20 * .9) = 18
    assert conformal_bar(np.arange(1, 10)) == 9  # ceil(10 * .9) = 9, not lifted to 10 by rounding
    assert conformal_bar(-np.arange(1.0, 10)) == 9
    assert math.isnan(conformal_bar(np.arange(1, 9)))
    assert math.isnan(conformal_bar([]))


def test_the_class_offset_is_the_loop_over_families():
    rng = np.random.default_rng(0)
    families = np.repeat(list("abcde"), [1, 2, 3, 4, 2])
    residuals = rng.normal(0.02, 0.01, families.size)
    result = class_offset(residuals, families)
    means = {f: residuals[families == f].mean() for f in "abcde"}
    assert result.value == pytest.approx(np.mean(list(means.values())), abs=1e-15)
    errors = [
        abs(r - np.mean([m for g, m in means.items() if g != f]))
        for r, f in zip(residuals, families, strict=True)
    ]
    assert result.bar == pytest.approx(sorted(errors)[math.ceil(13 * 0.9) - 1], abs=1e-15)
    assert math.isnan(class_offset(residuals[:8], families[:8]).bar)
    two = np.repeat(["a", "b"], 6)
    assert math.isnan(class_offset(residuals[:12], two).bar)
    assert "9 pairs or 3 families" in class_offset(residuals[:12], two).note
    assert math.isnan(class_offset(residuals[:0], families[:0]).value)


def test_pipeline_spread_is_pooled_within():
    spread, degrees = pipeline_spread(np.array([1.0, 3.0, 10.0, 10.0, 13.0, 5.0]), np.array(list("aabbbc")))
    assert (spread, degrees) == (pytest.approx(math.sqrt((2 + 6) / 3)), 3)
    assert pipeline_spread(np.array([1.0]), np.array(["a"]))[1] == 0


def test_the_first_rule_that_applies_gives_the_offset():
    families = np.repeat(list("abcdef"), 2)
    residuals = 0.02 + 0.001 * np.arange(12)
    known = calibration(residuals, families)
    own = offset_for(known, lab="a", generation="gen1", recipe_class="ordinary")
    spread, degrees = pipeline_spread(known.residual_N, known.pipeline_N)
    assert (own.source, own.num_pairs, own.value) == ("own pair", 2, pytest.approx(0.0205))
    assert own.bar == pytest.approx(stats.t.ppf(0.95, degrees) * spread * math.sqrt(1.5))
    # another generation never carries over
    of_class = offset_for(known, lab="a", generation="gen2", recipe_class="ordinary")
    assert (of_class.source, of_class.num_pairs, of_class.num_families) == ("class", 12, 6)
    pooled = offset_for(known, lab="z", generation="gen1", recipe_class="rlvr")
    assert (pooled.source, pooled.value) == ("all pipelines", of_class.value)
    # ordinary pairs say nothing of a distilled release
    distilled = offset_for(known, lab="z", generation="gen1", recipe_class="distilled")
    assert (distilled.source, distilled.value, distilled.bar) == (
        "published default", pytest.approx(0.045), pytest.approx(0.015),
    )  # fmt: skip
    assert "not measured" in distilled.note
    few = offset_for(calibration([0.02], ["a"]), lab="z", generation="gen1", recipe_class="ordinary")
    assert (few.source, few.value, few.bar) == (
        "published default",
        pytest.approx(0.01525),
        pytest.approx(0.01475),
    )
    vague = offset_for(calibration([0.02], ["a"]), lab="z", generation="gen1", recipe_class="merge")
    assert (vague.value - vague.bar, vague.value + vague.bar) == (pytest.approx(0.0005), pytest.approx(0.06))


def test_an_own_pair_without_any_spread_gives_way():
    known = calibration([0.02], ["a"])
    own = own_pair_offset(known, "a", "gen1")
    assert math.isnan(own.bar)
    assert "two releases" in own.note
    assert (
        offset_for(known, lab="a", generation="gen1", recipe_class="ordinary").source == "published default"
    )
    assert own_pair_offset(known, "b", "gen1") is None


def test_the_document_part_adds_in_quadrature():
    offset = offset_for(calibration([0.02], ["a"]), lab="z", generation="g", recipe_class="distilled")
    result = unknown_base(0.9, offset, 0.02)
    assert (result.value, result.bar) == (pytest.approx(0.855), pytest.approx(0.025))


def test_calibration_columns_must_match():
    with pytest.raises(UserError, match="calibration columns"):
        Calibration(*(np.zeros(n) for n in (2, 2, 2, 2, 2, 3)))


def test_nested_coverage_builds_the_bar_without_the_family():
    rng = np.random.default_rng(0)
    families = np.repeat([f"f{i}" for i in range(8)], 3)
    residuals = rng.normal(0.02, 0.005, 24)
    result = nested_coverage(residuals, families)
    for name in ("f0", "f5"):
        out = families == name
        of_others = class_offset(residuals[~out], families[~out])
        assert result.bar_N[out] == pytest.approx(of_others.bar)
        assert result.error_N[out] == pytest.approx(residuals[out] - of_others.value)
    assert result.covered == np.mean(np.abs(result.error_N) <= result.bar_N)
    # one family far away is covered by no bar that the others give
    residuals[:3] += 1.0
    assert nested_coverage(residuals, families).covered <= 21 / 24
    assert math.isnan(nested_coverage(residuals[:6], families[:6]).covered)


def test_nested_coverage_keeps_its_level_for_exchangeable_families():
    rng = np.random.default_rng(1)
    families = np.arange(20).astype(str)
    covered = [nested_coverage(rng.normal(0.02, 0.01, 20), families).covered for _ in range(300)]
    assert 0.87 <= np.mean(covered) <= 0.95


def test_the_distillation_flag_is_judged_on_left_out_families():
    families = np.array([f"f{i}" for i in range(12)])
    distilled = np.arange(12) >= 6
    drop = np.where(distilled, 0.2, 0.05) + 0.001 * np.arange(12)
    result = distillation_flag(drop, distilled, families)
    assert 0.055 < result.threshold < 0.206
    assert (result.sensitivity, result.specificity, result.num_distilled, result.num_other) == (1, 1, 6, 6)
    # the one that looks unlike its class is missed when its family is left out, but not learned away
    drop[11] = 0.01
    result = distillation_flag(drop, distilled, families)
    assert (result.sensitivity, result.specificity) == (5 / 6, 1)
    alone = distillation_flag(drop, np.zeros(12, dtype=bool), families)
    assert math.isnan(alone.threshold)
    assert math.isnan(alone.sensitivity)


def ladder_sums(num_documents=60):
    rng = np.random.default_rng(0)
    num_bytes = rng.integers(200, 2000, num_documents).astype(float)
    shared = rng.normal(0.7, 0.1, num_documents)
    levels = np.array([0.05, 0.0, 0.0004, 0.1])
    rates = shared[:, None] + levels + 0.01 * rng.standard_normal((num_documents, 4))
    return rates * num_bytes[:, None], num_bytes


def test_the_ladder_orders_joins_and_lists_reversals():
    nll, num_bytes = ladder_sums()
    result = ladder(
        ["c", "a", "b", "d"], nll, num_bytes, rng=np.random.default_rng(0),
        native_loss_M=[0.9, 1.0, 0.95, 1.1], num_resamples=500,
    )  # fmt: skip
    assert [result.names[m] for m in result.order[2:]] == ["c", "d"]
    assert {result.names[m] for m in result.order[:2]} == {"a", "b"}
    assert sorted(map(sorted, result.groups)) == [[0], [1, 2], [3]]
    assert {(result.names[r.lower], result.names[r.higher]) for r in result.reversals} >= {
        ("c", "a"),
        ("c", "b"),
    }
    for i, j in itertools.combinations(range(4), 2):
        alone = paired_difference(nll[:, i], nll[:, j], num_bytes, rng=np.random.default_rng(1))
        assert result.differences[i, j].value == pytest.approx(alone.value, abs=1e-12)
    assert result.rebased[0].value == pytest.approx(nll[:, 0].sum() / num_bytes.sum())
    assert -1 <= result.kendall <= 1


def test_a_ladder_of_one_model_without_native_losses():
    nll, num_bytes = ladder_sums()
    result = ladder(["a"], nll[:, :1], num_bytes, rng=np.random.default_rng(0), num_resamples=100)
    assert (result.order, result.groups, result.reversals) == ((0,), ((0,),), ())
    assert math.isnan(result.kendall)
    with pytest.raises(UserError, match="every document"):
        ladder(["a", "b"], nll[:, :1], num_bytes, rng=np.random.default_rng(0))

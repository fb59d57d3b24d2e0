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
    distillation_flag,
    ladder,
    nested_coverage,
    offset_for,
    own_pair_offset,
    pipeline_spread,
    weighted_bar,
)
from stemmatics.math.recovery.offsets import coverage_by_family


def calibration(residuals, families, classes=None, pipelines=None, labs=None, generations=None):
    n = len(residuals)
    return Calibration(
        np.array(residuals),
        np.array(families),
        np.array(labs or families),
        np.array(generations or ["gen1"] * n),
        np.array(pipelines or families),
        np.array(classes or ["ordinary"] * n),
    )


def offset(known, *, lab="z", generation="gen1", pipeline="new", recipe_class="ordinary"):
    return offset_for(known, lab=lab, generation=generation, pipeline=pipeline, recipe_class=recipe_class)


def test_the_bar_is_the_smallest_error_at_which_the_weights_reach_nine_tenths():
    # a pair a family: the weights are 1 / (F + 1), so it is the ceil(.9 (F + 1))-th smallest
    errors = np.arange(1, 20) / 100
    names = [f"f{number}" for number in range(19)]
    assert weighted_bar(errors, names) == pytest.approx(0.18)
    assert weighted_bar(-errors[::-1], names) == pytest.approx(0.18)
    # nine families: the largest error seen; eight: none
    assert weighted_bar(np.arange(1.0, 10), names[:9]) == 9
    assert math.isnan(weighted_bar(np.arange(1.0, 9), names[:8]))
    assert math.isnan(weighted_bar([], []))


def test_the_bar_is_the_loop_over_weights():
    rng = np.random.default_rng(3)
    families = np.repeat([f"f{number}" for number in range(12)], rng.integers(1, 5, 12))
    errors = rng.normal(0, 0.01, families.size)
    weights = {name: 1 / ((families == name).sum() * 13) for name in set(families)}
    reached = [
        sum(weights[g] for e, g in zip(errors, families, strict=True) if abs(e) <= abs(error))
        for error in errors
    ]
    expected = min(abs(error) for error, weight in zip(errors, reached, strict=True) if weight >= 0.9 - 1e-12)
    assert weighted_bar(errors, families) == expected


def test_copies_of_a_family_s_pairs_change_no_bar():
    rng = np.random.default_rng(4)
    families = np.array([f"f{number}" for number in range(10)])
    residuals = rng.normal(0.02, 0.01, 10)
    once = class_offset(residuals, families)
    twice = class_offset(np.concatenate([residuals, residuals]), np.concatenate([families, families]))
    assert (twice.value, twice.bar) == (pytest.approx(once.value), pytest.approx(once.bar))


def test_the_class_offset_is_the_loop_over_families():
    rng = np.random.default_rng(0)
    names = "abcdefghij"
    families = np.repeat(list(names), [1, 2, 3, 4, 2, 1, 1, 2, 3, 1])
    residuals = rng.normal(0.02, 0.01, families.size)
    result = class_offset(residuals, families)
    means = {f: residuals[families == f].mean() for f in names}
    assert result.value == pytest.approx(np.mean(list(means.values())), abs=1e-15)
    errors = [
        abs(r - np.mean([m for g, m in means.items() if g != f]))
        for r, f in zip(residuals, families, strict=True)
    ]
    assert result.bar == pytest.approx(weighted_bar(errors, families), abs=1e-15)
    few = families < "i"
    assert math.isnan(class_offset(residuals[few], families[few]).bar)
    assert "under 9 families" in class_offset(residuals[few], families[few]).note
    assert math.isnan(class_offset(residuals[:0], families[:0]).value)


def test_pipeline_spread_is_pooled_within_a_lab_s_pipeline_of_one_generation_and_class():
    known = calibration([1.0, 3.0, 10.0, 10.0, 13.0, 5.0], list("aabbbc"))
    spread, degrees = pipeline_spread(known)
    assert (spread, degrees) == (pytest.approx(math.sqrt((2 + 6) / 3)), 3)
    assert pipeline_spread(calibration([1.0], ["a"]))[1] == 0
    assert pipeline_spread(calibration([], []))[1] == 0
    # one name at two labs, in two generations or classes is not one pipeline
    for apart in (
        {"labs": ["x", "y"]},
        {"labs": ["x", "x"], "generations": ["v1", "v2"]},
        {"labs": ["x", "x"], "classes": ["ordinary", "distilled"]},
    ):
        assert pipeline_spread(calibration([1.0, 3.0], ["a", "b"], pipelines=["p", "p"], **apart))[1] == 0


def test_the_first_rule_that_applies_gives_the_offset():
    families = np.repeat(list("abcdefghi"), 2)
    residuals = 0.02 + 0.001 * np.arange(18)
    known = calibration(residuals, families)
    own = offset(known, lab="a", pipeline="a")
    spread, degrees = pipeline_spread(known)
    assert (own.source, own.num_pairs, own.value) == ("own pair", 2, pytest.approx(0.0205))
    assert own.bar == pytest.approx(stats.t.ppf(0.95, degrees) * spread * math.sqrt(1.5))
    # another generation or pipeline never carries over
    for other in ({"generation": "gen2", "pipeline": "a"}, {"pipeline": "b"}):
        of_class = offset(known, lab="a", **other)
        assert (of_class.source, of_class.num_pairs, of_class.num_families) == ("class", 18, 9)
    # one lab with nine families of the class is enough for its own
    of_lab = offset(calibration(residuals, families, labs=["a"] * 18), lab="a")
    assert (of_lab.source, of_lab.value) == ("lab and class", of_class.value)


def test_no_class_takes_the_pairs_of_another():
    families = np.repeat(list("abcdefghi"), 2)
    known = calibration(0.02 + 0.001 * np.arange(18), families)
    distilled = offset(known, recipe_class="distilled")
    assert (distilled.source, distilled.value, distilled.bar) == (
        "published default", pytest.approx(0.045), pytest.approx(0.015),
    )  # fmt: skip
    assert "not measured" in distilled.note
    # even where lab, generation and pipeline are the same
    assert offset(known, lab="a", pipeline="a", recipe_class="distilled").source == "published default"
    few = offset(calibration([0.02], ["a"]))
    assert (few.source, few.value, few.bar) == (
        "published default",
        pytest.approx(0.01525),
        pytest.approx(0.01475),
    )
    vague = offset(calibration([0.02], ["a"]), recipe_class="merge")
    assert (vague.value - vague.bar, vague.value + vague.bar) == (pytest.approx(0.0005), pytest.approx(0.06))


def test_a_class_of_which_nothing_was_published_takes_the_range_seen():
    known = calibration([0.08, -0.01], ["a", "b"], ["merge", "merge"])
    result = offset(known, recipe_class="merge")
    assert (result.source, result.value - result.bar, result.value + result.bar) == (
        "range seen", pytest.approx(-0.01), pytest.approx(0.08),
    )  # fmt: skip
    assert "no bar of a known level" in result.note


def test_residuals_outside_the_published_range_are_said_beside_it():
    inside = offset(calibration([0.02], ["a"]))
    outside = offset(calibration([0.02, 0.09], ["a", "b"]))
    assert (inside.source, inside.value, inside.bar) == (outside.source, outside.value, outside.bar)
    assert "lie outside it" in outside.note
    assert "lie outside it" not in inside.note


def test_an_undeclared_class_gets_the_widest():
    families = [f"f{number}" for number in range(20)]
    classes = ["ordinary"] * 10 + ["distilled"] * 10
    residuals = np.concatenate([np.linspace(0.01, 0.02, 10), np.linspace(0.04, 0.06, 10)])
    known = calibration(residuals, families, classes)
    unknown = offset(known, recipe_class="unknown")
    assert unknown.source == "all pipelines"
    for recipe_class in ("ordinary", "distilled"):
        of_class = offset(known, recipe_class=recipe_class)
        assert of_class.source == "class"
        assert of_class.bar < unknown.bar
    # a pool without distilled releases says nothing about one that may be
    ordinary = offset(calibration(residuals[:10], families[:10]), recipe_class="unknown")
    assert (ordinary.source, ordinary.bar) == ("published default", pytest.approx(0.02975))
    # and its own pair is of a class that nobody declared
    assert offset(known, lab="f0", pipeline="f0", recipe_class="unknown").source == "all pipelines"


def test_an_own_pair_without_any_spread_gives_way():
    known = calibration([0.02], ["a"])
    own = own_pair_offset(known, lab="a", generation="gen1", pipeline="a", recipe_class="ordinary")
    assert math.isnan(own.bar)
    assert "two releases" in own.note
    assert offset(known, lab="a", pipeline="a").source == "published default"
    assert own_pair_offset(known, lab="b", generation="gen1", pipeline="a", recipe_class="ordinary") is None


def test_calibration_columns_must_match():
    with pytest.raises(UserError, match="calibration columns"):
        Calibration(*(np.zeros(n) for n in (2, 2, 2, 2, 2, 3)))


def test_nested_coverage_applies_the_rule_without_the_family():
    rng = np.random.default_rng(0)
    families = np.repeat([f"f{i}" for i in range(11)], 3)
    residuals = rng.normal(0.02, 0.005, 33)
    result = nested_coverage(calibration(residuals, families))
    assert set(result.source_N) == {"class"}
    for name in ("f0", "f5"):
        out = families == name
        of_others = class_offset(residuals[~out], families[~out])
        assert result.bar_N[out] == pytest.approx(of_others.bar)
        assert result.error_N[out] == pytest.approx(residuals[out] - of_others.value)
    assert (result.is_covered == (np.abs(result.error_N) <= result.bar_N)).all()
    # one family far away is covered by no bar that the others give
    residuals[:3] += 1.0
    assert not nested_coverage(calibration(residuals, families)).is_covered[:3].any()
    # nine families leave eight: what is applied then is no bar of these pairs
    assert set(nested_coverage(calibration(residuals[3:30], families[3:30])).source_N) == {
        "published default"
    }


def test_nested_coverage_keeps_classes_apart():
    families = [f"f{i}" for i in range(20)]
    residuals = np.concatenate([np.linspace(0.010, 0.012, 10), np.linspace(0.050, 0.052, 10)])
    result = nested_coverage(calibration(residuals, families, ["ordinary"] * 10 + ["distilled"] * 10))
    assert (np.abs(result.error_N) < 0.003).all()
    assert (result.bar_N < 0.003).all()


@pytest.mark.parametrize("num_families", [10, 20])
def test_nested_coverage_keeps_its_level_with_scatter_between_families(num_families):
    """Two pairs a family, most of the scatter between families: nominal 90 holds 88 or more."""
    rng = np.random.default_rng(num_families)
    families = np.repeat([f"f{number}" for number in range(num_families)], 2)
    covered = []
    for _ in range(100):
        shared = np.repeat(rng.normal(0.02, 0.008, num_families), 2)
        known = calibration(shared + rng.normal(0, 0.003, families.size), families)
        covered.append(nested_coverage(known).is_covered.mean())
    assert 0.88 <= np.mean(covered) <= 0.99


def test_coverage_counts_families_and_not_pairs():
    covered = np.array([True] * 9 + [False])
    alone = coverage_by_family(covered, np.array(list("abcdefghij")))
    assert (alone.value, alone.n, alone.unit) == (pytest.approx(0.9), 10, "family")
    proportion = stats.binomtest(9, 10).proportion_ci(0.95, method="wilson")
    assert (alone.lo, alone.hi) == (pytest.approx(proportion.low), pytest.approx(proportion.high))
    # ten pairs in each family are ten times the pairs and no more families
    many = coverage_by_family(np.repeat(covered, 10), np.repeat(list("abcdefghij"), 10))
    assert (many.value, many.lo, many.hi) == pytest.approx((alone.value, alone.lo, alone.hi))
    # all covered is not certainty
    assert coverage_by_family(covered[:9], np.array(list("abcdefghi"))).lo < 0.75
    assert math.isnan(coverage_by_family(covered[:0], np.array([])).value)


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
    assert result.is_tried
    limits = {"above": (0.17, 0.19), "below": (0.02, 0.04), "across": (0.01, 0.19)}
    assert {name: result.says(*both) for name, both in limits.items()} == {
        "above": "flagged", "below": "not flagged", "across": "undetermined",
    }  # fmt: skip
    alone = distillation_flag(drop, np.zeros(12, dtype=bool), families)
    assert alone.says(10.0, 11.0) == "undetermined"
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


def test_an_estimated_base_is_ranked_and_tied_with_its_bar():
    nll, num_bytes = ladder_sums()
    names, rng = ["c", "a", "b", "d"], np.random.default_rng(0)
    settings = {"num_resamples": 500}
    plain = ladder(names, nll, num_bytes, rng=rng, **settings)
    # d stands for its base, a tenth below: it comes to lie near a and b
    exact = ladder(names, nll, num_bytes, rng=np.random.default_rng(0), offset_M=[0, 0, 0, 0.08], **settings)
    assert plain.order[-1] == 3
    assert [names[m] for m in exact.order[2:]] == ["d", "c"]
    assert exact.differences == plain.differences
    assert exact.gaps[1, 3].value == pytest.approx(plain.differences[1, 3].value - 0.08)
    assert (exact.gaps[1, 3].hi - exact.gaps[1, 3].lo) == pytest.approx(
        plain.differences[1, 3].hi - plain.differences[1, 3].lo
    )
    assert [3] in [sorted(group) for group in exact.groups]
    # with a bar it can be told from none
    barred = ladder(
        names, nll, num_bytes, rng=np.random.default_rng(0), offset_M=[0, 0, 0, 0.08], bar_M=[0, 0, 0, 0.2],
        **settings,
    )  # fmt: skip
    gap, difference = barred.gaps[1, 3], plain.differences[1, 3]
    assert gap.value - gap.lo == pytest.approx(math.hypot(difference.value - difference.lo, 0.2))
    assert all(any(3 in group and m in group for group in barred.groups) for m in range(3))
    # run noise widens every gap alike
    noisy = ladder(
        names, nll, num_bytes, rng=np.random.default_rng(0),
        run_half_widths=dict.fromkeys(itertools.combinations(range(4), 2), 0.5), **settings,
    )  # fmt: skip
    assert [sorted(group) for group in noisy.groups] == [[0, 1, 2, 3]]
    assert noisy.differences == plain.differences


def test_a_ladder_of_one_model_without_native_losses():
    nll, num_bytes = ladder_sums()
    result = ladder(["a"], nll[:, :1], num_bytes, rng=np.random.default_rng(0), num_resamples=100)
    assert (result.order, result.groups, result.reversals) == ((0,), ((0,),), ())
    assert math.isnan(result.kendall)
    with pytest.raises(UserError, match="every document"):
        ladder(["a", "b"], nll[:, :1], num_bytes, rng=np.random.default_rng(0))

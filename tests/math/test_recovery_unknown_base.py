"""Estimates for models with an unknown base; error bars with known truth."""

import math

import numpy as np
import pytest
from scipy import stats

from stemmatics.math.recovery.offsets import class_offset, left_out_errors, weighted_bar
from stemmatics.math.recovery.unknown_base import (
    Origin,
    base_estimate,
    calibration,
    estimate_base,
    not_used,
    offset_of,
    offset_rule,
    recipe_class_of,
)


def origin(family, *, lab="a", generation="v1", pipeline="p", recipe_class="ordinary"):
    return Origin(family, lab, generation, pipeline, recipe_class)


def documents(rng, loss, num_documents=200):
    num_bytes = rng.integers(200, 900, num_documents).astype(float)
    nll = num_bytes * (loss + rng.normal(0, 0.1, num_documents))
    return nll, num_bytes, np.arange(num_documents).astype(str)


def test_one_bar_is_the_offset_s_alone_and_the_other_has_the_documents_in_quadrature():
    rng = np.random.default_rng(0)
    known = calibration([0.02, 0.03, 0.9], [origin("x"), origin("y"), origin("z", lab="b", pipeline="q")])
    nll, num_bytes, groups = documents(rng, 1.0)
    result = estimate_base(nll, num_bytes, groups, known, origin("new"))
    assert result.offset.source == "own pair"
    assert result.value == pytest.approx(nll.sum() / num_bytes.sum() - 0.025, abs=1e-12)
    assert result.half_width == result.offset.bar
    # by brute force: the jackknife of the ratio, t at 90%, and the offset's own bar
    n = len(nll)
    left_out = (nll.sum() - nll) / (num_bytes.sum() - num_bytes)
    error = math.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    half = stats.t.ppf(0.95, n - 1) * error
    assert result.half_width_elsewhere == pytest.approx(math.hypot(result.offset.bar, half), rel=1e-9)


def test_a_table_without_documents_has_no_second_bar():
    known = calibration([0.02, 0.03], [origin("x"), origin("y")])
    result = base_estimate(1.0, offset_of(known, origin("new")))
    assert result.half_width > 0
    assert math.isnan(result.half_width_elsewhere)


def test_another_generation_is_not_used_and_named():
    rows = [origin("x", generation="v1"), origin("y", generation="v1")]
    known = calibration([0.02, 0.03], rows)
    new = origin("new", generation="v2")
    result = estimate_base(*documents(np.random.default_rng(1), 1.0), known, new)
    assert result.offset.source == "published default"
    reason = "the lab's pairs of v1 are of another generation"
    assert not_used(known, new, result.offset) == reason
    assert offset_rule(result.offset, reason) == f"published default ({reason})"
    own = offset_of(known, origin("new"))
    assert (own.source, not_used(known, origin("new"), own)) == ("own pair", "")


def test_undeclared_origins_match_no_other_model():
    first, second = (Origin.of(name, name, {"regime": "sft"}) for name in ("m", "n"))
    assert (first.lab, first.generation, first.pipeline) != (second.lab, second.generation, second.pipeline)


@pytest.mark.parametrize(
    ("regime", "recipe_class"),
    [
        (None, "unknown"),
        ("distill", "distilled"),
        ("sft", "ordinary"),
        ("dpo", "ordinary"),
        ("rlvr", "ordinary"),
        ("cpt", "cpt"),
        ("merge", "merge"),
    ],
)
def test_a_class_is_what_was_declared(regime, recipe_class):
    assert recipe_class_of(regime) == recipe_class
    assert Origin.of("d", "d", {"regime": regime}).recipe_class == recipe_class


def test_a_lab_s_ordinary_and_distilled_releases_never_share_an_offset():
    """A lab with instruct residuals of .0098 to .0103 and distilled ones of .0500 to .0503."""
    residuals = [0.0098, 0.0100, 0.0103, 0.0500, 0.0502, 0.0503]
    rows = [origin(f"f{number}", pipeline="instruct") for number in range(3)]
    rows += [origin(f"g{number}", pipeline="reason", recipe_class="distilled") for number in range(3)]
    known = calibration(residuals, rows)
    ordinary = offset_of(known, origin("new", pipeline="instruct"))
    distilled = offset_of(known, origin("new", pipeline="reason", recipe_class="distilled"))
    assert ordinary.value == pytest.approx(np.mean(residuals[:3]))
    assert distilled.value == pytest.approx(np.mean(residuals[3:]))
    assert max(ordinary.bar, distilled.bar) < 0.002
    # another pipeline of the lab takes neither, nor does one whose regime nobody declared
    other = offset_of(known, origin("new", pipeline="chat"))
    assert other.source == "published default"
    undeclared = offset_of(known, origin("new", pipeline="instruct", recipe_class="unknown"))
    assert undeclared.source == "published default"
    assert (undeclared.value - undeclared.bar, undeclared.value + undeclared.bar) == pytest.approx(
        (0.0005, 0.06)
    )


def simulated(rng, num_families, between, within, tails):
    """Residuals of one to four pairs a family, and of a random pair of a new family."""

    def draw(size):
        if tails == "normal":
            return rng.standard_normal(size)
        return rng.standard_t(3, size) / math.sqrt(3)

    sizes = rng.integers(1, 5, num_families + 1)
    families = np.repeat(np.arange(num_families + 1), sizes)
    residual = 0.015 + np.repeat(between * draw(num_families + 1), sizes) + within * draw(sizes.sum())
    new = families == num_families
    return residual[~new], families[~new].astype(str), residual[new][0]


@pytest.mark.parametrize("num_families", [9, 12, 20])
@pytest.mark.parametrize(
    ("between", "within", "tails"),
    [(0.004, 0.003, "normal"), (0.008, 0.0005, "normal"), (0.0005, 0.008, "normal"), (0.004, 0.003, "heavy")],
)
def test_a_weighted_bar_covers_a_random_pair_of_a_new_family(num_families, between, within, tails):
    """Nominal 90%: at least 88, whatever the split of the scatter between and within families."""
    rng = np.random.default_rng([num_families, int(1e4 * between), len(tails)])
    held = []
    for _ in range(600):
        residual, families, new = simulated(rng, num_families, between, within, tails)
        offset = class_offset(residual, families)
        held.append(abs(new - offset.value) <= offset.bar)
    assert 0.88 <= np.mean(held) <= 0.995


def test_pairs_treated_as_exchangeable_would_not_cover():
    """The rule that this one replaced: an order statistic of all pairs' errors, from few families."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(600):
        residual, families, new = simulated(rng, 4, 0.008, 0.001, "normal")
        if residual.size < 9:
            continue
        errors = np.sort(np.abs(left_out_errors(residual, families, np.ones((1, residual.size)))[0]))
        bar = errors[min(residual.size, math.ceil((residual.size + 1) * 0.9)) - 1]
        held.append(abs(new - class_offset(residual, families).value) <= bar)
        # and the weighted rule gives none at all
        assert math.isnan(weighted_bar(errors, families))
    assert np.mean(held) < 0.88

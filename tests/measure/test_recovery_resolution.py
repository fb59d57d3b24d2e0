"""How finely recovered losses tell bases apart: misorder, coverage, left-out bases, flags, size."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.measure.recovery_by_hand import BYTES, make_study, pairs_study, results_of

from stemmatics.measure.recovery.pairs import read_pairs, run_noise
from stemmatics.measure.recovery.resolution import resolution_estimates, size_estimates


def resolution_of(study):
    return results_of(
        resolution_estimates(study.arms.pinned, study.losses(), study.arms.pairs, np.random.default_rng(0))
    )


def test_misordered_pairs_are_counted_by_band_of_the_true_gap():
    # bases at 1.000, 1.010, 1.035, 1.200; their descendants at 1.020, 1.015, 1.035, 1.030
    study = pairs_study(
        {"a": [0.020], "b": [0.005], "c": [0.0], "d": [-0.170]},
        bases={"a": 1.000, "b": 1.010, "c": 1.035, "d": 1.200},
    )
    found = resolution_of(study)
    shares = {each.subject["band"]: each.value for each in found.all("recovery.misorder")}
    counts = {each.subject["band"]: each.value for each in found.all("recovery.misorder.pairs")}
    # a and b, 0.010 apart, are misordered; c is 0.035 and 0.025 from them; d is above all, its
    # descendant below that of c; no two bases are 0.04 to 0.08 apart
    assert shares == pytest.approx({"0 to 0.02": 1.0, "0.02 to 0.04": 0.0, "0.08 and more": 1 / 3})
    assert counts == {"0 to 0.02": 1, "0.02 to 0.04": 2, "0.08 and more": 3}


def test_gap_errors_and_offsets_are_those_of_the_residuals():
    study = pairs_study({"a": [0.01, 0.05], "b": [0.02]}, bases={"a": 1.0, "b": 1.1})
    found = resolution_of(study)
    # |0.01 - 0.02| and |0.05 - 0.02|: 95% of the way from the one to the other
    assert found.only("recovery.resolution.delta95").value == pytest.approx(0.01 + 0.95 * 0.02)
    # errors 0.01 - 0.02, 0.05 - 0.02 and 0.02 - 0.03 in size .01, .01, .03: the 90th percentile
    assert found.only("recovery.resolution.lofo90").value == pytest.approx(0.01 + 0.8 * 0.02)
    assert found.only("recovery.resolution.offset").value == pytest.approx((0.03 + 0.02) / 2)
    assert found.only("recovery.resolution.mean_residual").value == pytest.approx(0.08 / 3)
    siblings = found.only("recovery.siblings", base="b-a")
    assert (siblings.value, siblings.n) == (pytest.approx(0.04), 2)
    assert found.find("recovery.siblings", base="b-b") is None
    assert found.only("recovery.resolution.sibling_spread").value == pytest.approx(0.04)


def test_one_pair_resolves_nothing():
    assert len(resolution_of(pairs_study({"a": [0.01]}, bases={"a": 1.0}))) == 0


# Three descendants a family. Without A the offset is (.01 + .02 + .10) / 3 and the bar, the largest error
# among the others, .085; without B .04 and .09; without C .11 / 3 and .095; without D .01 and .015.
RESIDUALS = {"a": [0.00] * 3, "b": [0.01] * 3, "c": [0.02] * 3, "d": [0.10] * 3}
BASES = {"a": 1.00, "b": 1.10, "c": 1.20, "d": 1.08}
OFFSETS = {"a": 0.13 / 3, "b": 0.04, "c": 0.11 / 3, "d": 0.01}
BARS = {"a": 0.085, "b": 0.09, "c": 0.095, "d": 0.015}


def test_coverage_is_that_of_bars_built_without_the_family():
    coverage = resolution_of(pairs_study(RESIDUALS, bases=BASES)).only("recovery.resolution.coverage")
    # the bar of the others covers A, B and C, and not the .09 of D
    assert (coverage.value, coverage.n) == (pytest.approx(9 / 12), 12)


def test_coverage_is_unknown_where_no_family_leaves_enough_pairs():
    few = {name: own[:2] for name, own in RESIDUALS.items()}
    found = resolution_of(pairs_study(few, bases=BASES))
    coverage = found.only("recovery.resolution.coverage")
    assert math.isnan(coverage.value)
    assert "too few" in coverage.note
    assert found.find("recovery.left_out") is None


def test_a_known_base_is_estimated_with_the_offset_and_bar_of_the_others():
    found = resolution_of(pairs_study(RESIDUALS, bases=BASES))
    for family, base in BASES.items():
        estimated = found.only("recovery.left_out", descendant=f"d-{family}-0")
        value = base + RESIDUALS[family][0] - OFFSETS[family]
        assert estimated.value == pytest.approx(value)
        # documents are all alike
        assert estimated.hi - estimated.value == pytest.approx(BARS[family])
        assert estimated.value - estimated.lo == pytest.approx(BARS[family])
        assert estimated.subject["base"] == f"b-{family}"


def test_two_bases_are_told_apart_where_their_gap_exceeds_both_bars_in_quadrature():
    """Estimates .9567, 1.0700, 1.1833 and 1.1700 of A, B, C and D.

    A and B are .1133 apart: more than either bar (.085 and .09), less than both (.1238). B and C are .1133
    apart (.1309), C and D .0133 (.0962). A and C, A and D, and B and D exceed both bars, B and D in the
    wrong order.
    """
    found = resolution_of(pairs_study(RESIDUALS, bases=BASES))
    counts = {name: found.only(f"recovery.left_out.{name}").value for name in ("total", "apart", "right")}
    assert counts == {"total": 6 * 9, "apart": 3 * 9, "right": 2 * 9}


# nats by document 60, -60, 60, -60: nothing over all, and its 90% half width by jackknife over documents of
# 100, 200, 300, 400 bytes
SCATTER_N = np.array([60, -60, 60, -60]) / np.array(BYTES)
LEFT_OUT_N = np.array([-60 / 900, 60 / 800, -60 / 700, 60 / 600])
HALF_WIDTH = stats.t.ppf(0.95, 3) * math.sqrt(3 / 4 * ((LEFT_OUT_N - LEFT_OUT_N.mean()) ** 2).sum())


def test_noise_that_documents_share_blurs_each_base_and_no_comparison():
    found = resolution_of(pairs_study(RESIDUALS, bases=BASES, hard=SCATTER_N))
    for family, base in BASES.items():
        estimated = found.only("recovery.left_out", descendant=f"d-{family}-0")
        assert estimated.value == pytest.approx(base + RESIDUALS[family][0] - OFFSETS[family])
        assert estimated.hi - estimated.value == pytest.approx(math.hypot(BARS[family], HALF_WIDTH))
    assert found.only("recovery.left_out.apart").value == 3 * 9


def test_document_noise_of_the_difference_blurs_the_comparison():
    study = pairs_study(RESIDUALS, bases=BASES)
    for number in range(3):
        study.add_arm(f"d-c-{number}", [1.22 + SCATTER_N])
    # A and C, .2267 apart, are no longer told apart: .34 of documents beside the bars
    assert resolution_of(study).only("recovery.left_out.apart").value == 2 * 9


def test_a_drop_flags_distilled_releases_judged_by_the_other_families():
    drops = {"a": 0.10, "b": 0.45, "c": 0.50, "d": 0.60, "e": 0.11}
    checkpoints = {}
    for family in drops:
        checkpoints[f"b-{family}"] = {"regime": "base", "family": family}
        regime = "distill" if family in "cd" else "sft"
        checkpoints[f"d-{family}"] = {"base": f"b-{family}", "regime": regime}
    study = make_study(checkpoints)
    for family, drop in drops.items():
        study.add_arm(f"b-{family}", [1.0])
        study.add_arm(f"d-{family}", [1.1], native=1.1 + drop)
    found = resolution_of(study)
    flag = {
        name: found.only(f"recovery.distilled.{name}") for name in ("threshold", "sensitivity", "specificity")
    }
    # between .45 and .50; without b the threshold is .30, which flags b; without c .525, which misses c
    assert {name: each.value for name, each in flag.items()} == pytest.approx(
        {"threshold": 0.475, "sensitivity": 1 / 2, "specificity": 2 / 3}
    )
    assert [each.n for each in flag.values()] == [5, 2, 3]


def test_no_flag_without_both_kinds_of_release():
    found = resolution_of(pairs_study({"a": [0.01], "b": [0.02]}, bases={"a": 1.0, "b": 1.1}))
    assert found.find("recovery.distilled.threshold") is None


def size_study(sizes):
    checkpoints = {}
    for number in range(len(sizes)):
        checkpoints[f"b{number}"] = {"regime": "base"}
        checkpoints[f"d{number}"] = {"base": f"b{number}", "regime": "sft", "pipeline": "p"}
    study = make_study(checkpoints)
    for number, size in enumerate(sizes):
        study.add_arm(f"b{number}", [1.0])
        study.add_arm(f"d{number}", [1.03 - 0.01 * number], num_parameters=size)
    losses = study.losses()
    pairs = read_pairs(losses, study.arms.pairs, run_noise(losses), np.random.default_rng(0))
    return results_of(size_estimates(study.arms, losses, pairs, study))


def test_the_residual_falls_by_its_slope_for_a_tenfold_size():
    slope = size_study([10**6, 10**7, 10**8]).only("recovery.size", pipeline="p")
    assert slope.value == pytest.approx(-0.01)
    assert slope.units == "nats/byte per tenfold size"


def test_two_pairs_or_one_size_have_no_slope():
    assert len(size_study([10**6, 10**7])) == 0
    assert len(size_study([10**6] * 3)) == 0

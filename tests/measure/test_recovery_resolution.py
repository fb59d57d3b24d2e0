"""How finely recovered losses tell bases apart: misorder, coverage, left-out bases, flags, size."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from tests.measure.recovery_by_hand import BYTES, make_study, pairs_study, results_of

from stemmatics.measure.recovery.distilled import distilled_results
from stemmatics.measure.recovery.offsets import known_pairs
from stemmatics.measure.recovery.pairs import read_pairs, run_noise
from stemmatics.measure.recovery.resolution import resolution_estimates, size_estimates


def resolution_of(study):
    losses, pairs, known, _ = parts_of(study)
    return results_of(resolution_estimates(study.arms.pinned, losses, pairs, known, np.random.default_rng(0)))


def parts_of(study):
    losses = study.losses()
    noise = run_noise(losses)
    pairs = read_pairs(losses, study.arms.pairs, noise, np.random.default_rng(0))
    return losses, list(pairs), known_pairs(study.arms.pinned, pairs, []), noise


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


# Ten families; the last one's residual is far from the others, .000 to .008. Without a family f of the nine,
# the offset is the mean of the others and the bar the largest left-out error among them: nine families.
NAMES = "abcdefghij"
RESIDUALS = {name: [0.001 * number] for number, name in enumerate(NAMES)} | {"j": [0.10]}
BASES = {name: 1.0 + 0.05 * number for number, name in enumerate(NAMES)} | {"j": 1.02}


def rule_by_hand(left_out):
    """Offset and bar from the other families, as loops."""
    others = {name: own[0] for name, own in RESIDUALS.items() if name != left_out}
    errors = [
        abs(own - np.mean([other for third, other in others.items() if third != name]))
        for name, own in others.items()
    ]
    return np.mean(list(others.values())), max(errors)


def test_coverage_is_that_of_bars_built_without_the_family_by_class_and_rule():
    found = resolution_of(pairs_study(RESIDUALS, bases=BASES))
    coverage = found.only("recovery.resolution.coverage")
    held = [abs(own[0] - rule_by_hand(name)[0]) <= rule_by_hand(name)[1] for name, own in RESIDUALS.items()]
    # the bar of the others covers all but the one far away
    assert coverage.value == pytest.approx(np.mean(held)) == pytest.approx(0.9)
    assert (coverage.n, coverage.unit, coverage.note) == (10, "family", "")
    assert (coverage.subject["recipe_class"], coverage.subject["rule"]) == ("ordinary", "class")
    assert found.only("recovery.resolution.coverage.pairs").value == 10


def test_what_is_applied_under_ten_families_is_no_bar_of_these_pairs():
    few = {name: RESIDUALS[name] for name in NAMES[:9]}
    found = resolution_of(pairs_study(few, bases=BASES))
    coverage = found.only("recovery.resolution.coverage")
    assert coverage.subject["rule"] == "published default"
    assert "too few families" in coverage.note
    assert found.find("recovery.left_out") is None


def test_a_known_base_is_estimated_with_the_offset_and_bar_of_the_others():
    found = resolution_of(pairs_study(RESIDUALS, bases=BASES))
    for family, base in BASES.items():
        offset, bar = rule_by_hand(family)
        estimated = found.only("recovery.left_out", descendant=f"d-{family}-0")
        assert estimated.value == pytest.approx(base + RESIDUALS[family][0] - offset)
        assert estimated.hi - estimated.value == pytest.approx(bar)
        assert estimated.value - estimated.lo == pytest.approx(bar)
        assert estimated.subject["base"] == f"b-{family}"


def apart_by_hand(paired):
    """Pairs told apart, and those in the right order; ``paired`` is the document half width of a gap."""
    values = {name: base + RESIDUALS[name][0] - rule_by_hand(name)[0] for name, base in BASES.items()}
    apart = right = 0
    for one, other in itertools.combinations(NAMES, 2):
        gap = values[other] - values[one]
        if abs(gap) > math.hypot(rule_by_hand(one)[1], rule_by_hand(other)[1], paired(one, other)):
            apart += 1
            right += gap * (BASES[other] - BASES[one]) > 0
    return {"total": 45, "apart": apart, "right": right}


def counts_of(found):
    return {name: found.only(f"recovery.left_out.{name}").value for name in ("total", "apart", "right")}


def test_two_bases_are_told_apart_where_their_gap_exceeds_both_bars_in_quadrature():
    counts = counts_of(resolution_of(pairs_study(RESIDUALS, bases=BASES)))
    assert counts == apart_by_hand(lambda *_: 0.0)
    # not all are told apart
    assert 0 < counts["right"] <= counts["apart"] < counts["total"]


# nats by document 60, -60, 60, -60: nothing over all, and its 90% half width by jackknife over documents of
# 100, 200, 300, 400 bytes
SCATTER_N = np.array([60, -60, 60, -60]) / np.array(BYTES)
LEFT_OUT_N = np.array([-60 / 900, 60 / 800, -60 / 700, 60 / 600])
HALF_WIDTH = stats.t.ppf(0.95, 3) * math.sqrt(3 / 4 * ((LEFT_OUT_N - LEFT_OUT_N.mean()) ** 2).sum())


def test_noise_that_documents_share_blurs_no_base_on_this_text_and_no_comparison():
    found = resolution_of(pairs_study(RESIDUALS, bases=BASES, hard=SCATTER_N))
    for family in BASES:
        estimated = found.only("recovery.left_out", descendant=f"d-{family}-0")
        assert estimated.hi - estimated.value == pytest.approx(rule_by_hand(family)[1])
    assert counts_of(found) == apart_by_hand(lambda *_: 0.0)


def test_document_noise_of_the_difference_blurs_the_comparison():
    study = pairs_study(RESIDUALS, bases=BASES)
    study.add_arm("d-c-0", [BASES["c"] + RESIDUALS["c"][0] + SCATTER_N])
    counts = counts_of(resolution_of(study))
    assert counts == apart_by_hand(lambda one, other: HALF_WIDTH if "c" in {one, other} else 0.0)
    assert counts["apart"] < apart_by_hand(lambda *_: 0.0)["apart"]


def flags_of(study):
    losses, pairs, _, noise = parts_of(study)
    return results_of(distilled_results(study.arms, losses, pairs, noise, np.random.default_rng(0)))


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
    found = flags_of(study)
    flag = {
        name: found.only(f"recovery.distilled.{name}") for name in ("threshold", "sensitivity", "specificity")
    }
    # between .45 and .50; without b the threshold is .30, which flags b; without c .525, which misses c
    assert {name: each.value for name, each in flag.items()} == pytest.approx(
        {"threshold": 0.475, "sensitivity": 1 / 2, "specificity": 2 / 3}
    )
    assert [each.n for each in flag.values()] == [5, 2, 3]


@pytest.mark.parametrize(
    ("drop", "word"), [(0.70, "flagged"), (0.10, "not flagged"), (0.475 + SCATTER_N, "undetermined")]
)
def test_a_model_of_unknown_base_is_flagged_by_its_whole_drop(drop, word):
    drops = {"a": 0.10, "b": 0.45, "c": 0.50, "d": 0.60, "e": 0.11}
    checkpoints = {"loose": {"regime": "sft"}}
    for family in drops:
        checkpoints[f"b-{family}"] = {"regime": "base", "family": family}
        checkpoints[f"d-{family}"] = {"base": f"b-{family}", "regime": "distill" if family in "cd" else "sft"}
    study = make_study(checkpoints)
    study.add_arm("loose", [1.0], native=1.0 + drop)
    for family, own in drops.items():
        study.add_arm(f"b-{family}", [1.0])
        study.add_arm(f"d-{family}", [1.1], native=1.1 + own)
    flag = flags_of(study).category("recovery.distilled.flag", checkpoint="loose")
    assert flag.value == word
    assert flag.reason == ("the interval of its drop holds the threshold" if word == "undetermined" else "")


def test_no_flag_without_both_kinds_of_release():
    found = flags_of(pairs_study({"a": [0.01], "b": [0.02]}, bases={"a": 1.0, "b": 1.1}))
    assert len(found) == 0


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

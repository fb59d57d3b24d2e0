"""The ladder: ranks, bases that are estimated, ties, steps and reversals."""

import numpy as np
import pytest
from tests.measure.recovery_by_hand import make_study, results_of

from stemmatics.math.recovery import calibration
from stemmatics.measure.recovery.ladder import ladder_results, letters
from stemmatics.measure.recovery.offsets import unknown_bases
from stemmatics.measure.recovery.pairs import run_noise

NO_PAIRS = calibration([], [])
# the middle of the published range of ordinary residuals, and of distilled ones
ORDINARY, DISTILLED = 0.01525, 0.045


def ladder_of(study, known=NO_PAIRS):
    losses = study.losses()
    unknown = unknown_bases(study.arms, losses, known)
    noise = run_noise(losses)
    return results_of(ladder_results(study.arms.pinned, losses, unknown, noise, np.random.default_rng(0)))


def ranks(found):
    return {each.subject["checkpoint"]: int(each.value) for each in found.all("recovery.rank")}


def test_models_are_ranked_by_their_loss_after_the_fine_tune():
    study = make_study({name: {"regime": "base"} for name in ("a", "b", "c")})
    study.add_arm("a", [1.3], native=1.0)
    study.add_arm("b", [1.1], native=1.2)
    study.add_arm("c", [1.2], native=1.4)
    found = ladder_of(study)
    assert ranks(found) == {"b": 1, "c": 2, "a": 3}
    assert found.only("recovery.native", checkpoint="c").value == pytest.approx(1.4)
    steps = {
        (each.subject["lower"], each.subject["higher"]): each.value for each in found.all("recovery.step")
    }
    assert steps == pytest.approx({("b", "c"): 0.1, ("c", "a"): 0.1})


def test_a_model_without_its_base_is_ranked_by_the_estimated_loss_of_that_base():
    study = make_study(
        {
            "low": {"regime": "base"},
            "high": {"regime": "base"},
            "sft": {"regime": "sft"},
            "distilled": {"regime": "distill"},
        }
    )
    study.add_arm("low", [1.00])
    study.add_arm("high", [1.03])
    # above both bases as they are, between them less the offset
    study.add_arm("sft", [1.04])
    # above all as it is, below all less its larger offset
    study.add_arm("distilled", [1.042])
    found = ladder_of(study)
    assert ranks(found) == {"distilled": 1, "low": 2, "sft": 3, "high": 4}
    estimated = found.only("recovery.estimated_base", checkpoint="sft")
    assert estimated.value == pytest.approx(1.04 - ORDINARY)
    # documents are all alike: the bar is half of the published range
    assert (estimated.lo, estimated.hi) == pytest.approx((1.04 - 0.03, 1.04 - 0.0005))
    assert estimated.level == 0.9
    assert found.only("recovery.estimated_base", checkpoint="distilled").value == pytest.approx(
        1.042 - DISTILLED
    )
    assert found.only("recovery.offset", checkpoint="distilled").value == pytest.approx(DISTILLED)
    assert {rule.subject["checkpoint"]: rule.value for rule in found.categories("recovery.rule")} == {
        "sft": "published default",
        "distilled": "published default",
    }
    assert found.find("recovery.estimated_base", checkpoint="low") is None


def test_checkpoints_that_cannot_be_distinguished_share_a_letter():
    """High is above low in every document; middle scatters about both."""
    study = make_study(
        {name: {"regime": "base"} for name in ("far", "high", "low", "middle")}, num_bytes=[100] * 40
    )
    scatter_N = np.tile([-0.1, 0.1], 20)
    study.add_arm("low", [1.00])
    study.add_arm("middle", [1.02 + scatter_N])
    study.add_arm("high", [1.04])
    study.add_arm("far", [1.50])
    found = ladder_of(study)
    ties = {tie.subject["checkpoint"]: tie for tie in found.categories("recovery.tie")}
    assert {name: tie.value for name, tie in ties.items()} == {"low": "a", "middle": "a b", "high": "b"}
    assert ties["low"].reason == "cannot be distinguished from middle"
    assert ties["middle"].reason == "cannot be distinguished from high, low"


def test_no_ties_no_letters():
    study = make_study({name: {"regime": "base"} for name in ("a", "b")})
    study.add_arm("a", [1.0])
    study.add_arm("b", [1.1])
    assert ladder_of(study).categories("recovery.tie") == []


def test_groups_are_named_by_letters():
    assert [letters(number) for number in (0, 1, 25, 26, 27, 701, 702)] == [
        "a", "b", "z", "aa", "ab", "zz", "aaa",
    ]  # fmt: skip


def test_pairs_in_the_opposite_order_are_listed_with_both_gaps():
    study = make_study({name: {"regime": "base"} for name in ("c", "a", "b")})
    study.add_arm("a", [1.2], native=1.00)
    study.add_arm("b", [1.1], native=1.05)
    study.add_arm("c", [1.3], native=1.50)
    found = ladder_of(study)
    assert found.only("recovery.reversals").value == 1
    pair = {"lower": "a", "higher": "b"}
    # second less first: native b is higher, after the fine-tune lower
    assert found.only("recovery.reversal.native", **pair).value == pytest.approx(0.05)
    assert found.only("recovery.reversal", **pair).value == pytest.approx(-0.1)


def test_the_orders_agree_by_rank_correlation():
    study = make_study(
        {name: {"regime": "base"} for name in "abcd"}, registers=["prose", "code", "prose", "code"]
    )
    native, rebased = (
        dict(zip("abcd", (1, 2, 3, 4), strict=True)),
        dict(zip("abcd", (1, 3, 2, 4), strict=True)),
    )
    for name in "abcd":
        study.add_arm(name, [1 + rebased[name] / 10], native=1 + native[name] / 10)
    found = ladder_of(study)
    # one neighbouring swap of four: 1 - 6 x 2 / (4 x 15), and (5 - 1) / 6
    assert found.only("recovery.order.spearman").value == pytest.approx(0.8)
    assert found.only("recovery.order.kendall").value == pytest.approx(2 / 3)
    by_registers = {rho.subject["registers"]: rho.value for rho in found.all("recovery.order.registers")}
    assert by_registers == pytest.approx({"1": 0.8, "2": 0.8})


def test_two_models_have_no_rank_correlation():
    study = make_study({name: {"regime": "base"} for name in "ab"})
    study.add_arm("a", [1.0])
    study.add_arm("b", [1.1])
    assert ladder_of(study).find("recovery.order.spearman") is None


def tied(found):
    return {tie.subject["checkpoint"]: set(tie.value.split()) for tie in found.categories("recovery.tie")}


def test_an_estimated_base_is_tied_by_its_bar():
    """Documents are all alike, so that only bars and run noise can tie."""
    study = make_study({"low": {"regime": "base"}, "high": {"regime": "base"}, "sft": {"regime": "sft"}})
    study.add_arm("low", [1.00])
    study.add_arm("high", [1.03])
    # its base is estimated at 1.0248 with a bar of .0148: high lies within it, low does not
    study.add_arm("sft", [1.04])
    found = ladder_of(study)
    assert tied(found) == {"sft": {"a"}, "high": {"a"}}
    step = found.only("recovery.step", lower="sft", higher="high")
    assert step.hi - step.value == pytest.approx((0.03 - 0.0005) / 2)
    assert step.level == 0.9


def test_models_that_runs_could_have_ordered_otherwise_are_tied():
    study = make_study({name: {"regime": "base"} for name in "ab"}, runs=2)
    study.add_arm("a", [0.95, 1.05])
    study.add_arm("b", [1.00, 1.10])
    assert set(tied(ladder_of(study))) == {"a", "b"}
    steady = make_study({name: {"regime": "base"} for name in "ab"}, runs=2)
    steady.add_arm("a", [0.9999, 1.0001])
    steady.add_arm("b", [1.0499, 1.0501])
    assert tied(ladder_of(steady)) == {}

"""Deviations, imprints and equivalence on made answers whose truth is known."""

import itertools
import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import binomtest

from stemmatics.core.facts import Fact
from stemmatics.math.seeds import crossed_prompts_seeds
from stemmatics.measure.imprint.contrasts import (
    Contrasts,
    _over_runs,
    over_prompts_and_runs,
    run_verdict,
    verdict,
)
from stemmatics.measure.imprint.needs import ImprintSettings, Place, Tree, nodes
from stemmatics.measure.imprint.nodes import Answers, Strands

ENDS = ("dpo", "grpo")


def strand(name):
    return {"window": name, "sft": f"{name}-sft", "ends": {end: f"{name}-{end}" for end in ENDS}}


def settings(branches=("generic", "safety"), runs=3, margin=0.05, **tree):
    declared = {name: [strand(f"{name}-{run}") for run in range(runs)] for name in branches}
    return ImprintSettings.model_validate(
        {
            "trees": {"first": {"fork": "fork", "control": "generic", "branches": declared, **tree}},
            "refusal": "requests",
            "margin": margin,
        }
    )


def answers(place, values_Q):
    fact = Fact("replies", 1, place.subject)
    return Answers({"refusal": np.asarray(values_Q, float)}, None, {"refusal": fact})


def contrasts(asked, shares):
    """All contrasts of made answers; ``shares`` gives the answers [Q] at a place."""
    found = {place: answers(place, shares(place)) for place, _ in nodes(asked) if shares(place) is not None}
    tree = asked.trees["first"]
    made = Contrasts("first", tree, asked, Strands(found)).all()
    return {one.id: one for one in made}


def about(quantity, end="dpo", **more):
    said = {
        "branch": "safety",
        "against": "generic",
        "metric": "refusal",
        "tree": "first",
        "end": end,
        **more,
    }
    parts = [f"{name}={value}" for name, value in sorted(said.items()) if value is not None]
    return "/".join([f"imprint.{quantity}", *parts])


def test_an_imprint_is_the_difference_of_two_changes():
    rng = np.random.default_rng(3)
    table = {}

    def shares(place):
        return table.setdefault(place, (rng.random(40) < rng.random()).astype(float))

    found = contrasts(settings(), shares)
    for end in ENDS:
        by_run = []
        for run in (1, 2, 3):
            at = {
                (branch, stage): [float(x) for x in table[Place("first", branch, run, stage)]]
                for branch, stage in itertools.product(("generic", "safety"), ("sft", end))
            }
            changes = {
                branch: sum(b - a for a, b in zip(at[branch, "sft"], at[branch, end], strict=True)) / 40
                for branch in ("generic", "safety")
            }
            by_run.append(changes["safety"] - changes["generic"])
        whole = found[about("contrast", end)]
        assert whole.value == pytest.approx(sum(by_run) / 3, abs=1e-12)
        alone = found[about("by_runs", end)]
        spread = math.sqrt(sum((one - alone.value) ** 2 for one in by_run) / 2 / 3)
        assert alone.hi - alone.value == pytest.approx(4.302652729911275 * spread, abs=1e-9)
        assert found[about("smallest_p", end)].value == 0.25
        flips = [
            abs(sum(sign * one for sign, one in zip(signs, by_run, strict=True)))
            for signs in itertools.product((1, -1), repeat=3)
        ]
        share = sum(one >= abs(sum(by_run)) - 1e-12 for one in flips) / 8
        assert found[about("p", end)].value == share


@pytest.mark.parametrize("level", [0.95, 0.9])
def test_the_interval_is_that_of_crossed_prompts_and_seeds(level):
    rng = np.random.default_rng(2)
    values_QS = rng.integers(-1, 2, size=(70, 3)) + 0.2 * rng.normal(size=3)
    mine = over_prompts_and_runs(values_QS, level)
    theirs = crossed_prompts_seeds(values_QS, rng=rng, level=level).combined
    for name in ("value", "lo", "hi", "level", "n", "smallest_effect", "standard_error"):
        assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
    assert mine.unit == "run and prompt"


@pytest.mark.parametrize(("level", "largest"), [(0.95, 1.0), (0.9, 2.0)])
def test_where_nothing_changed_the_limits_are_those_of_no_prompt_of_many(level, largest):
    found = over_prompts_and_runs(np.zeros((5000, 3)), level, largest=largest)
    assert found.value == 0
    assert found.hi == pytest.approx(largest * binomtest(0, 5000).proportion_ci(level, "exact").high)
    assert found.lo == -found.hi
    assert math.isnan(found.standard_error)
    assert "nothing is known of other runs" in found.note
    # so many prompts turn that an exact sign test sees it in four of five repeats
    turned = np.random.default_rng(0).binomial(5000, found.smallest_effect, 20_000)
    seen = [binomtest(count, count).pvalue < 0.05 if count else False for count in range(40)]
    assert np.mean([seen[count] if count < 40 else True for count in turned]) == pytest.approx(0.8, abs=0.01)


def test_runs_that_are_all_alike_give_no_narrower_limits_than_none_changed():
    values_QS = np.zeros((48, 3))
    values_QS[[3, 20, 41], [0, 1, 2]] = 1  # another prompt in each run: equal means but for rounding
    found = over_prompts_and_runs(values_QS, largest=2.0)
    nothing = over_prompts_and_runs(np.zeros((48, 3)), largest=2.0)
    assert found.value == pytest.approx(1 / 48)
    assert found.hi - found.value >= nothing.hi
    assert "runs all alike" in found.note
    alone = _over_runs(values_QS.mean(0))
    assert math.isnan(alone.lo)
    assert "runs all alike" in alone.note
    assert not math.isnan(_over_runs(np.array([0.0, 0.0, 0.1])).lo)


def test_equal_branches_are_equivalent_and_shifted_ones_are_not():
    rng = np.random.default_rng(5)
    common = (rng.random((4, 800)) < 0.9).astype(float)

    def shares(place):
        values = common[place.run].copy()
        if place.branch == "safety" and place.stage == "sft":
            values[:80] = 1 - values[:80]
        return values

    asked = settings()
    found = contrasts(asked, shares)
    same = contrasts(asked, lambda place: common[place.run])
    key, inside = about("after_sft", None), about("after_sft.inside", None)
    assert verdict(same[inside], same[key], asked.margin) == "equivalent"
    assert verdict(found[inside], found[key], asked.margin) == "different"
    for run in ("1", "2", "3"):
        one, p = (about(name, None, run=run) for name in ("after_sft.run", "after_sft.p"))
        assert run_verdict(same[one], same[p], asked.margin) == "equivalent"
        assert run_verdict(found[one], found[p], asked.margin) == "different"
        assert found[one].level == 0.9
        # a flip of nine tenths refused: lost 9 of 10, gained 1 of 10 among 80 of 800 prompts
        assert found[one].value == pytest.approx(-0.08, abs=0.02)
        assert found[about("after_sft.num_needed", None, run=run)].value > 0


def test_a_missing_node_leaves_its_run_out_and_says_so():
    found = contrasts(
        settings(),
        lambda place: None if place == Place("first", "safety", 2, "dpo") else np.ones(10),
    )
    assert "1 of 3 runs are incomplete" in found[about("contrast", "dpo")].note
    assert "incomplete" not in found[about("contrast", "grpo")].note
    assert found[about("p", "dpo")].n == 2


def test_one_run_says_nothing_of_other_seeds():
    rng = np.random.default_rng(1)
    found = contrasts(settings(runs=1), lambda _place: (rng.random(60) < 0.5).astype(float))
    whole = found[about("contrast")]
    assert math.isnan(whole.lo)
    assert math.isnan(whole.smallest_effect)
    assert "nothing is known of other seeds" in whole.note


def test_the_order_control_holds_its_halves_against_each_other():
    asked = settings(("generic", "safety", "last", "first"), order=("last", "first"))
    assert asked.trees["first"].contrasts() == [("safety", "generic"), ("last", "first")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control": "web"}, "'web' is no branch"),
        ({"branches": {"generic": [strand("a")], "safety": [strand("b"), strand("c")]}}, "as many runs"),
        (
            {"branches": {"generic": [strand("a")], "safety": [{**strand("b"), "ends": {"dpo": "b"}}]}},
            "the same ends",
        ),
    ],
)
def test_a_tree_that_can_not_be_contrasted_is_refused(change, message):
    whole = {"fork": "f", "control": "generic", "branches": {"generic": [strand("a")]}, **change}
    with pytest.raises(ValidationError, match=message):
        Tree.model_validate(whole)


@pytest.mark.known
def test_intervals_over_prompts_and_runs_keep_their_word():
    """A known imprint of -0.1, prompts and runs both noisy: the interval errs on the wide side."""
    num_prompts, truth, hits, seeds_hit, repeats = 300, -0.10, 0, 0, 200
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        easy_Q = rng.normal(size=num_prompts)
        shift = {
            (branch, run): rng.normal(scale=0.15) for branch in ("generic", "safety") for run in (1, 2, 3)
        }

        def shares(place, rng=rng, easy_Q=easy_Q, shift=shift):
            if place.stage in ("fork", "window", "grpo"):
                return np.zeros(num_prompts)
            if place.stage == "sft":
                return np.ones(num_prompts)
            fall = 0.30 - (truth if place.branch == "safety" else 0.0)
            level = np.clip(1 - fall + 0.05 * easy_Q + 0.1 * shift[place.branch, place.run], 0, 1)
            return (rng.random(num_prompts) < level).astype(float)

        found = contrasts(settings(), shares)
        one, alone = found[about("contrast")], found[about("by_runs")]
        hits += one.lo <= truth <= one.hi
        seeds_hit += alone.lo <= truth <= alone.hi
    assert hits / repeats >= 0.93
    assert 0.90 <= seeds_hit / repeats <= 0.99

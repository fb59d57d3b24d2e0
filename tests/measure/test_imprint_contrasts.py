"""Deviations, imprints, selectivity and equivalence on outcomes whose truth is known."""

import itertools
import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats
from tests.measure.imprint_outcomes import (
    ENDS,
    REFUSED,
    SAFETY,
    branch_run,
    changes_by_hand,
    contrasts,
    first_refused,
    node_of,
    random_outcomes,
    settings_of,
    stored_refusals,
)
from tests.measure.imprint_tables import StoredTables, declared, results_of

from stemmatics.core.results import Results
from stemmatics.math.imprint import RunsAndCells
from stemmatics.math.intervals import t_interval
from stemmatics.measure.imprint.contrasts import Contrasts
from stemmatics.measure.imprint.needs import NodeId, node_facts, tree_nodes
from stemmatics.measure.imprint.nodes import Outcomes
from stemmatics.measure.imprint.settings import Tree


def labelled(num_wordings, num_things):
    grid = list(itertools.product(range(num_wordings), range(num_things)))
    return {
        "wordings": np.array([f"w{w}" for w, _ in grid]),
        "things": np.array([f"t{t}" for _, t in grid]),
    }


def test_an_imprint_is_the_difference_of_two_changes():
    outcomes = random_outcomes(3)
    results = contrasts(settings_of(), outcomes)
    for end in ENDS:
        by_run = changes_by_hand(outcomes, "safety", end) - changes_by_hand(outcomes, "generic", end)
        about = {**SAFETY, "end": end}
        assert results.only("imprint.contrast", **about).value == pytest.approx(by_run.mean(), abs=1e-12)
        by_runs = results.only("imprint.contrast.by_runs", **about)
        expected = t_interval(by_run)
        assert (by_runs.lo, by_runs.hi) == pytest.approx((expected.lo, expected.hi), abs=1e-12)
        assert results.only("imprint.contrast.smallest_p", **about).value == 0.25
        flips = [abs(sum(signs * by_run)) for signs in itertools.product((1, -1), repeat=3)]
        share = sum(value >= abs(sum(by_run)) - 1e-12 for value in flips) / 8
        assert results.only("imprint.contrast.sign_flip_p", **about).value == share


def test_deviations_and_imprints_have_the_sign_of_the_change():
    results = stored_refusals()
    deviations = {
        (change.subject["branch"], change.subject["end"]): round(change.value, 12)
        for change in results.all("imprint.deviation", metric="refusal")
    }
    assert deviations == {
        ("generic", "dpo"): -0.3,
        ("generic", "grpo"): 0.1,
        ("safety", "dpo"): -0.05,
        ("safety", "grpo"): -0.25,
    }
    imprints = {
        imprint.subject["end"]: round(imprint.value, 12)
        for imprint in results.all("imprint.contrast", **SAFETY)
    }
    assert imprints == {"dpo": 0.25, "grpo": -0.35}
    assert results.only("imprint.after_sft", **SAFETY).value == pytest.approx(-0.1)


def test_branches_are_paired_run_by_run_and_prompt_by_prompt():
    results = stored_refusals()
    by_runs = results.only("imprint.contrast.by_runs", end="dpo", **SAFETY)
    # run 1: (9 - 10) - (7 - 9) of 10, run 2: (5 - 5) - (4 - 8) of 10
    expected = t_interval([0.1, 0.4], unit="run")
    assert (by_runs.value, by_runs.lo, by_runs.hi) == pytest.approx(
        (expected.value, expected.lo, expected.hi)
    )
    terms = [("safety", "dpo", 1), ("safety", "sft", -1), ("generic", "dpo", -1), ("generic", "sft", 1)]
    values_QS = np.array(
        [
            [
                sum(sign * first_refused(REFUSED[branch, run][stage])[q] for branch, stage, sign in terms)
                for run in (1, 2)
            ]
            for q in range(10)
        ]
    )
    by_prompt, by_run = values_QS.mean(1), values_QS.mean(0)
    half = math.hypot(
        stats.t.ppf(0.975, 1) * by_run.std(ddof=1) / math.sqrt(2),
        stats.t.ppf(0.975, 9) * by_prompt.std(ddof=1) / math.sqrt(10),
    )
    imprint = results.only("imprint.contrast", end="dpo", **SAFETY)
    assert (imprint.value, imprint.lo, imprint.hi) == pytest.approx((0.25, 0.25 - half, 0.25 + half))
    assert (imprint.n, imprint.unit) == (12, "run and cell")
    pinned, _ = declared()
    assert set(imprint.facts) == {
        node_facts(pinned, declared()[1], f"{branch}-{run}-{stage}").refusal.key
        for branch, run, stage in itertools.product(("generic", "safety"), (1, 2), ("sft", "dpo"))
    }


def test_wordings_and_things_are_the_units_of_labelled_prompts():
    labels, outcomes = labelled(4, 6), random_outcomes(4, num=24)
    results = contrasts(settings_of(), outcomes, **labels)
    imprint = results.only("imprint.contrast", end="dpo", **SAFETY)
    assert (imprint.n, imprint.unit) == (3 + 4 + 6, "run and wording and thing")
    values_CS = np.stack(
        [
            sum(
                sign * outcomes(NodeId("first", branch, run, stage))
                for branch, stage, sign in (
                    ("safety", "dpo", 1),
                    ("safety", "sft", -1),
                    ("generic", "dpo", -1),
                    ("generic", "sft", 1),
                )
            )
            for run in (1, 2, 3)
        ],
        axis=1,
    )
    expected = RunsAndCells(values_CS, labels["wordings"], labels["things"]).requests_like_these()
    assert (imprint.lo, imprint.hi) == pytest.approx((expected.lo, expected.hi))


def test_copies_of_a_prompt_change_nothing():
    labels, outcomes = labelled(4, 6), random_outcomes(4, num=24)
    once = contrasts(settings_of(), outcomes, **labels)
    twice = contrasts(
        settings_of(),
        lambda node: np.tile(outcomes(node), 2),
        **{name: np.tile(column, 2) for name, column in labels.items()},
    )
    assert {name: result.row() for name, result in once.items()} == {
        name: result.row() for name, result in twice.items()
    }


def test_copies_of_an_item_without_labels_change_nothing():
    values = {"a": 1.0, "b": 0.0, "c": 1.0}
    once, twice = (
        Outcomes(np.array([values[item] for item in items]), np.array(list(items)))
        for items in ("abc", "abcab")
    )
    assert twice.cells.tolist() == once.cells.tolist() == [1.0, 0.0, 1.0]


def test_a_copy_of_a_run_is_no_run():
    settings, outcomes = settings_of(runs=4), random_outcomes(6)

    def results(copied):
        nodes = {}
        for node, _ in tree_nodes(settings):
            origin = NodeId(node.tree, node.branch, 3, node.stage) if node.run == 4 and copied else node
            nodes[node] = node_of(node, outcomes(origin), copied_from=origin)
        return Results(Contrasts("first", settings.trees["first"], settings, nodes).results())

    assert results(copied=False).only("imprint.contrast.by_runs", end="dpo", **SAFETY).n == 4
    assert results(copied=True).only("imprint.contrast.by_runs", end="dpo", **SAFETY).n == 3


def test_over_refusal_has_contrasts_of_its_own():
    pinned, settings = declared(refused="harmful", harmless="benign")
    tables = StoredTables()
    harmless = {"generic-1-sft": 2, "generic-1-dpo": 1, "safety-1-sft": 1, "safety-1-dpo": 4}
    for checkpoint, num in harmless.items():
        fact = node_facts(pinned, settings, checkpoint).refusal
        tables.refusals(fact, "harmful", [1] * 6)
        tables.refusals(fact, "benign", first_refused(num, total=5))
    results = results_of(pinned, settings, tables)
    about = {**SAFETY, "end": "dpo"}
    assert results.only("imprint.contrast", **about).value == 0
    assert results.only("imprint.contrast", **{**about, "metric": "over_refusal"}).value == pytest.approx(0.8)


def test_selectivity_is_the_target_less_the_mean_of_the_other_sources():
    branches = ("generic", "safety", "filtered", "rules", "last", "first")
    settings = settings_of(branches, target="safety", order=("last", "first"))
    outcomes = random_outcomes(9)
    results = contrasts(settings, outcomes)
    (dpo,) = results.all("imprint.selectivity", end="dpo", metric="refusal")
    others = [changes_by_hand(outcomes, branch, "dpo") for branch in ("filtered", "rules")]
    by_run = changes_by_hand(outcomes, "safety", "dpo") - sum(others) / 2
    assert dpo.value == pytest.approx(by_run.mean())
    assert (dpo.subject["branch"], dpo.subject["against"]) == ("safety", "filtered, rules")
    expected = t_interval(by_run)
    by_runs = results.only("imprint.selectivity.by_runs", end="dpo", metric="refusal")
    assert (by_runs.lo, by_runs.hi) == pytest.approx((expected.lo, expected.hi))
    p_K = [results.only("imprint.selectivity.p", end=end, metric="refusal").value for end in ENDS]
    adjusted = [results.only("imprint.selectivity.holm_p", end=end, metric="refusal").value for end in ENDS]
    assert min(adjusted) == pytest.approx(min(1.0, 2 * min(p_K)))


@pytest.mark.parametrize("tree", [{}, {"target": "generic"}, {"target": "safety"}])
def test_without_a_target_or_other_sources_there_is_no_selectivity(tree):
    results = contrasts(settings_of(("generic", "safety"), **tree), random_outcomes(9))
    assert not results.all("imprint.selectivity")


def test_a_missing_node_leaves_its_run_out_and_the_note_counts_it():
    missing, outcomes = NodeId("first", "safety", 2, "dpo"), random_outcomes(8)
    results = contrasts(settings_of(), lambda node: None if node == missing else outcomes(node))
    dpo, grpo = (results.only("imprint.contrast", end=end, **SAFETY) for end in ENDS)
    assert "1 of 3 runs are incomplete" in dpo.note
    assert "incomplete" not in grpo.note
    assert results.only("imprint.contrast.sign_flip_p", end="dpo", **SAFETY).n == 2


def test_one_run_says_nothing_about_variation_between_runs():
    results = contrasts(settings_of(runs=1), random_outcomes(1, num=60))
    imprint = results.only("imprint.contrast", end="dpo", **SAFETY)
    assert math.isnan(imprint.lo)
    assert math.isnan(imprint.smallest_effect)
    assert "one run: variation between runs is unknown" in imprint.note
    verdict = results.category("imprint.after_sft.verdict", **SAFETY)
    assert verdict.value == "undetermined"
    assert "1 complete runs where 2 are the least" in verdict.reason


def test_the_order_control_is_compared_with_itself():
    settings = settings_of(("generic", "safety", "last", "first"), order=("last", "first"))
    assert settings.trees["first"].contrasts() == [("safety", "generic"), ("last", "first")]
    moved = NodeId("first", "last", 1, "dpo")
    results = contrasts(settings, lambda node: np.zeros(10) if node == moved else np.ones(10))
    order = results.only("imprint.contrast", branch="last", against="first", end="dpo", metric="refusal")
    assert order.value == pytest.approx(-1 / 3)
    assert {result.subject["branch"] for result in results.all("imprint.contrast", against="generic")} == {
        "safety"
    }


def test_an_order_control_against_the_control_is_one_of_the_contrasts():
    settings = settings_of(("generic", "last"), order=("last", "generic"))
    results = contrasts(settings, random_outcomes(2))
    assert {result.subject["end"] for result in results.all("imprint.contrast.holm_p")} == set(ENDS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control": "web"}, "'web' is not a branch"),
        ({"target": "web"}, "'web' is not a branch"),
        (
            {"branches": {"generic": [branch_run("a")], "safety": [branch_run("b"), branch_run("c")]}},
            "the same number of runs",
        ),
        (
            {
                "branches": {
                    "generic": [branch_run("a")],
                    "safety": [{**branch_run("b"), "ends": {"dpo": "b"}}],
                }
            },
            "the same ends",
        ),
    ],
)
def test_a_tree_that_cannot_be_contrasted_is_refused(change, message):
    whole = {"fork": "f", "control": "generic", "branches": {"generic": [branch_run("a")]}, **change}
    with pytest.raises(ValidationError, match=message):
        Tree.model_validate(whole)

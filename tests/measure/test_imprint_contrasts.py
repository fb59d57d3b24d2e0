"""Deviations, imprints and equivalence on outcomes whose truth is known."""

import itertools
import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import binomtest
from tests.measure.imprint_tables import StoredTables, declared, fill_refusals, results_of

from stemmatics.core.facts import Fact
from stemmatics.core.results import Results
from stemmatics.math.equivalence import num_pairs_needed
from stemmatics.math.intervals import Interval, t_interval
from stemmatics.math.seeds import crossed_prompts_seeds
from stemmatics.measure.imprint.contrasts import (
    Contrasts,
    equivalence_verdict,
    over_prompts_and_runs,
    over_runs,
)
from stemmatics.measure.imprint.needs import NodeId, node_facts, tree_nodes
from stemmatics.measure.imprint.nodes import Node
from stemmatics.measure.imprint.settings import ImprintSettings, Tree

ENDS = ("dpo", "grpo")
SAFETY = {"branch": "safety", "against": "generic", "metric": "refusal", "tree": "first"}


def branch_run(name):
    return {"window": name, "sft": f"{name}-sft", "ends": {end: f"{name}-{end}" for end in ENDS}}


def settings_of(branches=("generic", "safety"), runs=3, margin=0.05, **tree):
    runs_of = {name: [branch_run(f"{name}-{run}") for run in range(runs)] for name in branches}
    return ImprintSettings.model_validate(
        {
            "trees": {"first": {"fork": "fork", "control": "generic", "branches": runs_of, **tree}},
            "refusal": "requests",
            "margin": margin,
        }
    )


def node_of(node_id, outcomes_Q):
    fact = Fact("replies", 1, node_id.subject)
    return Node({"refusal": np.asarray(outcomes_Q, float)}, None, {"refusal": fact})


def contrasts(settings, outcomes):
    """All contrasts of made outcomes; ``outcomes(node)`` gives those of a node [Q]."""
    nodes = {
        node: node_of(node, outcomes(node)) for node, _ in tree_nodes(settings) if outcomes(node) is not None
    }
    return Results(Contrasts("first", settings.trees["first"], settings, nodes).results())


def test_an_imprint_is_the_difference_of_two_changes():
    rng = np.random.default_rng(3)
    drawn = {}

    def outcomes(node):
        return drawn.setdefault(node, (rng.random(40) < rng.random()).astype(float))

    results = contrasts(settings_of(), outcomes)
    for end in ENDS:
        by_run = []
        for run in (1, 2, 3):
            at = {
                (branch, stage): [float(x) for x in drawn[NodeId("first", branch, run, stage)]]
                for branch, stage in itertools.product(("generic", "safety"), ("sft", end))
            }
            changes = {
                branch: sum(b - a for a, b in zip(at[branch, "sft"], at[branch, end], strict=True)) / 40
                for branch in ("generic", "safety")
            }
            by_run.append(changes["safety"] - changes["generic"])
        about = {**SAFETY, "end": end}
        assert results.only("imprint.contrast", **about).value == pytest.approx(sum(by_run) / 3, abs=1e-12)
        by_runs = results.only("imprint.by_runs", **about)
        spread = math.sqrt(sum((value - by_runs.value) ** 2 for value in by_run) / 2 / 3)
        assert by_runs.hi - by_runs.value == pytest.approx(4.302652729911275 * spread, abs=1e-9)
        assert results.only("imprint.smallest_p", **about).value == 0.25
        flips = [
            abs(sum(sign * value for sign, value in zip(signs, by_run, strict=True)))
            for signs in itertools.product((1, -1), repeat=3)
        ]
        share = sum(value >= abs(sum(by_run)) - 1e-12 for value in flips) / 8
        assert results.only("imprint.p", **about).value == share


def first_refused(num, total=10):
    return [1] * num + [0] * (total - num)


# of ten requests the first so many are refused, by branch, run and stage
REFUSED = {
    ("generic", 1): {"sft": 9, "dpo": 7, "grpo": 9},
    ("generic", 2): {"sft": 8, "dpo": 4, "grpo": 10},
    ("safety", 1): {"sft": 10, "dpo": 9, "grpo": 6},
    ("safety", 2): {"sft": 5, "dpo": 5, "grpo": 4},
}


def stored_refusals(margin=0.05):
    pinned, settings = declared(margin=margin)
    return results_of(
        pinned,
        settings,
        fill_refusals(
            pinned,
            settings,
            lambda node: first_refused(REFUSED.get((node.branch, node.run), {}).get(node.stage, 0)),
        ),
    )


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
    by_runs = results.only("imprint.by_runs", end="dpo", **SAFETY)
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
    expected = over_prompts_and_runs(values_QS, largest=2.0)
    imprint = results.only("imprint.contrast", end="dpo", **SAFETY)
    for name in ("value", "lo", "hi", "n", "unit", "smallest_effect"):
        assert getattr(imprint, name) == pytest.approx(getattr(expected, name)), name
    pinned, settings = declared()
    assert set(imprint.facts) == {
        node_facts(pinned, settings, f"{branch}-{run}-{stage}").refusal.key
        for branch, run, stage in itertools.product(("generic", "safety"), (1, 2), ("sft", "dpo"))
    }
    for run, difference in (("1", 0.1), ("2", -0.3)):
        in_run = results.only("imprint.after_sft.run", run=run, **SAFETY)
        assert (in_run.value, in_run.n) == (pytest.approx(difference), 10)
        facts = {
            node_facts(pinned, settings, checkpoint).refusal.key
            for checkpoint in (f"safety-{run}-sft", f"generic-{run}-sft")
        }
        assert set(in_run.facts) == facts


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


def test_a_loss_is_contrasted_over_runs_and_has_no_verdict():
    pinned, settings = declared(heldout="heldout")
    tables = StoredTables()
    # nats on 100 bytes
    nats = {
        ("generic", 1): {"sft": 50.0, "dpo": 60.0},
        ("generic", 2): {"sft": 50.0, "dpo": 56.0},
        ("safety", 1): {"sft": 52.0, "dpo": 53.0},
        ("safety", 2): {"sft": 58.0, "dpo": 59.0},
    }
    for (branch, run), stages in nats.items():
        for stage, total in stages.items():
            loss = node_facts(pinned, settings, f"{branch}-{run}-{stage}").loss
            tables.losses(loss, [total - 20.0, 20.0], [70, 30])
    results = results_of(pinned, settings, tables)
    about = {**SAFETY, "metric": "loss"}
    expected = t_interval([0.01 - 0.10, 0.01 - 0.06], unit="run")
    imprint = results.only("imprint.contrast", end="dpo", **about)
    assert (imprint.value, imprint.lo, imprint.hi) == pytest.approx(
        (expected.value, expected.lo, expected.hi)
    )
    assert (imprint.units, imprint.unit) == ("nats/byte", "run")
    assert results.only("imprint.after_sft", **about).value == pytest.approx(0.05)
    assert results.only("imprint.deviation", branch="generic", metric="loss").value == pytest.approx(0.08)
    assert results.find("imprint.by_runs", **about) is None
    assert not results.categories("imprint.after_sft.verdict", **about)


@pytest.mark.parametrize("level", [0.95, 0.9])
def test_the_interval_is_that_of_crossed_prompts_and_seeds(level):
    rng = np.random.default_rng(2)
    values_QS = rng.integers(-1, 2, size=(70, 3)) + 0.2 * rng.normal(size=3)
    by_formula = over_prompts_and_runs(values_QS, level)
    resampled = crossed_prompts_seeds(values_QS, rng=rng, level=level).combined
    for name in ("value", "lo", "hi", "level", "n", "smallest_effect", "standard_error"):
        assert getattr(by_formula, name) == pytest.approx(getattr(resampled, name), rel=1e-12)
    assert by_formula.unit == "run and prompt"


@pytest.mark.parametrize(("level", "largest"), [(0.95, 1.0), (0.9, 2.0)])
def test_where_nothing_changed_the_limits_are_those_of_no_prompt_of_many(level, largest):
    interval = over_prompts_and_runs(np.zeros((5000, 3)), level, largest=largest)
    assert interval.value == 0
    assert interval.hi == pytest.approx(largest * binomtest(0, 5000).proportion_ci(level, "exact").high)
    assert interval.lo == -interval.hi
    assert math.isnan(interval.standard_error)
    assert "variation between runs is unknown" in interval.note
    # so many prompts change that an exact sign test finds it in four of five repeats
    changed = np.random.default_rng(0).binomial(5000, interval.smallest_effect, 20_000)
    detected = [binomtest(count, count).pvalue < 0.05 if count else False for count in range(40)]
    power = np.mean([detected[count] if count < 40 else True for count in changed])
    assert power == pytest.approx(0.8, abs=0.01)


def test_an_imprint_has_twice_the_reach_of_a_deviation_where_nothing_changed():
    results = contrasts(settings_of(), lambda _node: np.ones(50))
    deviation = results.only("imprint.deviation", branch="safety", end="dpo", metric="refusal")
    imprint = results.only("imprint.contrast", end="dpo", **SAFETY)
    assert imprint.hi == pytest.approx(2 * deviation.hi)
    assert results.only("imprint.after_sft", **SAFETY).hi == pytest.approx(deviation.hi)


def test_identical_runs_give_no_narrower_limits_than_none_changed():
    values_QS = np.zeros((48, 3))
    values_QS[[3, 20, 41], [0, 1, 2]] = 1  # another prompt in each run: equal means but for rounding
    interval = over_prompts_and_runs(values_QS, largest=2.0)
    unchanged = over_prompts_and_runs(np.zeros((48, 3)), largest=2.0)
    assert interval.value == pytest.approx(1 / 48)
    assert interval.hi - interval.value >= unchanged.hi
    assert "identical runs" in interval.note
    # prompts that vary more than that decide
    varied = over_prompts_and_runs(np.tile([[1.0], [-1.0]], (24, 3)))
    assert varied.hi == pytest.approx(t_interval([1.0, -1.0] * 24).hi)
    assert varied.hi > over_prompts_and_runs(np.zeros((48, 3))).hi
    by_runs = over_runs(values_QS.mean(0))
    assert math.isnan(by_runs.lo)
    assert "identical runs" in by_runs.note
    assert not math.isnan(over_runs(np.array([0.0, 0.0, 0.1])).lo)


def test_equal_branches_are_equivalent_and_shifted_ones_are_not():
    rng = np.random.default_rng(5)
    common = (rng.random((4, 800)) < 0.9).astype(float)

    def shifted(node):
        values = common[node.run].copy()
        if node.branch == "safety" and node.stage == "sft":
            values[:80] = 1 - values[:80]
        return values

    different = contrasts(settings_of(), shifted)
    equal = contrasts(settings_of(), lambda node: common[node.run])
    for results, verdict in ((equal, "equivalent"), (different, "different")):
        whole = results.category("imprint.after_sft.verdict", **SAFETY)
        assert (whole.value, whole.n) == (verdict, results.only("imprint.after_sft.inside", **SAFETY).n)
        by_run = results.categories("imprint.after_sft.run_verdict", **SAFETY)
        assert [category.value for category in by_run] == [verdict] * 3
        assert {(category.n, category.unit) for category in by_run} == {(800, "prompt")}
    for difference in different.all("imprint.after_sft.run", **SAFETY):
        assert difference.level == 0.9
        # a flip of nine tenths refused: lost 9 of 10, gained 1 of 10 among 80 of 800 prompts
        assert difference.value == pytest.approx(-0.08, abs=0.02)
    assert all(needed.value > 0 for needed in different.all("imprint.after_sft.num_needed", **SAFETY))


def uneven(node):
    """Outcomes after SFT that differ a little between branches, and not equally in each run."""
    values = np.ones(400)
    if node.branch == "safety" and node.stage == "sft":
        values[: 2 * node.run] = 0
    return values


def half_width(estimate):
    return max(-estimate.lo, estimate.hi)


def test_equivalence_is_decided_by_the_interval_at_90_per_cent_and_the_margin():
    results = contrasts(settings_of(), uneven)
    at_95, at_90 = (results.only(f"imprint.after_sft{part}", **SAFETY) for part in ("", ".inside"))
    assert (at_95.level, at_90.level) == (0.95, 0.90)
    assert at_95.lo < at_90.lo < 0
    assert at_90.value == pytest.approx(-(2 + 4 + 6) / 3 / 400)
    # two one-sided tests at 5%: what the interval at 95% would not show
    between = (half_width(at_90) + half_width(at_95)) / 2
    for margin, verdict in ((between, "equivalent"), (half_width(at_90) * 0.999, "undetermined")):
        category = contrasts(settings_of(margin=margin), uneven).category(
            "imprint.after_sft.verdict", **SAFETY
        )
        assert category.value == verdict
        assert "margin" in category.reason


def test_each_run_has_its_verdict_at_the_margin():
    results = contrasts(settings_of(), uneven)
    widths = {
        difference.subject["run"]: half_width(difference)
        for difference in results.all("imprint.after_sft.run", **SAFETY)
    }
    smallest = {
        margin.subject["run"]: margin.value
        for margin in results.all("imprint.after_sft.smallest_margin", **SAFETY)
    }
    assert smallest == pytest.approx(widths)
    assert widths["1"] < widths["2"] < widths["3"]
    for tested in results.all("imprint.after_sft.num_needed", **SAFETY):
        run = int(tested.subject["run"])
        assert tested.value == num_pairs_needed(0.05, 2 * run / 400)
        # McNemar's exact test, all pairs lost
        assert results.only("imprint.after_sft.p", **tested.subject).value == 2 / 2 ** (2 * run)
    # a margin that the first two runs pass; six of six that change one way reject equality, four do not
    for margin, second in ((1.001 * widths["2"], "equivalent"), (0.999 * widths["2"], "undetermined")):
        verdicts = contrasts(settings_of(margin=margin), uneven).categories(
            "imprint.after_sft.run_verdict", **SAFETY
        )
        assert [category.value for category in verdicts] == ["equivalent", second, "different"]
    # a margin that no run passes
    verdicts = contrasts(settings_of(margin=1e-4), uneven).categories(
        "imprint.after_sft.run_verdict", **SAFETY
    )
    assert [category.value for category in verdicts] == ["undetermined", "undetermined", "different"]


@pytest.mark.parametrize(
    ("at_90", "at_95", "verdict"),
    [
        ((-0.04, 0.04), (-0.06, 0.06), "equivalent"),
        ((-0.04, -0.01), (-0.045, -0.005), "equivalent"),  # a small difference is shown, inside the margin
        ((-0.06, -0.01), (-0.07, -0.005), "different"),
        ((0.01, 0.06), (0.005, 0.07), "different"),
        ((-0.06, -0.01), (-0.07, 0.01), "undetermined"),
        ((0.01, 0.06), (-0.01, 0.07), "undetermined"),
        ((-0.05, 0.05), (-0.06, 0.06), "undetermined"),  # the margin itself is outside
        ((math.nan, math.nan), (math.nan, math.nan), "undetermined"),
    ],
)
def test_the_verdict_of_two_intervals(at_90, at_95, verdict):
    def interval(limits, level):
        return Interval(sum(limits) / 2, *limits, level, "t", 3, "run", math.nan, math.nan, "few runs")

    value, reason = equivalence_verdict(interval(at_90, 0.9), interval(at_95, 0.95), 0.05)
    assert value == verdict
    assert reason
    assert ("few runs" in reason) == math.isnan(at_90[0])


def test_a_missing_node_leaves_its_run_out_and_the_note_counts_it():
    missing = NodeId("first", "safety", 2, "dpo")
    results = contrasts(settings_of(), lambda node: None if node == missing else np.ones(10))
    dpo, grpo = (results.only("imprint.contrast", end=end, **SAFETY) for end in ENDS)
    assert "1 of 3 runs are incomplete" in dpo.note
    assert "incomplete" not in grpo.note
    assert results.only("imprint.p", end="dpo", **SAFETY).n == 2


def test_one_run_says_nothing_about_variation_between_runs():
    rng = np.random.default_rng(1)
    results = contrasts(settings_of(runs=1), lambda _node: (rng.random(60) < 0.5).astype(float))
    imprint = results.only("imprint.contrast", end="dpo", **SAFETY)
    assert math.isnan(imprint.lo)
    assert math.isnan(imprint.smallest_effect)
    assert "one run: variation between runs is unknown" in imprint.note
    verdict = results.category("imprint.after_sft.verdict", **SAFETY)
    assert verdict.value == "undetermined"
    assert "one run" in verdict.reason


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control": "web"}, "'web' is not a branch"),
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


@pytest.mark.known
def test_intervals_over_prompts_and_runs_cover():
    """A known imprint of -0.1, prompts and runs both noisy: the interval errs on the wide side."""
    num_prompts, truth, hits, runs_hit, repeats = 300, -0.10, 0, 0, 200
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        easy_Q = rng.normal(size=num_prompts)
        shift = {
            (branch, run): rng.normal(scale=0.15) for branch in ("generic", "safety") for run in (1, 2, 3)
        }

        def outcomes(node, rng=rng, easy_Q=easy_Q, shift=shift):
            if node.stage in ("fork", "window", "grpo"):
                return np.zeros(num_prompts)
            if node.stage == "sft":
                return np.ones(num_prompts)
            fall = 0.30 - (truth if node.branch == "safety" else 0.0)
            level = np.clip(1 - fall + 0.05 * easy_Q + 0.1 * shift[node.branch, node.run], 0, 1)
            return (rng.random(num_prompts) < level).astype(float)

        results = contrasts(settings_of(), outcomes)
        imprint, by_runs = (
            results.only(f"imprint.{name}", end="dpo", **SAFETY) for name in ("contrast", "by_runs")
        )
        hits += imprint.lo <= truth <= imprint.hi
        runs_hit += by_runs.lo <= truth <= by_runs.hi
    assert hits / repeats >= 0.93
    assert 0.90 <= runs_hit / repeats <= 0.99

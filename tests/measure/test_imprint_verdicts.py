"""Verdicts of contrasts: what decides them, and what leaves them undetermined."""

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.measure.imprint_outcomes import SAFETY, contrasts, noisy, settings_of, stored_refusals
from tests.measure.imprint_tables import StoredTables, declared, results_of

from stemmatics.math.imprint import Noise, in_quadrature, p_of
from stemmatics.math.intervals import t_interval
from stemmatics.measure.imprint.needs import NodeId, node_facts
from stemmatics.measure.imprint.verdicts import Evidence, direction, equivalence_verdict, holm_of
from stemmatics.measure.present import ResultBuilder


def half_width(estimate):
    return max(-estimate.lo, estimate.hi)


def test_a_loss_is_contrasted_over_runs_and_has_no_equivalence():
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
    two_sided = 2 * stats.t.sf(abs(expected.value) / expected.standard_error, 1)
    assert results.only("imprint.contrast.p", end="dpo", **about).value == pytest.approx(two_sided)
    assert results.only("imprint.after_sft", **about).value == pytest.approx(0.05)
    assert results.only("imprint.deviation", branch="generic", metric="loss").value == pytest.approx(0.08)
    assert not results.categories("imprint.after_sft.verdict", **about)
    assert not results.categories("imprint.contrast.visibility", **about)


def test_where_nothing_changed_there_are_no_limits_and_no_verdict():
    results = contrasts(settings_of(), lambda _node: np.ones(500))
    for quantity, about in (("contrast", {**SAFETY, "end": "dpo"}), ("after_sft", SAFETY)):
        estimate = results.only(f"imprint.{quantity}", **about)
        assert estimate.value == 0
        assert math.isnan(estimate.lo)
        assert "every run came out alike" in estimate.note
        verdict = results.category(f"imprint.{quantity}.verdict", **about)
        assert verdict.value == "undetermined"
        assert "every run came out alike" in verdict.reason
    visibility = results.category("imprint.contrast.visibility", end="dpo", **SAFETY)
    assert (visibility.value, "alike" in visibility.reason) == ("unknown", True)


def test_equal_branches_are_equivalent_and_shifted_ones_are_not():
    for shift, verdict in ((0.0, "equivalent"), (0.12, "different")):
        results = contrasts(
            settings_of(runs=4), lambda node, shift=shift: noisy(node, shift=shift, stage="sft")
        )
        whole = results.category("imprint.after_sft.verdict", **SAFETY)
        inside = results.only("imprint.after_sft.inside", **SAFETY)
        assert (whole.value, whole.n, whole.unit) == (verdict, inside.n, inside.unit)


def test_equivalence_is_decided_by_the_interval_at_90_per_cent_and_the_margin():
    results = contrasts(settings_of(), noisy)
    at_95, at_90 = (results.only(f"imprint.after_sft{part}", **SAFETY) for part in ("", ".inside"))
    assert (at_95.level, at_90.level) == (0.95, 0.90)
    assert at_95.lo < at_90.lo
    smallest = results.only("imprint.after_sft.smallest_margin", **SAFETY)
    assert smallest.value == pytest.approx(half_width(at_90))
    # two one-sided tests at 5%: what the interval at 95% would not show
    between = (half_width(at_90) + half_width(at_95)) / 2
    for margin, verdict in ((between, "equivalent"), (half_width(at_90) * 0.999, "undetermined")):
        category = contrasts(settings_of(settings={"margin": margin}), noisy).category(
            "imprint.after_sft.verdict", **SAFETY
        )
        assert category.value == verdict
        assert "margin" in category.reason
        assert ("would settle it" in category.reason) == (verdict == "undetermined")


def test_an_imprint_is_higher_or_lower_or_undetermined():
    for shift, verdict in ((0.15, "lower"), (-0.09, "higher"), (0.0, "undetermined")):
        results = contrasts(settings_of(runs=4), lambda node, shift=shift: noisy(node, shift=shift))
        category = results.category("imprint.contrast.verdict", end="dpo", **SAFETY)
        assert category.value == verdict
        assert results.category("imprint.contrast.verdict", end="grpo", **SAFETY).value == "undetermined"


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"min_runs": 5}, "4 complete runs where 5 are the least"),
        ({"min_cells": 1501}, "1500 cells of requests where 1501 are the least"),
    ],
)
def test_under_the_declared_minimum_every_verdict_is_undetermined(settings, missing):
    for shift, stage in ((0.15, "dpo"), (0.0, "dpo"), (0.12, "sft")):
        results = contrasts(
            settings_of(("generic", "safety", "filtered"), runs=4, target="safety", settings=settings),
            lambda node, shift=shift, stage=stage: noisy(node, shift=shift, stage=stage),
        )
        verdicts = [
            category
            for name in ("contrast", "selectivity", "after_sft")
            for category in results.categories(f"imprint.{name}.verdict", metric="refusal")
        ]
        assert len(verdicts) == 2 * 2 + 2 + 2
        assert {category.value for category in verdicts} == {"undetermined"}
        assert {category.reason for category in verdicts} == {missing}


def test_holm_counts_every_branch_and_end_also_those_without_a_number():
    branches = ("generic", "safety", "filtered")
    settings = settings_of(branches, runs=4)
    gone = NodeId("first", "filtered", 1, "sft")

    def all_there(node):
        return noisy(node, shift=0.15)

    def without(node):
        return None if (node.branch, node.stage) == (gone.branch, gone.stage) else all_there(node)

    whole, less = contrasts(settings, all_there), contrasts(settings, without)
    about = {"against": "generic", "metric": "refusal", "tree": "first"}
    p_K = sorted(result.value for result in whole.all("imprint.contrast.p", **about))
    assert len(p_K) == 4
    smallest = whole.only("imprint.contrast.holm_p", end="dpo", branch="safety", **about)
    assert smallest.value == pytest.approx(4 * p_K[0])
    # two of the four have no number now, and what is left is corrected no less
    assert len(less.all("imprint.contrast.p", **about)) == 2
    same = less.only("imprint.contrast.holm_p", end="dpo", branch="safety", **about)
    assert same.value == pytest.approx(smallest.value)
    assert "Holm's p of 4 contrasts" in less.category("imprint.contrast.verdict", end="dpo", **SAFETY).reason


def test_the_margin_of_equivalence_of_a_margin_is_in_nats():
    rng = np.random.default_rng(3)
    settings = settings_of(runs=4, settings={"margin_nats": 0.3})
    results = contrasts(
        settings, lambda _node: 2.0 + 0.1 * rng.normal() + 0.5 * rng.normal(size=80), metric="margin"
    )
    about = {**SAFETY, "metric": "margin"}
    inside = results.only("imprint.after_sft.inside", **about)
    assert inside.units == "nats/token"
    assert 0.05 < half_width(inside) < 0.3
    assert results.category("imprint.after_sft.verdict", **about).value == "equivalent"
    # a margin has no range that an effect could be too large for
    assert not results.categories("imprint.contrast.visibility", **about)


def test_an_effect_above_the_whole_range_cannot_be_seen():
    results = stored_refusals()
    assert results.only("imprint.contrast", end="dpo", **SAFETY).smallest_effect > 1
    seen = results.category("imprint.contrast.visibility", end="dpo", **SAFETY)
    assert seen.value == "cannot be seen with this design"
    results = contrasts(settings_of(runs=4), noisy)
    assert results.only("imprint.contrast", end="dpo", **SAFETY).smallest_effect < 1
    assert results.category("imprint.contrast.visibility", end="dpo", **SAFETY).value == "within the range"


ENOUGH = Evidence(4, 3, 60, 50)
decided = {
    "value": st.floats(-1, 1),
    "run": st.floats(0.005, 0.3),
    "num": st.integers(4, 12),
    "cell": st.floats(0.005, 0.3),
    "times": st.floats(1, 4),
    "fewer": st.booleans(),
}


def noises_of(run, num, cell, times, fewer):
    """Two sources of chance, and the same with less evidence."""
    whole = [Noise("run", run, num), Noise("cell", cell, 60)]
    return whole, [Noise("run", times * run, num - fewer), Noise("cell", times * cell, 60)]


@settings(deadline=None, max_examples=150)
@example(value=0.04, run=0.005, num=5, cell=0.01, times=1.6, fewer=False, margin=0.06)
@example(value=0.04, run=0.005, num=5, cell=0.005, times=4.0, fewer=True, margin=0.05)
@given(**decided, margin=st.floats(0.02, 0.5))
def test_a_larger_error_or_fewer_runs_never_add_or_change_an_equivalence(value, margin, **rest):
    verdicts = []
    for noises in noises_of(**rest):
        at_90, at_95 = (in_quadrature(value, noises, level=level) for level in (0.90, 0.95))
        verdicts.append(equivalence_verdict(at_90, at_95, margin, ENOUGH, noises)[0])
    assert verdicts[1] in {verdicts[0], "undetermined"}


@settings(deadline=None, max_examples=150)
@given(**decided, others=st.lists(st.floats(0, 1), max_size=4), first=st.floats(0, 1), rise=st.floats(0, 1))
def test_a_larger_error_never_adds_or_changes_a_direction(value, others, first, rise, **rest):
    """The error of the contrast itself, and the p of one that is tested with it."""
    verdicts = []
    for noises, beside in zip(noises_of(**rest), (first, min(1.0, first + rise)), strict=True):
        interval = in_quadrature(value, noises)
        estimate = ResultBuilder("imprint", {}).interval("contrast", interval)
        adjusted = holm_of([p_of(value, noises), *others, beside], len(others) + 3)[0]
        verdicts.append(direction(estimate, float(adjusted), len(others) + 3, ENOUGH)[0])
    assert verdicts[1] in {verdicts[0], "undetermined"}


def test_a_contrast_without_p_counts_as_a_test():
    p_K = [0.01, math.nan, 0.03]
    assert holm_of(p_K, 3) == pytest.approx([0.03, math.nan, 0.06], nan_ok=True)
    assert holm_of(p_K, 5) == pytest.approx([0.05, math.nan, 0.12], nan_ok=True)
    assert holm_of([], 2).size == 0


def test_fewer_units_than_the_minimum_are_undetermined_and_counted():
    wide = ResultBuilder("imprint", {}).interval("contrast", in_quadrature(1.0, [Noise("run", 0.01, 2)]))
    assert direction(wide, 0.001, 1, Evidence(3, 3, 50, 50))[0] == "higher"
    for evidence, reason in (
        (Evidence(2, 3, 50, 50), "2 complete runs where 3 are the least"),
        (Evidence(3, 3, 18, 50), "18 cells of requests where 50 are the least"),
    ):
        assert direction(wide, 0.001, 1, evidence) == ("undetermined", reason)


def test_an_interval_without_zero_is_not_enough_among_many():
    estimate = ResultBuilder("imprint", {}).interval("contrast", in_quadrature(1.0, [Noise("run", 0.1, 9)]))
    assert direction(estimate, 0.04, 6, ENOUGH)[0] == "higher"
    verdict, reason = direction(estimate, 0.06, 6, ENOUGH)
    assert (verdict, reason) == ("undetermined", "Holm's p of 6 contrasts is not under 5%")


def drawn_tree(rng, shift):
    """Margins of a tree of four branches in 24 cells of 4 wordings and 6 things; safety moves by a shift."""
    labels = {
        name: np.array([f"{name}{index}" for index, _ in itertools.product(range(n), range(24 // n))])
        for name, n in (("wordings", 4),)
    }
    labels["things"] = np.array([f"thing{index % 6}" for index in range(24)])
    moved = {branch: (rng.normal(size=4), rng.normal(size=6)) for branch in BRANCHES}

    def outcomes(node):
        if node.branch not in BRANCHES:
            return None
        values = 0.2 * rng.normal(size=24) + 0.3 * rng.normal()
        if node.stage == "dpo":
            by_wording, by_thing = moved[node.branch]
            values = values + 0.3 * np.repeat(by_wording, 6) + 0.3 * np.tile(by_thing, 4)
            values = values + shift * (node.branch == "safety")
        return values

    return outcomes, labels


BRANCHES = ("generic", "safety", "filtered", "rules")


def share_with_verdicts(shift, repeats, seed):
    """How often any imprint, and selectivity, is said to be there; and any equivalence after SFT."""
    rng = np.random.default_rng(seed)
    tree_settings = settings_of(BRANCHES, runs=4, target="safety", settings={"margin_nats": 0.3})
    any_imprint, selective = 0, 0
    for _ in range(repeats):
        outcomes, labels = drawn_tree(rng, shift)
        results = contrasts(tree_settings, outcomes, metric="margin", **labels)
        said = [
            any(c.value != "undetermined" for c in results.categories(f"imprint.{name}.verdict", end="dpo"))
            for name in ("contrast", "selectivity")
        ]
        any_imprint, selective = any_imprint + said[0], selective + said[1]
    return any_imprint / repeats, selective / repeats


def test_without_an_imprint_none_is_found_and_with_one_it_is():
    any_imprint, selective = share_with_verdicts(0.0, 40, 1)
    # over all branches together, by Holm: 5% and one and a half standard errors of 3.4 points
    assert any_imprint <= 0.10
    assert selective <= 0.10
    any_imprint, selective = share_with_verdicts(6.0, 6, 2)
    assert any_imprint == selective == 1.0


@pytest.mark.known
def test_false_imprints_and_false_selectivity_are_at_most_one_in_twenty(capsys):
    any_imprint, selective = share_with_verdicts(0.0, 250, 3)
    with capsys.disabled():
        sys.stdout.write(f"\nfalse imprints {any_imprint:.3f}, false selectivity {selective:.3f}\n")
    assert any_imprint <= 0.05
    assert selective <= 0.05

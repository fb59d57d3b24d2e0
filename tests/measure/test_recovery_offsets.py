"""Bases that are unknown, predicted or borrowed, and how sure each kind of comparison is."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from tests.measure.recovery_by_hand import REGISTRY, TEXT, make_study, pairs_study, results_of

from stemmatics.measure.recovery.ladder import ladder_results
from stemmatics.measure.recovery.offsets import (
    blind_results,
    borrowed_results,
    known_pairs,
    registry_rows,
    unknown_bases,
)
from stemmatics.measure.recovery.pairs import read_pairs, run_noise
from stemmatics.measure.recovery.uncertainty import another_corpus, uncertainty_results


def known_of(study, imported=()):
    losses = study.losses()
    pairs = read_pairs(losses, study.arms.pairs, run_noise(losses), np.random.default_rng(0))
    return losses, pairs, known_pairs(study.arms.pinned, pairs, imported)


def estimated_of(study, imported=()):
    losses, _, known = known_of(study, imported)
    unknown = unknown_bases(study.arms, losses, known)
    noise = run_noise(losses)
    return results_of(ladder_results(study.arms.pinned, losses, unknown, noise, np.random.default_rng(0)))


def imported_pair(number, residual, recipe, **more):
    return {
        "family": f"f{number}",
        "lab": "lab",
        "generation": "v2",
        "pipeline": "p",
        "recipe_class": "ordinary",
        "recipe_hash": recipe,
        "corpus_sha256": TEXT,
        "residual": residual,
        **more,
    }


def registry_study(rows):
    study = make_study(
        {"loose": {"regime": "sft", "lab": "lab", "generation": "v2", "pipeline": "p"}}, registry=REGISTRY
    )
    study.add_arm("loose", [1.5])
    recipe = study.arms.settings.recipe.hash("pool")
    study.add("registry", REGISTRY, registry=[row(recipe) for row in rows])
    return study


def test_imported_pairs_calibrate_under_the_same_recipe_and_text_only():
    study = registry_study(
        [
            lambda recipe: imported_pair(0, 0.01, recipe),
            lambda recipe: imported_pair(1, 0.03, recipe),
            lambda _: imported_pair(2, 0.20, "another recipe"),
            lambda recipe: imported_pair(3, 0.40, recipe, corpus_sha256="another text"),
        ]
    )
    same, others = registry_rows(study.arms, TEXT, study)
    assert [row["residual"] for row in same] == [0.01, 0.03]
    assert [row["residual"] for row in others] == [0.20, 0.40]
    found = estimated_of(study, same)
    estimate = found.only("recovery.estimated_base")
    assert estimate.value == pytest.approx(1.5 - 0.02)
    # documents are all alike
    assert found.only("recovery.estimated_base.elsewhere").hi == pytest.approx(estimate.hi)
    rule = found.category("recovery.rule", checkpoint="loose")
    assert (rule.value, rule.reason, rule.n) == ("own pair", "", 2)

    borrowed = results_of(borrowed_results(study.arms, study.losses(), others))
    assert borrowed.only("recovery.borrowed").value == pytest.approx(1.5 - 0.30)
    assert "borrowed" in borrowed.only("recovery.borrowed").note
    assert borrowed.category("recovery.borrowed.rule", checkpoint="loose").value == "own pair"
    assert borrowed_results(study.arms, study.losses(), []) == []


def test_pairs_of_another_generation_are_refused_by_name():
    study = make_study(
        {
            "base": {"regime": "base", "lab": "lab", "generation": "v1"},
            "tuned": {"base": "base", "regime": "sft", "lab": "lab"},
            "loose": {"regime": "sft", "lab": "lab", "generation": "v2"},
        }
    )
    study.add_arm("base", [1.0])
    study.add_arm("tuned", [1.2])
    study.add_arm("loose", [1.5])
    found = estimated_of(study)
    rule = found.category("recovery.rule", checkpoint="loose")
    assert rule.value == "published default"
    assert rule.reason == "the lab's pairs of v1 are of another generation"
    assert found.only("recovery.estimated_base").value == pytest.approx(1.5 - 0.01525)
    assert "v1" not in found.only("recovery.estimated_base").id


@pytest.mark.parametrize(("measured", "covered"), [(1.12, 1.0), (1.08, 1.0), (1.16, 0.0), (1.04, 0.0)])
def test_a_blind_prediction_is_compared_with_what_was_measured(measured, covered):
    study = make_study(
        {"base": {"regime": "base"}, "tuned": {"base": "base", "regime": "sft", "blind": True}}
    )
    study.add_arm("base", [measured])
    study.add_arm("tuned", [1.3])
    row = {"value": 1.10, "bar": 0.05, "rule": "class", "num_pairs": 11, "sha256": "ab" * 32}
    study.add("prediction", f"the base of tuned on {TEXT}", prediction=[row])
    found = results_of(blind_results(study.arms, study.losses(), study))
    predicted = found.only("recovery.blind")
    assert (predicted.value, predicted.lo, predicted.hi) == pytest.approx((1.10, 1.05, 1.15))
    assert (predicted.n, predicted.unit, predicted.subject["sha256"]) == (11, "pair", "ab" * 8)
    assert found.only("recovery.blind.error").value == pytest.approx(measured - 1.10)
    assert found.only("recovery.blind.covered").value == covered
    assert found.category("recovery.blind.rule", descendant="tuned").value == "class"


PIPELINE = {"regime": "sft", "lab": "lab", "generation": "v1", "pipeline": "p"}


def uncertainty_study():
    """Two bases and two releases of one pipeline whose residuals are 0.01 and 0.03.

    Some documents are harder than others, for every arm alike.
    """
    study = make_study(
        {
            "a": {"regime": "base"},
            "b": {"regime": "base"},
            "a-sft": {"base": "a", **PIPELINE},
            "b-sft": {"base": "b", **PIPELINE},
        },
        base_runs=2,
    )
    hard_N = np.array([0.3, -0.3, 0.2, -0.2])
    study.add_arm("a", [0.99 + hard_N, 1.01 + hard_N])
    study.add_arm("b", [1.99 + hard_N, 2.01 + hard_N])
    study.add_arm("a-sft", [1.01 + hard_N])
    study.add_arm("b-sft", [2.03 + hard_N])
    return study


def uncertainty_of(study):
    losses, pairs, known = known_of(study)
    return results_of(
        uncertainty_results(study.arms, losses, pairs, known, np.random.default_rng(0)),
        another_corpus([losses]),
    )


def test_two_releases_of_one_pipeline_differ_by_the_square_root_of_two():
    found = uncertainty_of(uncertainty_study())
    # the sd of 0.01 and 0.03 is 0.02 / sqrt(2); a difference of two such has sd 0.02
    width = found.only("recovery.uncertainty", comparison="one-pipeline")
    assert width.value == pytest.approx(stats.t.ppf(0.975, 1) * 0.02)
    assert (width.n, width.level) == (1, 0.95)


def test_half_widths_of_bases_and_of_a_pair_hold_the_run_noise():
    found = uncertainty_of(uncertainty_study())
    deviation, quantile = 0.02 / math.sqrt(2), stats.t.ppf(0.975, 2)
    # documents cancel in the difference: two arms of two runs, and two runs against one
    bases = found.only("recovery.uncertainty", comparison="two-bases")
    assert bases.value == pytest.approx(quantile * deviation * math.sqrt(1 / 2 + 1 / 2))
    assert bases.n == 1
    own = found.only("recovery.uncertainty", comparison="own-base")
    assert own.value == pytest.approx(quantile * deviation * math.sqrt(1 / 2 + 1))
    assert own.n == 2


def test_what_the_run_cannot_measure_is_a_published_default_and_says_why():
    found = uncertainty_of(uncertainty_study())
    sources = {
        source.subject["comparison"]: (source.value, source.reason)
        for source in found.categories("recovery.uncertainty.source")
    }
    assert sources["one-pipeline"] == ("this run", "")
    assert sources["other-labs"] == ("published default", "too few families with ordinary releases")
    assert sources["another-corpus"] == ("published default", "the run has one corpus")
    assert found.only("recovery.uncertainty", comparison="other-labs").value == 0.01
    assert found.only("recovery.uncertainty", comparison="other-labs-distilled").value == 0.03
    assert found.only("recovery.uncertainty.corpus").value == 0.70


def test_another_corpus_is_judged_by_the_order_of_the_models_on_both():
    first, second = (make_study({name: {"regime": "base"} for name in "abcd"}) for _ in range(2))
    for name, one, other in zip("abcd", (1.1, 1.2, 1.3, 1.4), (1.1, 1.3, 1.2, 1.4), strict=True):
        first.add_arm(name, [one])
        second.add_arm(name, [other])
    found = results_of(another_corpus([first.losses(), second.losses()]))
    rho = found.only("recovery.uncertainty.corpus")
    assert (rho.value, rho.n) == (pytest.approx(0.8), 4)
    assert found.category("recovery.uncertainty.source").value == "this run"


def many_families(num_families, residual_of):
    """A family of one base and one descendant each, of labs of their own."""
    names = [f"f{number}" for number in range(num_families)]
    return pairs_study(
        {name: [residual_of(number)] for number, name in enumerate(names)}, bases=dict.fromkeys(names, 1.0)
    )


def test_descendants_of_other_labs_differ_by_delta95_and_not_by_one_model_s_bar():
    residuals = [0.001 * number for number in range(9)]
    found = uncertainty_of(many_families(9, lambda number: residuals[number]))
    width = found.only("recovery.uncertainty", comparison="other-labs")
    gaps = [abs(a - b) for a, b in itertools.combinations(residuals, 2)]
    assert (width.value, width.level, width.n) == (pytest.approx(np.quantile(gaps, 0.95)), 0.95, 36)
    assert found.category("recovery.uncertainty.source", comparison="other-labs").value == "this run"
    distilled = found.category("recovery.uncertainty.source", comparison="other-labs-distilled")
    assert (distilled.value, distilled.reason) == (
        "published default",
        "too few families with distilled releases",
    )
    # eight families measure no difference across labs
    few = uncertainty_of(many_families(8, lambda number: residuals[number]))
    assert few.category("recovery.uncertainty.source", comparison="other-labs").value == "published default"


def test_every_half_width_is_of_one_level():
    found = uncertainty_of(many_families(9, lambda number: 0.001 * number))
    assert {width.level for width in found.all("recovery.uncertainty")} == {0.95}


def test_a_distilled_release_takes_nothing_from_its_lab_s_ordinary_pairs():
    known = {"regime": "sft", "lab": "lab", "generation": "v1", "pipeline": "p"}
    checkpoints = {name: {"regime": "base", "lab": "lab", "generation": "v1"} for name in "ab"}
    checkpoints |= {f"{name}-sft": {"base": name, **known} for name in "ab"}
    checkpoints["loose"] = {**known, "regime": "sft"}
    checkpoints["distilled"] = {**known, "regime": "distill"}
    study = make_study(checkpoints)
    for name, loss in {"a": 1.0, "b": 1.1, "a-sft": 1.010, "b-sft": 1.111}.items():
        study.add_arm(name, [loss])
    study.add_arm("loose", [1.3])
    study.add_arm("distilled", [1.3])
    found = estimated_of(study)
    rules = {rule.subject["checkpoint"]: rule.value for rule in found.categories("recovery.rule")}
    assert rules == {"loose": "own pair", "distilled": "published default"}
    assert found.only("recovery.offset", checkpoint="loose").value == pytest.approx(0.0105)
    assert found.only("recovery.offset", checkpoint="distilled").value == pytest.approx(0.045)


def test_where_one_may_be_distilled_two_ordinary_ones_say_nothing():
    names = [f"f{number}" for number in range(9)]
    checkpoints = {}
    for name in names:
        checkpoints[f"b-{name}"] = {"regime": "base", "family": name}
        checkpoints[f"d-{name}"] = {"base": f"b-{name}", "regime": "sft"}
        checkpoints[f"t-{name}"] = {"base": f"b-{name}", "regime": "distill"}
    study = make_study(checkpoints)
    ordinary = {name: 0.001 * number for number, name in enumerate(names)}
    distilled = {name: 0.05 + 0.002 * number for number, name in enumerate(names)}
    for name in names:
        study.add_arm(f"b-{name}", [1.0])
        study.add_arm(f"d-{name}", [1.0 + ordinary[name]])
        study.add_arm(f"t-{name}", [1.0 + distilled[name]])
    width = uncertainty_of(study).only("recovery.uncertainty", comparison="other-labs-distilled")
    gaps = [
        abs(one - other)
        for first, second in itertools.combinations(names, 2)
        for one, other in (
            (distilled[first], distilled[second]),
            (ordinary[first], distilled[second]),
            (distilled[first], ordinary[second]),
        )
    ]
    assert (width.value, width.n) == (pytest.approx(np.quantile(gaps, 0.95)), len(gaps))

"""The ladder's planted order and the study of released pairs are declared as they are meant."""

import itertools
from collections import Counter

import pytest

from stemmatics.core.load import load
from stemmatics.core.stages import Recovery, RecoveryRecipe
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.math.recovery import FEWEST_FAMILIES
from stemmatics.math.recovery.verdict import FEWEST_RUNS
from stemmatics.measure.recovery.needs import Arms, origin_of
from stemmatics.measure.recovery.settings import RecoverySettings
from stemmatics.presets import recovery
from stemmatics.presets.files import preset, preset_text
from stemmatics.presets.nursery.ladder import BASES, BLIND, DISTILLED, DISTILLED_ORPHAN, ORPHANS
from stemmatics.presets.nursery.verdicts import LOST, RUNS, SHIFT


def arms_of(stemma):
    pins = Pins(
        {name: {"weights": name} for name in stemma.checkpoints},
        {name: {"content_sha256": name, "num_documents": 9, "num_bytes": 900} for name in stemma.corpora},
    )
    settings = RecoverySettings.model_validate(stemma.measures["recovery"])
    return Arms(Pinned(stemma, pins), settings)


@pytest.mark.parametrize("name", ["ladder", "recovery", "verdicts"])
def test_a_preset_survives_its_file(name, tmp_path):
    (tmp_path / "stemma.yaml").write_text(preset_text(name), encoding="utf-8")
    stemma, _ = load(tmp_path / "stemma.yaml")
    assert stemma == preset(name)


def test_bases_are_planted_a_third_apart():
    steps = list(BASES.values())
    assert len(steps) >= 4
    for fewer, more in itertools.pairwise(steps):
        assert more / fewer == pytest.approx(4 / 3, abs=0.02)


def test_the_ladder_has_calibrated_unknown_and_blind_families():
    arms = arms_of(preset("ladder"))
    bases = [name for name in arms.names if arms.is_base(name)]
    assert bases == list(BASES)
    assert arms.base_unknown == [
        *(f"{name}-orphan" for name in ORPHANS), f"{DISTILLED_ORPHAN}-distilled-orphan",
    ]  # fmt: skip
    assert {base for base, _ in arms.blind_pairs} == {BLIND}
    classes = {pair: origin_of(arms.pinned, pair[1]).recipe_class for pair in arms.pairs}
    ordinary = [base for (base, name), kind in classes.items() if kind == "ordinary" and "-run-" not in name]
    # leaving one family out leaves enough families of the class for a bar
    assert Counter(ordinary) == dict.fromkeys(BASES, 2)
    assert len(BASES) - 1 >= FEWEST_FAMILIES
    # and leaving a distilled one out leaves another for the flag
    assert sorted(base for (base, _), kind in classes.items() if kind == "distilled") == sorted(DISTILLED)
    assert len(DISTILLED) > 1


def test_the_nursery_trains_no_arm_twice():
    stemma = preset("nursery")
    arms = arms_of(stemma)
    declared = [name for name, stage in stemma.stages.items() if isinstance(stage, Recovery)]
    assert declared == ["base-recovered", "register-shift-recovered", "lost-facts-recovered"]
    for name in declared:
        of = stemma.stages[name].init
        assert arms.pinned.checkpoint(name) == arms.arm(of)
        assert name not in arms.names


def test_the_verdicts_have_all_that_a_verdict_needs():
    arms = arms_of(preset("verdicts"))
    assert [descendant for _, descendant in arms.pairs] == [SHIFT, LOST]
    assert {arms.num_runs(name) for name in arms.names} == {RUNS}
    assert RUNS >= FEWEST_RUNS
    assert arms.second_pool_pairs == arms.pairs
    labels = [fact.label for fact in arms.facts()]
    # runs of descendants are facts like those of bases, their replies too
    for name in ("base", SHIFT, LOST):
        for run in range(1, RUNS):
            assert f"{name} recovered on recovery, run {run} on heldout" in labels
            assert f"{name} recovered on recovery, run {run} asked recall" in labels


def test_s1_is_as_published():
    recipe = RecoveryRecipe.model_validate("S1")
    assert (recipe.lora.rank, recipe.lora.targets) == (256, "all-linear")
    assert recipe.updates * recipe.update_tokens == 8_192_000
    pool = recovery.web_text()
    assert pool.revision == recovery.COMMIT
    assert len(recovery.COMMIT) == 40


def test_a_hash_follows_settings_and_pool():
    recipe = RecoveryRecipe.model_validate("nano")
    assert recipe.hash("a") == RecoveryRecipe.model_validate(recipe.model_dump()).hash("a")
    assert recipe.hash("a") != recipe.hash("b")
    changed = recipe.model_copy(update={"learning_rate": 1e-3})
    assert changed.hash("a") != recipe.hash("a")

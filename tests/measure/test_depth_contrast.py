"""The controlled experiment on hand-made tables: the difference by seed, and over seeds."""

import numpy as np
import pytest
from tests.measure.depth_tables import ARMS, SEEDS, HandMade, cell_rows, pinned, results_of, texts_of

from stemmatics.core.errors import UserError
from stemmatics.measure.depth.needs import contrast_pairs
from stemmatics.measure.depth.settings import DepthSettings

ITEMS = 40
SIZES = dict(zip(ARMS, (1.0, 4.0), strict=True))
CONTRAST = {
    name: {"descendants": [f"{arm}-{seed}" for seed in range(SEEDS)], "events": f"{arm}-events"}
    for name, arm in zip(("first", "second"), ARMS, strict=True)
}
SETTINGS = DepthSettings.model_validate({"contrast": CONTRAST})


def interactions(rng):
    """Item effects are shared by both arms; each seed has its own shift."""
    items = rng.normal(size=ITEMS)
    return {
        f"{arm}-{seed}": size + items + rng.normal(0, 0.2) + rng.normal(0, 0.1, size=ITEMS)
        for arm, size in SIZES.items()
        for seed in range(SEEDS)
    }


def results(by_descendant, **settings):
    """Effect after base 1.5, after the descendant 1.5 more than the interaction given, item by item."""
    tables = HandMade(
        by_descendant={
            name: {"cells": cell_rows([(-1.0, 0.5, 0.0, 1.5 + x) for x in items], support="manifest")}
            for name, items in by_descendant.items()
        },
        **settings,
    )
    return results_of(tables, SETTINGS, np.random.default_rng(0))


def test_the_difference_is_paired_by_item_and_its_interval_is_over_seeds():
    values = interactions(np.random.default_rng(1))
    found = results(values)
    for number, arm in (("first", "familiar"), ("second", "nonce")):
        for seed in range(SEEDS):
            interaction = found.only("depth.contrast.interaction", arm=number, seed=str(seed + 1))
            assert interaction.value == pytest.approx(np.mean(values[f"{arm}-{seed}"]), abs=1e-9)
            assert interaction.subject["descendant"] == f"{arm}-{seed}"
    by_seed = [
        np.mean(values[f"nonce-{seed}"]) - np.mean(values[f"familiar-{seed}"]) for seed in range(SEEDS)
    ]
    for seed, expected in enumerate(by_seed):
        difference = found.only("depth.contrast.by_seed", seed=str(seed + 1))
        assert difference.value == pytest.approx(expected, abs=1e-9)
        # items are shared, so the paired interval is far narrower than their spread
        assert difference.hi - difference.lo < 0.15
    over = found.only("depth.contrast.difference", noise="seeds")
    assert over.value == pytest.approx(np.mean(by_seed), abs=1e-9)
    assert (over.n, over.unit, over.method) == (SEEDS, "seed", "t")
    error = np.std(by_seed, ddof=1) / np.sqrt(SEEDS)
    assert over.hi - over.value == pytest.approx(4.302653 * error, rel=1e-6)
    assert found.only("depth.contrast.difference", noise="items and seeds").value == over.value


def test_the_p_value_is_that_of_all_sign_assignments_of_the_seeds():
    found = results(interactions(np.random.default_rng(1)))
    assert found.only("depth.contrast.p").value == found.only("depth.contrast.smallest_p").value == 0.25
    ones = np.ones(ITEMS)
    # differences 3, 1 and -1: the sum of 3 is reached by six of the eight sign assignments
    values = {f"familiar-{seed}": 0 * ones for seed in range(SEEDS)}
    values |= {f"nonce-{seed}": size * ones for seed, size in enumerate((3, 1, -1))}
    found = results(values)
    assert found.only("depth.contrast.difference", noise="seeds").value == pytest.approx(1.0)
    assert found.only("depth.contrast.p").value == 6 / 8
    assert found.only("depth.contrast.smallest_p").value == 0.25


def test_the_interval_over_seeds_covers_the_truth():
    covered = 0
    for seed in range(40):
        found = results(interactions(np.random.default_rng(seed)))
        over = found.only("depth.contrast.difference", noise="seeds")
        covered += over.lo <= 3.0 <= over.hi
    # 95% nominal; three standard errors of 40 sets below it
    assert covered >= 34


def test_the_sentence_names_the_smallest_p():
    found = results(interactions(np.random.default_rng(1)))
    texts = texts_of(found, SETTINGS)
    (sentence,) = [text for text in texts if "second arm" in text]
    assert "smallest attainable p = 0.250" in sentence
    assert "n = 3 seeds" in sentence
    assert any("say nothing about free generation" in text for text in texts)


def test_an_arm_without_a_model_has_no_difference():
    assert not results(interactions(np.random.default_rng(1)), missing=("nonce-2",))


def test_a_pair_that_was_refused_leaves_its_refusal():
    values = interactions(np.random.default_rng(1))
    tables = HandMade(
        {"cells": cell_rows([(0.0, 0.0, 0.0, 1.0)] * ITEMS, support="manifest")},
        by_descendant={"nonce-2": {"crossing": [{"num_events": 0, "refusal": "RoPE differs"}]}},
    )
    found = results_of(tables, SETTINGS, np.random.default_rng(0))
    (refusal,) = found.values()
    assert (refusal.quantity, refusal.reason) == ("depth.interaction", "RoPE differs")
    assert refusal.subject["descendant"] == "nonce-2"
    # also if the same pair is refused on the same manifest outside the contrast
    both = DepthSettings.model_validate(
        {"contrast": CONTRAST, "manifest": "nonce-events", "descendants": ["nonce-2"]}
    )
    assert list(results_of(tables, both, np.random.default_rng(0))) == [refusal.id]
    assert values


def test_arms_must_match():
    values = interactions(np.random.default_rng(1))
    values["nonce-1"] = values["nonce-1"][:-1]
    with pytest.raises(UserError, match="different numbers of events"):
        results(values)
    uneven = {
        "first": {"descendants": ["a"], "events": "e"},
        "second": {"descendants": ["a", "b"], "events": "e"},
    }
    with pytest.raises(ValueError, match="same number of descendants"):
        DepthSettings.model_validate({"contrast": uneven})
    rootless = {
        "first": {"descendants": ["base"], "events": "nonce-events"},
        "second": {"descendants": ["nonce-1"], "events": "nonce-events"},
    }
    with pytest.raises(UserError, match="'base' in a contrast has no base"):
        contrast_pairs(pinned(), DepthSettings.model_validate({"contrast": rootless}))

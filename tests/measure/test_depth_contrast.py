"""The controlled experiment's arithmetic on made sums: the difference by seed, over seeds, and its floor."""

import numpy as np
import pyarrow as pa
import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.measure.depth import Depth
from stemmatics.measure.depth.contrast import contrast_questions
from stemmatics.measure.depth.needs import DepthSettings

SEEDS, ITEMS = 3, 40
ARMS = {"familiar": 1.0, "nonce": 4.0}
SIZE = {"num_documents": 9, "num_bytes": 900}


def pinned():
    made = {"kind": "alter", "init": "base", "base": "base", "change": "noise"}
    names = [f"{arm}-{seed}" for arm in ARMS for seed in range(SEEDS)]
    return Pinned(
        Stemma.model_validate(
            {
                "checkpoints": {"base": {"source": "base"}},
                "stages": {name: {**made, "scale": 0.1 + place} for place, name in enumerate(names)},
                "corpora": {f"{arm}-events": {"path": "events.jsonl", "role": "data"} for arm in ARMS},
            }
        ),
        Pins(
            {"base": {"weights": "0"}},
            {f"{arm}-events": {"content_sha256": arm, **SIZE} for arm in ARMS},
        ),
    )


def settings():
    arms = [
        {"descendants": [f"{arm}-{seed}" for seed in range(SEEDS)], "events": f"{arm}-events"} for arm in ARMS
    ]
    return DepthSettings.model_validate({"contrast": dict(zip(("first", "second"), arms, strict=True))})


class Made:
    """Tables with known interactions, by descendant."""

    def __init__(self, interactions):
        self.interactions = interactions

    def has(self, fact):
        return fact.needs["descendant"].label in self.interactions

    def read(self, fact, table):
        values = self.interactions[fact.needs["descendant"].label]
        if table == "crossing":
            return pa.table({"main_boundary": [2], "num_layers": [4], "num_events": [len(values)]})
        rows = [
            {
                "event": event,
                "index": event,
                "support": "manifest",
                "boundary": 2,
                "readout": readout,
                "arm": "main",
                "base_base": -1.0,
                "base_desc": 0.5,
                "desc_base": 0.0,
                "desc_desc": 1.5 + value,
                "changed_after_base": 0,
                "changed_after_desc": 1,
                "distance": 0.2,
            }
            for event, value in enumerate(values)
            for readout in ("descendant", "base")
        ]
        return pa.Table.from_pylist(rows)


def interactions(rng, arms=ARMS):
    """Item effects are shared by both arms; each seed has its own shift."""
    items = rng.normal(size=ITEMS)
    return {
        f"{arm}-{seed}": size + items + rng.normal(0, 0.2) + rng.normal(0, 0.1, size=ITEMS)
        for arm, size in arms.items()
        for seed in range(SEEDS)
    }


def estimates_of(values):
    found = Depth().estimate(pinned(), settings(), Made(values), np.random.default_rng(0))
    return {one.id: one for one in found}


def test_the_difference_is_paired_by_item_and_judged_over_seeds():
    values = interactions(np.random.default_rng(1))
    found = estimates_of(values)
    by_seed = [
        np.mean(values[f"nonce-{seed}"]) - np.mean(values[f"familiar-{seed}"]) for seed in range(SEEDS)
    ]
    for seed, expected in enumerate(by_seed):
        one = found[f"depth.contrast.by_seed/seed={seed + 1}"]
        assert one.value == pytest.approx(expected, abs=1e-9)
        # items are shared, so that the paired interval is far narrower than their spread
        assert one.hi - one.lo < 0.15
    over = found["depth.contrast.difference/noise=seeds"]
    assert over.value == pytest.approx(np.mean(by_seed), abs=1e-9)
    assert (over.n, over.unit, over.method) == (SEEDS, "seed", "t")
    error = np.std(by_seed, ddof=1) / np.sqrt(SEEDS)
    assert over.hi - over.value == pytest.approx(4.302653 * error, rel=1e-6)
    assert found["depth.contrast.p"].value == found["depth.contrast.smallest_p"].value == 0.25
    both = found["depth.contrast.difference/noise=items and seeds"]
    assert both.value == over.value


def test_the_interval_over_seeds_covers_the_truth():
    held = 0
    for seed in range(40):
        over = estimates_of(interactions(np.random.default_rng(seed)))[
            "depth.contrast.difference/noise=seeds"
        ]
        held += over.lo <= 3.0 <= over.hi
    # 95% nominal; three standard errors of 40 sets below it
    assert held >= 34


def test_the_sentence_names_the_smallest_p():
    found = estimates_of(interactions(np.random.default_rng(1)))
    said = Depth().findings(pinned(), settings(), found).sentences
    (sentence,) = [one for one in said if "second arm" in one.text]
    assert "the smallest that can be reached is 0.250" in sentence.plain(found)
    assert any("Nothing follows about free generation" in one.text for one in said)


def test_an_arm_without_a_model_has_no_difference():
    values = interactions(np.random.default_rng(1))
    del values["nonce-2"]
    assert not estimates_of(values)


def test_arms_must_match():
    values = interactions(np.random.default_rng(1))
    values["nonce-1"] = values["nonce-1"][:-1]
    with pytest.raises(UserError, match="other numbers of events"):
        estimates_of(values)
    uneven = {
        "first": {"descendants": ["a"], "events": "e"},
        "second": {"descendants": ["a", "b"], "events": "e"},
    }
    with pytest.raises(ValueError, match="as many descendants"):
        DepthSettings.model_validate({"contrast": uneven})
    rootless = {
        "first": {"descendants": ["base"], "events": "nonce-events"},
        "second": {"descendants": ["nonce-1"], "events": "nonce-events"},
    }
    with pytest.raises(UserError, match="'base' in a contrast has no base"):
        contrast_questions(pinned(), DepthSettings.model_validate({"contrast": rootless}))

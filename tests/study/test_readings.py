"""How often checkpoints are loaded, run over a text, and texts tokenised: counted from events."""

import numpy as np
import pytest
from tests.study.stored import sums

from stemmatics.commands.compare import pair_stemma
from stemmatics.core.numerics import Numerics
from stemmatics.probe import sources
from stemmatics.study import run as study
from stemmatics.study.readings import LOAD, PASS, TOKENIZE, Readings


@pytest.fixture
def compared(tiny, prior_folder, tmp_path):
    """Runs a comparison of a pair that lost, so that every floor is made, and counts what was read."""

    def run(name, **changes):
        readings = Readings()
        texts = [prior_folder / "text.jsonl"]
        stemma = pair_stemma(str(prior_folder / "base"), str(tiny / "base"), texts)
        outcome = study.run(stemma.model_copy(update=changes), tmp_path / name, on_event=readings.event)
        assert not outcome.failures
        return readings

    return run


def test_events_are_counted_by_what_was_read():
    readings = Readings()
    for event in (
        {"kind": "load", "label": "base", "spent": 1.0},
        {"kind": "load", "label": "base", "spent": 2.0},
        {"kind": "pass", "label": "base", "corpus": "a", "num_tokens": 7, "spent": 0.5},
        {"kind": "progress", "label": "base"},
        {"key": "k", "probe": "score", "label": "base", "seconds": 9.0},
    ):
        readings.event(event)
    assert readings.times(LOAD) == {"base": 2}
    assert readings.times(TOKENIZE) == {}
    assert readings.rows() == [
        {"stage": "load base", "seconds": 3.0, "times": 2},
        {"stage": "pass base", "seconds": 0.5, "times": 1, "tokens": 7},
    ]


def test_a_comparison_loads_each_checkpoint_once_and_reads_each_text_once(compared):
    readings = compared("pair")
    assert readings.times(LOAD) == {"base": 1, "descendant": 1}
    assert readings.times(TOKENIZE) == {"text": 1}
    passes = readings.times(PASS)
    assert passes.pop("base, damaged") > 1
    # divergence reads the base again with itself and in two other settings: the numerical floor
    floor = {"base, itself": 1, "base, bfloat16": 1, "base, attention": 1}
    assert passes == {"base": 1, "descendant": 1, "base, control": 1, "descendant, control": 1, **floor}


def test_several_workers_load_each_checkpoint_at_most_once_each(compared, tmp_path):
    compared("one")
    readings = compared("two", numerics=Numerics(workers=2))
    assert all(count <= 2 for count in readings.times(LOAD).values())
    ours, theirs = sums(tmp_path / "one"), sums(tmp_path / "two")
    assert ours.keys() == theirs.keys()
    for name, numbers in ours.items():
        np.testing.assert_allclose(theirs[name], numbers, rtol=1e-6, err_msg=str(name))


def test_without_room_for_two_the_same_numbers_come_from_more_loads(compared, tmp_path, monkeypatch):
    compared("whole")
    monkeypatch.setattr(sources, "available_bytes", lambda _device: 0)
    readings = compared("tight")
    assert readings.times(LOAD)["base"] > 1
    ours, theirs = sums(tmp_path / "whole"), sums(tmp_path / "tight")
    assert ours.keys() == theirs.keys()
    assert ours == theirs


def test_descendants_of_one_base_share_its_pass(tiny, tmp_path):
    """And a descendant's own loss, which its floor is matched to, comes from the pass that scored it."""
    descendants = [str(tiny / "tuned"), str(tiny / "other")]
    stemma = pair_stemma(str(tiny / "base"), descendants, [tiny / "a.jsonl"])
    readings = Readings()
    assert not study.run(stemma, tmp_path / "run", on_event=readings.event).failures
    assert readings.times(LOAD) == {"base": 1, "tuned": 1, "other": 1}
    passes = readings.times(PASS)
    assert passes.pop("base, damaged") > 1
    once = ("base", "base, itself", "base, bfloat16", "base, attention", "base, control")
    each = ("tuned", "other", "tuned, control", "other, control")
    assert passes == dict.fromkeys((*once, *each), 1)
    assert readings.times(TOKENIZE) == {"text": 1}


def test_several_descendants_have_the_numbers_of_one(tiny, tmp_path):
    """Quantities of a pair do not depend on what it is compared beside."""
    base, text = str(tiny / "base"), [tiny / "a.jsonl"]
    measures = ["loss", "divergence"]
    alone = study.run(pair_stemma(base, str(tiny / "tuned"), text), tmp_path / "alone", only=measures)
    beside = study.run(
        pair_stemma(base, [str(tiny / "other"), str(tiny / "tuned")], text),
        tmp_path / "beside",
        only=measures,
    )
    subjects = {name: {} for name in ("descendant", "tuned")}
    for outcome in (alone, beside):
        for estimate in outcome.content.results.estimates():
            name = estimate.subject.get("descendant")
            if name in subjects and estimate.quantity in {"loss.delta", "divergence.kl"}:
                subject = {**estimate.subject, "descendant": ""}
                subjects[name][estimate.quantity, *sorted(subject.items())] = estimate.value
    assert subjects["descendant"]
    assert subjects["descendant"] == subjects["tuned"]

"""The main job at its smallest: a nursery of a minute, from nothing to a verified report."""

import pytest

from stemmatics.presets.files import preset
from stemmatics.store.cache import Cache
from stemmatics.study.read import open_run
from stemmatics.study.run import run
from stemmatics.study.verify import verify

# The other measures have smaller pairs of their own, and all meet in tests/known.
ASKED = ["loss", "gate"]


@pytest.fixture(scope="module")
def small_nursery(tmp_path_factory):
    root = tmp_path_factory.mktemp("nursery") / "run"
    return run(preset("nursery", scale="test"), root, only=ASKED)


def test_the_nursery_is_made_and_passes_its_gate(small_nursery):
    assert small_nursery.failures == {}
    passed = {
        one.subject["check"]: one.value
        for one in small_nursery.content.results.values()
        if one.quantity == "gate.passed"
    }
    assert len(passed) == 13
    assert {name for name, value in passed.items() if value != 1.0} == set()


def test_its_report_is_verified(small_nursery):
    verdict = verify(small_nursery.root)
    assert verdict.problems == []
    assert verdict.num_holding == verdict.num_claims > 1000


def test_names_need_not_be_in_alphabetical_order(small_nursery):
    # the order of a stemma is part of what was asked: read back, it is the same
    names = open_run(small_nursery.root).pinned.stemma.names
    assert names == preset("nursery", scale="test").names
    assert names != sorted(names)


def test_every_difference_adds_up_from_its_parts(small_nursery):
    estimates = small_nursery.content.results.values()
    whole = {
        one.subject["descendant"]: one.value
        for one in estimates
        if one.quantity == "loss.delta.byte" and one.subject["register"] == "all"
    }
    assert len(whole) == 12
    for axis in ("token_class", "position", "frequency"):
        parts = dict.fromkeys(whole, 0.0)
        for one in estimates:
            if one.quantity == "loss.where" and one.subject["axis"] == axis:
                parts[one.subject["descendant"]] += one.value
        assert parts == pytest.approx(whole, abs=1e-12)


def test_altered_models_lose_as_they_must(small_nursery):
    delta = {
        (one.subject["descendant"], one.subject["register"]): one
        for one in small_nursery.content.results.values()
        if one.quantity == "loss.delta.byte"
    }
    # the second family is hardly trained at this scale: damage to it is too small to be seen
    for name in ("noise", "second-bias"):
        assert delta[name, "all"].lo > 0
    # false facts hurt the register that states them
    assert delta["lost-facts", "prose"].lo > 0


def test_our_sums_are_those_of_a_plain_loop(small_nursery):
    controls = [one for one in small_nursery.content.results.values() if one.quantity == "loss.control"]
    assert len(controls) == 19
    assert max(one.value for one in controls) < 1e-6


def test_checkpoints_are_plain_transformers_folders(small_nursery):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pinned = open_run(small_nursery.root).pinned
    for name in ("base", "dpo", "second-bias"):
        folder = Cache().find(pinned.checkpoint(name).key)
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer.chat_template
        ids = tokenizer("Abrel was born in", return_tensors="pt").input_ids
        assert model(ids).logits.isfinite().all()


def test_a_second_run_makes_nothing(small_nursery):
    events = []
    again = run(preset("nursery", scale="test"), small_nursery.root, only=ASKED, on_event=events.append)
    assert again.digest == small_nursery.digest
    assert events == [{"plan": []}]

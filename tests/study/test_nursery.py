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
    results = small_nursery.content.results
    checks = {check.subject["check"]: check.value for check in results.categories("gate.check")}
    assert len(checks) == 13
    assert {name for name, value in checks.items() if value != "passed"} == set()
    gate = results.category("gate.passed")
    assert (gate.value, gate.reason, gate.n) == ("passed", "every check passed", 13)


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
    results = small_nursery.content.results
    whole = {
        delta.subject["descendant"]: delta.value for delta in results.all("loss.delta.byte", register="all")
    }
    assert len(whole) == 12
    for axis in ("token_class", "position", "frequency"):
        sums = dict.fromkeys(whole, 0.0)
        for part in results.all("loss.where", axis=axis):
            sums[part.subject["descendant"]] += part.value
        assert sums == pytest.approx(whole, abs=1e-12)


def test_altered_models_lose_as_they_must(small_nursery):
    results = small_nursery.content.results
    # the second family is hardly trained at this scale: damage to it is too small to be seen
    for name in ("noise", "second-bias"):
        assert results.category("loss.verdict", descendant=name).value == "lost"
    # false facts hurt the register that states them
    assert results.only("loss.delta.byte", descendant="lost-facts", register="prose").lo > 0


def test_our_sums_are_those_of_a_plain_loop(small_nursery):
    controls = small_nursery.content.results.all("loss.control")
    assert len(controls) == 19
    assert max(control.value for control in controls) < 1e-6


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

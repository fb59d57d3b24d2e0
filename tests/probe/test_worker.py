"""A group of facts: each is made or fails by itself, and is stored as soon as it is done."""

import pyarrow as pa
import pytest

from stemmatics.core import plugins
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, to_json
from stemmatics.probe import worker
from stemmatics.probe.base import Context, FactOutput, Failed, each, reason_of
from stemmatics.store.ledger import Ledger

FACTS = [Fact("toy", 1, {"n": n}, label=f"fact {n}") for n in range(4)]
ROWS = {"toy": pa.table({"x": [1]})}


class Toy:
    """Makes facts by a function of the fact's number."""

    def __init__(self, make):
        self.make = make

    def run(self, facts, context):
        del context
        yield from self.make(facts)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs all four facts through the worker by a probe made for the test."""
    monkeypatch.setattr(worker, "prepare_torch", lambda _numerics: None)

    def run_group(make):
        monkeypatch.setattr(plugins, "find", lambda _kind, _name: lambda: Toy(make))
        job = {
            "facts": to_json(FACTS),
            "keys": [fact.key for fact in FACTS],
            "run": str(tmp_path / "run"),
            "cache": str(tmp_path / "cache"),
            "numerics": {},
            "seed": 0,
        }
        failed = worker.run_group(job, lambda _event: None)
        return Ledger(tmp_path / "run"), {key: failed.get(key, "") for key in job["keys"]}

    return run_group


def keys(*numbers):
    return sorted(FACTS[number].key for number in numbers)


def test_what_one_fact_throws_fails_that_one_alone(run):
    def one(fact):
        if fact.params["n"] == 1:
            raise UserError("no text", "the file is empty", "Give another")
        if fact.params["n"] == 2:
            raise ZeroDivisionError("by zero")
        return FactOutput(fact, ROWS)

    ledger, reasons = run(lambda facts: each(facts, one))
    assert ledger.done() == keys(0, 3)
    assert reasons[FACTS[1].key] == "no text. The file is empty. Give another."
    assert reasons[FACTS[2].key].startswith("ZeroDivisionError: by zero (test_worker.py:")
    assert {key: found["reason"] for key, found in ledger.failures().items()} == {
        key: reason for key, reason in reasons.items() if reason
    }


def test_what_was_made_before_a_probe_breaks_is_kept(run):
    def make(facts):
        yield FactOutput(facts[0], ROWS)
        raise MemoryError("no room")

    ledger, reasons = run(make)
    assert ledger.done() == keys(0)
    assert all("MemoryError: no room" in reasons[fact.key] for fact in FACTS[1:])


def test_a_fact_that_a_probe_forgot_has_failed(run):
    ledger, reasons = run(lambda facts: (FactOutput(fact, ROWS) for fact in facts[:3]))
    assert ledger.done() == keys(0, 1, 2)
    assert reasons[FACTS[3].key] == "its probe ended without making it"


def test_a_probe_may_say_that_a_fact_failed(run):
    ledger, reasons = run(lambda facts: (Failed(fact, "not finite") for fact in facts))
    assert ledger.done() == []
    assert set(reasons.values()) == {"not finite"}


def test_an_interrupt_is_no_failure(run):
    def make(facts):
        yield FactOutput(facts[0], ROWS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make)


def test_rows_that_can_not_be_stored_fail_their_fact(run):
    def make(facts):
        yield FactOutput(
            facts[0], {"training": pa.table({"step": ["first"], "loss": [0.1], "num_tokens": [1]})}
        )

    ledger, reasons = run(make)
    assert ledger.done() == []
    assert all(reasons.values())
    assert "ArrowInvalid" in reasons[FACTS[0].key]


def test_a_reason_is_one_line_with_its_place():
    def burst():
        message = "one\n two"
        raise ValueError(message)

    with pytest.raises(ValueError, match="two") as caught:
        burst()
    assert reason_of(caught.value).startswith("ValueError: one two (test_worker.py:")


def test_progress_names_the_fact(tmp_path):
    seen = []
    context = Context(Ledger(tmp_path), None, None, 0, on_event=seen.append)
    context.report(FACTS[0], 3, 9, "tokens")
    assert seen == [
        {"key": FACTS[0].key, "probe": "toy", "label": "fact 0", "done": 3, "total": 9, "unit": "tokens"}
    ]


def test_a_checkpoint_that_is_gone_is_named(tmp_path):
    from stemmatics.store.cache import Cache

    context = Context(Ledger(tmp_path), Cache(tmp_path / "cache"), None, 0)
    with pytest.raises(UserError, match="'fact 0' is not in the cache"):
        context.artifact_path(FACTS[0])

"""Which facts run when, together with which, and what a failure or a killed worker costs."""

from pathlib import Path

import pytest

from stemmatics.core import plugins
from stemmatics.core.facts import Fact, closure
from stemmatics.core.numerics import Numerics
from stemmatics.probe.base import NoModel
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study import execute as execute_module
from stemmatics.study.execute import Queue, execute
from stemmatics.study.plan import Plan


class Light(NoModel):
    """Stands for reading a text."""


class OnModel:
    """Stands for what one checkpoint is loaded for."""

    def group(self, fact):
        return fact.needs["checkpoint"].key


@pytest.fixture
def probes(monkeypatch):
    known = {"weights": Light, "corpus": Light, "score": OnModel, "prior": OnModel, "train": Light}
    monkeypatch.setattr(plugins, "find", lambda _group, name: known[name])


def fact(probe, label, **needs):
    return Fact(probe, 1, {"label": label}, needs, label=label)


def plan(*facts, failed=()):
    everything = closure(facts)
    return Plan(everything, dict(everything), {one.key: "it broke" for one in failed})


def labels(groups):
    return [[one.label for one in group] for group in groups]


@pytest.fixture
def pair():
    """Two checkpoints, two texts, and what is measured of them, in an order that mixes them."""
    base, tuned = fact("weights", "base"), fact("weights", "tuned")
    a, b = fact("corpus", "a"), fact("corpus", "b")
    scores = [
        fact(probe, f"{probe} {model.label} {text.label}", checkpoint=model, corpus=text)
        for probe in ("score", "prior")
        for text in (a, b)
        for model in (base, tuned)
    ]
    return base, tuned, a, b, scores


def test_facts_of_one_checkpoint_are_one_job_whatever_their_probes(probes, pair):
    *light, scores = pair
    queue = Queue(plan(*scores))
    assert sorted(labels(queue.ready_groups())) == [["a"], ["b"], ["base"], ["tuned"]]
    for one in light[:-1]:
        queue.finish([one.key], {})
        # the last text would split the jobs
        assert queue.ready_groups() == []
    queue.finish([light[-1].key], {})
    assert labels(queue.ready_groups()) == [
        ["score base a", "score base b", "prior base a", "prior base b"],
        ["score tuned a", "score tuned b", "prior tuned a", "prior tuned b"],
    ]
    assert queue.ready_groups() == []


def test_what_nobody_waits_for_keeps_nobody_waiting(probes, pair):
    base, _, a, _, scores = pair
    lone = fact("corpus", "lone")
    queue = Queue(plan(lone, scores[0]))
    assert labels(queue.ready_groups()) == [["base"], ["a"]]
    queue.finish([base.key, a.key], {})
    assert sorted(labels(queue.ready_groups())) == [["lone"], ["score base a"]]


def test_a_failure_stops_what_needs_it_and_no_more(probes, pair):
    base, tuned, a, b, scores = pair
    late = fact("prior", "late", checkpoint=base, score=scores[0])
    queue = Queue(plan(*scores, late))
    queue.ready_groups()
    queue.finish([base.key, tuned.key, b.key], {a.key: "no such file"})
    assert queue.failed[scores[0].key] == "it needs 'a' (corpus), which failed"
    assert queue.failed[late.key] == "it needs 'score base a' (score), which failed"
    assert labels(queue.ready_groups()) == [
        ["score base b", "prior base b"],
        ["score tuned b", "prior tuned b"],
    ]


def test_what_failed_before_is_not_tried_again(probes, pair):
    base, tuned, a, b, scores = pair
    queue = Queue(plan(*scores, failed=[tuned]))
    assert sorted(labels(queue.ready_groups())) == [["a"], ["b"], ["base"]]
    queue.finish([base.key, a.key, b.key], {})
    assert len(queue.ready_groups()) == 1
    assert {key for key in queue.failed if key != tuned.key} == {
        one.key for one in scores if one.needs["checkpoint"] is tuned
    }


def test_a_killed_worker_costs_the_fact_that_killed_it(tmp_path, monkeypatch):
    """Of a job with many facts; those after the killer are run again without it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(execute_module, "WORKER", "toy_workers:record_or_die")
    base = Fact("weights", 1, {"n": "base"}, label="base")
    facts = {
        label: Fact("score", 1, {"n": label}, {"checkpoint": base}, label=label)
        for label in ("first", "killer", "broken", "third", "fourth")
    }
    everything = closure(facts.values())
    ledger = Ledger(tmp_path / "run")
    failed = execute(
        Plan(everything, dict(everything), {}),
        ledger,
        Cache(tmp_path / "cache"),
        numerics=Numerics(workers=2),
        seed=0,
        on_event=lambda _event: None,
    )
    assert set(failed) == {facts["killer"].key, facts["broken"].key}
    assert "was killed" in failed[facts["killer"].key]
    assert failed[facts["broken"].key] == "told to"
    assert set(ledger.done()) == {base.key, *(facts[name].key for name in ("first", "third", "fourth"))}
    assert set(ledger.failures()) == set(failed)

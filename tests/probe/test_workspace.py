"""What a worker keeps is bounded, and what was used last stays longest."""

from dataclasses import dataclass

import pytest

from stemmatics.probe.workspace import Kept, Resident, Workspace


@dataclass
class Value:
    num_bytes: int


def test_what_was_used_longest_ago_goes_first():
    kept = Kept(30)
    for name in "abc":
        kept.put(name, Value(10))
    assert kept.find("a") is not None
    kept.put("d", Value(10))
    assert [name for name in "abcd" if kept.find(name)] == ["a", "c", "d"]


def test_the_newest_stays_however_large():
    kept = Kept(30)
    kept.put("a", Value(10))
    kept.put("b", Value(100))
    assert kept.find("a") is None
    assert kept.find("b").num_bytes == 100
    assert len(kept) == 1


def test_room_is_made_before_something_comes():
    kept = Kept(30)
    kept.put("a", Value(10))
    kept.put("b", Value(10))
    kept.make_room(10)
    assert len(kept) == 2
    kept.make_room(11)
    assert kept.find("a") is None
    kept.make_room(1000, keep=1)
    assert kept.find("b") is not None


def test_without_a_bound_all_stays():
    kept = Kept()
    for place in range(100):
        kept.put(place, Value(1 << 40))
    assert len(kept) == 100


@pytest.mark.parametrize(("num_workers", "bound"), [(1, 500), (4, 125)])
def test_workers_share_the_memory_that_was_there_first(num_workers, bound):
    workspace = Workspace()
    workspace.bound_models(lambda: 1000, num_workers)
    workspace.bound_models(lambda: 10, num_workers)
    assert workspace.models.max_bytes == bound


def test_notes_go_with_the_model():
    workspace, model = Workspace(), object()
    workspace.models.put("a", Resident(model, 10))
    workspace.notes_of(model)["size"] = 3
    assert workspace.notes_of(model) == {"size": 3}
    workspace.notes_of("another")["size"] = 4
    assert workspace.notes_of("another") == {}

"""What a worker keeps is bounded, and what was used last stays longest."""

from dataclasses import dataclass

import pytest

from stemmatics.probe.workspace import LeastRecentlyUsed, Resident, Workspace


@dataclass
class Value:
    num_bytes: int


def test_what_was_used_longest_ago_goes_first():
    values = LeastRecentlyUsed(30)
    for name in "abc":
        values.put(name, Value(10))
    assert values.find("a") is not None
    values.put("d", Value(10))
    assert [name for name in "abcd" if values.find(name)] == ["a", "c", "d"]


def test_the_newest_stays_however_large():
    values = LeastRecentlyUsed(30)
    values.put("a", Value(10))
    values.put("b", Value(100))
    assert values.find("a") is None
    assert values.find("b").num_bytes == 100
    assert len(values) == 1


def test_room_is_made_before_something_comes():
    values = LeastRecentlyUsed(30)
    values.put("a", Value(10))
    values.put("b", Value(10))
    values.make_room(10)
    assert len(values) == 2
    values.make_room(11)
    assert values.find("a") is None
    values.make_room(1000, keep=1)
    assert values.find("b") is not None


def test_without_a_bound_all_stays():
    values = LeastRecentlyUsed()
    for place in range(100):
        values.put(place, Value(1 << 40))
    assert len(values) == 100


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

"""Crossed cells as facts: which supports get which arms, flags of the top token, identity, refusals."""

from pathlib import Path

import pytest
from tests.probe.tiny_pairs import LAYERS, TinyPairs

from stemmatics.lm.crossing.cells import Cell
from stemmatics.lm.crossing.events import Event
from stemmatics.lm.crossing.models import Crossable, Uncrossable
from stemmatics.probe import cross as cross_probe

MAIN = 2


@pytest.fixture
def pairs(tmp_path):
    return TinyPairs(tmp_path)


@pytest.fixture
def events(pairs):
    """First disagreements and earlier prefixes of a few prompts, already found."""
    fact = pairs.events(
        [{"prompt": f"the text {number}"} for number in range(4)], supports=["first", "earlier"]
    )
    rows = pairs.run_events(fact)
    assert {row["support"] for row in rows if row["outcome"] == "event"} == {"first", "earlier"}
    return fact


def test_controls_are_crossed_at_the_main_boundary_only(pairs, events):
    tables = pairs.run_cross(events, boundaries="profile", permute=True)
    kinds = {(row["support"], row["arm"], row["boundary"]) for row in tables["cells"]}
    first = {("first", "main", boundary) for boundary in range(1, LAYERS)}
    assert kinds == {*first, ("first", "permuted", MAIN), ("earlier", "main", MAIN)}
    assert {row["readout"] for row in tables["cells"]} == {"descendant", "base"}
    (summary,) = tables["crossing"]
    assert (summary["num_layers"], summary["main_boundary"]) == (LAYERS, MAIN)
    assert summary["num_events"] == len({(row["event"], row["support"]) for row in tables["cells"]})
    assert summary["refusal"] == ""


TOPS = [
    ((5, 90, 7, 5), ("base", "descendant", "other", "base"), (1, 1)),
    ((5, 5, 5, 90), ("base", "base", "base", "descendant"), (0, 1)),
    ((5, 90, 90, 90), ("base", "descendant", "descendant", "descendant"), (1, 0)),
    ((90, 90, 5, 5), ("descendant", "descendant", "base", "base"), (0, 0)),
    ((7, 8, 7, 7), ("other", "other", "other", "other"), (1, 0)),
]


@pytest.mark.parametrize(("top_1", "owners", "changed"), TOPS)
def test_the_owner_of_the_top_token_is_stored_and_whether_the_late_layers_change_it(top_1, owners, changed):
    event = Event(3, 1, "first", (4, 6), 5, 90, 1)
    row = cross_probe._row(Cell(3, MAIN, "base", "main", (1.0, 2.0, 3.0, 4.0), top_1, 0.5), event)
    names = ("base_base", "base_desc", "desc_base", "desc_desc")
    assert tuple(row[f"top_{name}"] for name in names) == owners
    assert (row["changed_after_base"], row["changed_after_desc"]) == changed
    assert tuple(row[name] for name in names) == (1.0, 2.0, 3.0, 4.0)
    assert (row["event"], row["index"], row["distance"]) == (3, 1, 0.5)
    assert 5 not in row.values()


@pytest.mark.parametrize("boundary", [MAIN, LAYERS - 1])
def test_the_identity_error_of_every_support_is_kept(pairs, events, monkeypatch, boundary):
    """The first disagreements are checked at the last boundary, the controls at the main one."""

    class Inexact(Crossable):
        def run_late_layers(self, input_BL, at, hidden_BLD):
            final_BLD = super().run_late_layers(input_BL, at, hidden_BLD)
            return final_BLD * (1 + 5e-6 * (at == boundary))

    def crossed(pair, context):
        crossables = [Crossable(loaded.model) for loaded in (pair.base, pair.descendant)]
        crossables[1].__class__ = Inexact
        return crossables

    exact = pairs.run_cross(events, boundaries="profile")["crossing"][0]["identity_error"]
    assert exact < 1e-6
    monkeypatch.setattr(cross_probe, "crossed", crossed)
    (summary,) = pairs.run_cross(events, boundaries="profile")["crossing"]
    assert summary["identity_error"] == pytest.approx(5e-6, rel=0.1)


def test_a_pair_that_cannot_be_crossed_is_refused_and_no_prompt_is_used(pairs):
    fact = pairs.events([{"prompt": "the"}], wide=True)
    assert [row["outcome"] for row in pairs.run_events(fact)] == ["refused"]
    tables = pairs.run_cross(fact)
    assert tables["cells"] == []
    (summary,) = tables["crossing"]
    assert summary["refusal"].startswith("architecture differs: it is ")
    # the values that differ are shown, and no path
    assert "intermediate_size 40" in summary["refusal"]
    assert str(Path(fact.needs["base"].where["source"]).parent) not in summary["refusal"]


def test_a_model_that_is_first_cut_when_it_is_crossed_can_be_refused_too(pairs, monkeypatch):
    """The floor of a pair that lost nothing has no events, so its models were not checked before."""
    fact = pairs.events([{"prompt": "the"}])
    pairs.run_events(fact)

    def refuse(*_):
        raise Uncrossable("these layers can't be crossed", "other inputs", "leave them out", reason="why")

    monkeypatch.setattr(cross_probe, "crossed", refuse)
    tables = pairs.run_cross(fact)
    assert tables["cells"] == []
    assert [row["refusal"] for row in tables["crossing"]] == ["why"]

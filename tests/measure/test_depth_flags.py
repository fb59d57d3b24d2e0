"""What is said of pairs that are not crossed at all, and of a floor that does not exist, on made sums."""

import math

import numpy as np
import pyarrow as pa
import pytest
from tests.measure.test_depth_contrast import pinned

from stemmatics.measure.depth import Depth
from stemmatics.measure.depth.needs import DepthSettings
from stemmatics.store.schema import schemas

EVENTS = 30


class Made:
    """Tables of one kind for every pair; floors' crossings have twice the margins."""

    def __init__(self, *, distance, scale=0.1, missing=()):
        self.distance, self.scale, self.missing = distance, scale, missing

    def has(self, fact):
        return fact.probe not in self.missing

    def read(self, fact, table):
        draw = np.random.default_rng(3)
        rows = {
            "events": [
                {"event": n, "index": n, "support": "first", "outcome": "event"} for n in range(EVENTS)
            ],
            "crossing": [{"main_boundary": 2, "num_layers": 4, "num_events": EVENTS, "identity_error": 0.0}],
            "noise_scale": [
                {
                    "scale": self.scale,
                    "base_nll_sum": 100.0,
                    "descendant_nll_sum": 100.0 + 10 * (self.scale > 0),
                    "noised_nll_sum": 110.0,
                    "num_bytes": 50,
                    "failure": "" if self.scale else "the descendant's loss did not rise",
                }
            ],
            "cells": [
                {
                    "event": n,
                    "index": n,
                    "support": "first",
                    "boundary": 2,
                    "readout": readout,
                    "arm": "main",
                    "base_base": 0.0,
                    "base_desc": 1.0,
                    "desc_base": float(draw.normal(0, 0.1)) * (self.distance > 0),
                    "desc_desc": 3.0 if self.distance else 1.0,
                    "changed_after_base": 0,
                    "changed_after_desc": 1,
                    "distance": self.distance,
                }
                for n in range(EVENTS)
                for readout in ("descendant", "base")
            ],
        }[table]
        return pa.Table.from_pylist(rows)


def asked(**settings):
    ours = pinned()
    more = {"prompts": "familiar-events", "controls": False, "floor": "familiar-events", **settings}
    return ours, DepthSettings.model_validate({"descendants": ["nonce-0", "nonce-1"], **more})


def answers(tables, **settings):
    ours, mine = asked(**settings)
    found = {one.id: one for one in Depth().estimate(ours, mine, tables, np.random.default_rng(0))}
    said = [one.plain(found) for one in Depth().findings(ours, mine, found).sentences]
    return found, said


def of(found, quantity, **subject):
    return [
        one
        for one in found.values()
        if one.quantity == f"depth.{quantity}" and subject.items() <= one.subject.items()
    ]


def test_a_pair_whose_states_are_the_same_is_called_degenerate():
    found, said = answers(Made(distance=0.0))
    for one in of(found, "interaction", readout="descendant"):
        assert one.value == 0
        assert "degenerate" in one.note
    assert sum("nothing is crossed" in sentence for sentence in said) == 2
    # and it does not count among the pairs
    assert not of(found, "all.interaction")


def test_pairs_that_are_crossed_are_averaged():
    found, said = answers(Made(distance=0.3))
    (one,) = of(found, "all.interaction", over="prompts")
    assert one.value == pytest.approx(2.0, abs=0.1)
    assert "2 pairs of 1 families" in one.note
    assert not any("nothing is crossed" in sentence for sentence in said)
    assert len(of(found, "all.interaction", over="families")) == 1


def test_a_floor_needs_a_loss():
    found, _ = answers(Made(distance=0.3))
    loss = of(found, "floor.loss")[0]
    assert (loss.value, loss.tag) == (pytest.approx(0.2), "floor")
    assert of(found, "floor.interaction")[0].value == pytest.approx(2.0, abs=0.1)
    found, _ = answers(Made(distance=0.3, scale=0.0))
    for quantity in ("interaction", "effect_after_base", "portable_share", "scale"):
        one = of(found, f"floor.{quantity}")[0]
        assert math.isnan(one.value)
        assert "did not rise" in one.note
    found, _ = answers(Made(distance=0.3, missing=("noise_scale",)))
    assert "the floor failed" in of(found, "floor.interaction")[0].note


@pytest.mark.parametrize("refused", ["main", "floor"])
def test_a_refused_crossing_is_named_and_nothing_is_estimated_from_it(refused):
    class Refused(Made):
        def read(self, fact, table):
            if table not in ("cells", "crossing") or fact.tag != refused:
                return super().read(fact, table)
            rows = {"crossing": [{"num_events": 0, "refusal": "RoPE differs"}], "cells": []}
            return pa.Table.from_pylist(rows[table], schema=schemas()[table])

    found, _ = answers(Refused(distance=0.3))
    if refused == "floor":
        assert of(found, "interaction")[0].n == EVENTS
        assert of(found, "floor.scale")[0].note == "RoPE differs"
        assert of(found, "floor.interaction") == []
    else:
        assert {one.quantity for one in found.values()} == {"depth.refused"}
        assert {one.note for one in found.values()} == {"RoPE differs"}


def test_a_failed_pair_has_no_estimate():
    found, said = answers(Made(distance=0.3, missing=("cross",)))
    assert found == {}
    assert said == []


def test_needs_are_tagged_and_shared():
    ours, mine = asked(floor="none")
    assert {fact.tag for fact in Depth().needs(ours, mine)} == {"main"}
    ours, mine = asked()
    needs = Depth().needs(ours, mine)
    assert {fact.probe for fact in needs if fact.tag == "floor"} == {"noise_scale", "events", "cross"}
    again = Depth().needs(*asked(boundaries="profile"))
    same = {fact.key for fact in needs} & {fact.key for fact in again}
    # other boundaries are other crossings of the same events
    assert {fact.probe for fact in needs if fact.key not in same} == {"cross"}


def test_tables_that_are_made_up_here_have_the_stored_columns():
    for name in ("events", "cells", "crossing", "noise_scale"):
        assert set(Made(distance=0.3).read(None, name).column_names) <= set(schemas()[name].names)

"""Margins of the four cells against models that were really swapped; what they cost; their controls."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.lm.test_crossed import end_of_swapped, moved
from tests.lm.tiny_checkpoints import make_model

from stemmatics.core.errors import UserError
from stemmatics.facts.cross import CELLS
from stemmatics.lm.crossing.cells import Crossing, default_boundary, resolve_boundaries
from stemmatics.lm.crossing.events import Event
from stemmatics.lm.crossing.models import Crossable

NUM_LAYERS = 6


@pytest.fixture(scope="module")
def pair():
    base = make_model(num_hidden_layers=NUM_LAYERS, initializer_range=0.3)
    return Crossable(base), Crossable(moved(base))


@pytest.fixture(scope="module")
def events():
    draw = np.random.default_rng(0)
    return [
        Event(
            10 + place,
            place,
            "first",
            tuple(draw.integers(300, size=3 + 4 * place).tolist()),
            5 + place,
            90,
            0,
        )
        for place in range(5)
    ]


def crossing(pair, boundaries, **settings):
    return Crossing(*pair, boundaries, **settings)


def test_margins_are_those_of_models_that_were_swapped(pair, events):
    found = {(cell.event, cell.boundary, cell.readout): cell for cell in crossing(pair, [2, 4]).cells(events)}
    assert len(found) == len(events) * 2 * 2
    sides = dict(zip(("base", "desc"), pair, strict=True))
    for event in events:
        ids_1L = torch.tensor([event.prefix_ids])
        for boundary in (2, 4):
            for readout, reader in (("descendant", pair[1]), ("base", pair[0])):
                cell = found[event.event, boundary, readout]
                for place, name in enumerate(CELLS):
                    early, late = (sides[side] for side in name.split("_"))
                    end_1LD = end_of_swapped(early, late, boundary, ids_1L)
                    logits_V = reader.read_out(end_1LD)[0, -1].double()
                    expected = float(logits_V[event.descendant_id] - logits_V[event.base_id])
                    assert cell.margins[place] == pytest.approx(expected, abs=2e-5)
                    assert cell.top_1[place] == int(logits_V.argmax())
                own = pair[0].states(ids_1L, torch.tensor([ids_1L.shape[1] - 1]), [boundary])
                other = pair[1].states(ids_1L, torch.tensor([ids_1L.shape[1] - 1]), [boundary])
                base_D, change_D = own.at[boundary][0, -1], (other.at[boundary] - own.at[boundary])[0, -1]
                assert cell.distance == pytest.approx(float(change_D.norm() / base_D.norm()), rel=1e-5)


def test_numbers_do_not_depend_on_the_batch(pair, events):
    def table(budget):
        cells = crossing(pair, [3], token_budget=budget, permute=True, interpolate=[0.5]).cells(events)
        return {(cell.event, cell.readout, cell.arm): cell.margins for cell in cells}

    whole, alone = table(8192), table(1)
    assert whole.keys() == alone.keys()
    for key, margins in whole.items():
        assert margins == pytest.approx(alone[key], abs=2e-5)


def test_the_whole_profile_costs_at_most_two_passes_more_than_layers(pair, events):
    first, second = pair
    first.num_evaluations = second.num_evaluations = 0
    asked = crossing(pair, resolve_boundaries("profile", NUM_LAYERS))
    # of one length they make one batch
    list(asked.cells([replace(event, prefix_ids=events[-1].prefix_ids) for event in events]))
    passes = (first.num_evaluations + second.num_evaluations) / NUM_LAYERS
    crossed = sum(2 * (NUM_LAYERS - boundary) for boundary in range(1, NUM_LAYERS))
    checks = 2 * (NUM_LAYERS - max(asked.boundaries))
    assert passes * NUM_LAYERS == 2 * NUM_LAYERS + crossed + checks
    assert passes <= NUM_LAYERS + 2


def test_controls_stand_in_the_descendants_place(pair, events):
    asked = crossing(pair, [2, 3], interpolate=[0.0, 0.5, 1.0], permute=True, seed=7)
    cells = [cell for cell in asked.cells(events) if cell.readout == "descendant"]
    arms = {
        arm: {cell.event: cell for cell in cells if cell.arm == arm and cell.boundary == 3}
        for arm in ("main", "interpolated 0", "interpolated 0.5", "interpolated 1", "permuted")
    }
    assert {cell.boundary for cell in cells if cell.arm != "main"} == {3}
    for event in events:
        main, nothing, half, whole, permuted = (arm[event.event] for arm in arms.values())
        assert whole.margins == pytest.approx(main.margins, abs=2e-5)
        assert nothing.margins[2:] == pytest.approx(main.margins[:2], abs=2e-5)
        assert half.distance == pytest.approx(main.distance / 2, rel=1e-4)
        # an axis permutation with signs keeps every length and is no identity
        assert permuted.distance == pytest.approx(main.distance, rel=1e-5)
        assert abs(permuted.margins[3] - main.margins[3]) > 1e-3


def test_a_model_that_is_not_itself_is_refused(pair, events):
    class Broken(Crossable):
        def late(self, input_BL, boundary, hidden_BLD):
            return super().late(input_BL, boundary, hidden_BLD) + 1e-3

    broken = Broken.__new__(Broken)
    broken.__dict__ = pair[1].__dict__
    with pytest.raises(UserError, match="crossed with itself is not itself"):
        list(crossing((pair[0], broken), [3]).cells(events))


def test_boundaries():
    assert [default_boundary(layers) for layers in (2, 3, 4, 5, 30, 64)] == [1, 1, 2, 3, 18, 38]
    assert resolve_boundaries("default", 30) == [18]
    assert resolve_boundaries("profile", 4) == [1, 2, 3]
    assert resolve_boundaries([3, 1, 3], 4) == [1, 3]
    for outside in (0, 4):
        with pytest.raises(UserError, match=f"boundary {outside} is not in the stack"):
            resolve_boundaries([outside], 4)


def test_controls_are_run_at_the_boundary_nearest_to_the_default(pair):
    assert crossing(pair, [1, 2, 5]).main_boundary == 2
    assert crossing(pair, [5]).main_boundary == 5
    alone = replace(crossing(pair, [1, 4]), permute=True).at_one_boundary()
    assert (alone.boundaries, alone.permute) == ([4], False)

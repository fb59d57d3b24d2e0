"""Margins of the four cells against models that were really swapped; what they cost; their controls."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.lm.test_crossing_models import end_of_swapped, moved
from tests.lm.tiny_checkpoints import make_model

from stemmatics.core.errors import UserError
from stemmatics.facts.cross import CELLS, MAIN_ARM, PERMUTED_ARM, interpolated_arm
from stemmatics.lm.crossing.cells import (
    Crossing,
    _signed_permutation,
    default_boundary,
    resolve_boundaries,
)
from stemmatics.lm.crossing.events import Event
from stemmatics.lm.crossing.models import Crossable

NUM_LAYERS = 6


@pytest.fixture(scope="module")
def pair():
    base = make_model(num_hidden_layers=NUM_LAYERS, initializer_range=0.3)
    return Crossable(base), Crossable(moved(base))


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(0)
    return [
        Event(
            10 + number,
            number,
            "first",
            tuple(rng.integers(300, size=3 + 4 * number).tolist()),
            5 + number,
            90,
            0,
        )
        for number in range(5)
    ]


def crossing(pair, boundaries, **settings):
    return Crossing(*pair, boundaries, **settings)


def states_of(pair, event, boundary):
    """The hidden sequences of base and descendant that enter a layer, for one event alone."""
    ids_1L = torch.tensor([event.prefix_ids])
    last_1 = torch.tensor([ids_1L.shape[1] - 1])
    return [model.states(ids_1L, last_1, [boundary]).at[boundary] for model in pair]


def margin_and_top_1(reader, final_1LD, event):
    logits_V = reader.read_out(final_1LD)[0, -1].double()
    return float(logits_V[event.descendant_id] - logits_V[event.base_id]), int(logits_V.argmax())


def test_margins_are_those_of_models_that_were_swapped(pair, events):
    cells = {(cell.event, cell.boundary, cell.readout): cell for cell in crossing(pair, [2, 4]).cells(events)}
    assert len(cells) == len(events) * 2 * 2
    sides = dict(zip(("base", "desc"), pair, strict=True))
    for event in events:
        ids_1L = torch.tensor([event.prefix_ids])
        for boundary in (2, 4):
            base_1LD, descendant_1LD = states_of(pair, event, boundary)
            base_D, change_D = base_1LD[0, -1], (descendant_1LD - base_1LD)[0, -1]
            for readout, reader in (("descendant", pair[1]), ("base", pair[0])):
                cell = cells[event.event, boundary, readout]
                for position, name in enumerate(CELLS):
                    early, late = (sides[side] for side in name.split("_"))
                    final_1LD = end_of_swapped(early, late, boundary, ids_1L)
                    margin, top_1 = margin_and_top_1(reader, final_1LD, event)
                    assert cell.margins[position] == pytest.approx(margin, abs=2e-5)
                    assert cell.top_1[position] == top_1
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
    whole = crossing(pair, resolve_boundaries("profile", NUM_LAYERS))
    # of one length they make one batch
    list(whole.cells([replace(event, prefix_ids=events[-1].prefix_ids) for event in events]))
    passes = (first.num_evaluations + second.num_evaluations) / NUM_LAYERS
    crossed = sum(2 * (NUM_LAYERS - boundary) for boundary in range(1, NUM_LAYERS))
    checks = 2 * (NUM_LAYERS - max(whole.boundaries))
    assert passes * NUM_LAYERS == 2 * NUM_LAYERS + crossed + checks
    assert passes <= NUM_LAYERS + 2


def test_interpolated_states_replace_the_descendants(pair, events):
    weights = (0.0, 0.5, 1.0)
    cells = [
        cell
        for cell in crossing(pair, [2, 3], interpolate=weights).cells(events)
        if cell.readout == "descendant"
    ]
    arms = {
        arm: {cell.event: cell for cell in cells if cell.arm == arm and cell.boundary == 3}
        for arm in (MAIN_ARM, *map(interpolated_arm, weights))
    }
    assert {cell.boundary for cell in cells if cell.arm != MAIN_ARM} == {3}
    for event in events:
        main, nothing, half, whole = (arm[event.event] for arm in arms.values())
        assert whole.margins == pytest.approx(main.margins, abs=2e-5)
        assert nothing.margins[2:] == pytest.approx(main.margins[:2], abs=2e-5)
        assert half.distance == pytest.approx(main.distance / 2, rel=1e-4)


def test_the_permuted_state_is_the_base_plus_the_change_with_its_axes_permuted_and_signed(pair, events):
    """Built again here from the same draws: signs first, then the order of the axes."""
    seed = 7
    cells = {
        (cell.event, cell.arm): cell
        for cell in crossing(pair, [3], permute=True, seed=seed).cells(events)
        if cell.readout == "descendant"
    }
    width = pair[0].model.get_input_embeddings().weight.shape[1]
    rng = np.random.default_rng(seed)
    sign_D = torch.from_numpy(rng.choice([-1.0, 1.0], size=width)).float()
    order_D = torch.from_numpy(rng.permutation(width))
    for event in events:
        base_1LD, descendant_1LD = states_of(pair, event, 3)
        state_1LD = base_1LD + (descendant_1LD - base_1LD)[..., order_D] * sign_D
        ids_1L = torch.tensor([event.prefix_ids])
        ends = [model.run_late_layers(ids_1L, 3, state) for state in (base_1LD, state_1LD) for model in pair]
        margins = [margin_and_top_1(pair[1], end, event)[0] for end in ends]
        main, permuted = cells[event.event, MAIN_ARM], cells[event.event, PERMUTED_ARM]
        assert permuted.margins == pytest.approx(margins, abs=2e-5)
        # the change keeps its length and is another change
        assert permuted.distance == pytest.approx(main.distance, rel=1e-5)
        assert abs(permuted.margins[3] - main.margins[3]) > 1e-3


def test_a_signed_permutation_moves_axes_and_flips_about_half_of_them():
    order_D, sign_D = _signed_permutation(400, 3)
    assert sorted(order_D.tolist()) == list(range(400))
    assert (order_D == np.arange(400)).mean() < 0.05
    assert set(sign_D.tolist()) == {-1.0, 1.0}
    assert abs(sign_D.mean()) < 0.2
    other_order_D, other_sign_D = _signed_permutation(400, 4)
    assert (other_order_D != order_D).any()
    assert (other_sign_D != sign_D).any()


def distorted(crossable, method, error):
    """The same model; what one of its methods returns is off by ``error``."""

    class Distorted(Crossable):
        pass

    def call(self, *args):
        return getattr(Crossable, method)(self, *args) + error

    setattr(Distorted, method, call)
    copied = Distorted.__new__(Distorted)
    copied.__dict__ = crossable.__dict__
    return copied


def test_identity_errors_within_rounding_are_recorded(pair, events):
    """As a share of the largest value of the model's own final state; the largest of all batches is kept."""
    event = events[-1]
    exact = crossing(pair, [3])
    list(exact.cells([event]))
    assert exact.identity_error < 1e-6
    ids_1L = torch.tensor([event.prefix_ids])
    for side in (0, 1):
        final_1LD = pair[side].states(ids_1L, torch.tensor([ids_1L.shape[1] - 1]), []).final
        largest = float(final_1LD[0, -1].abs().max())
        assert largest > 1
        models = list(pair)
        models[side] = distorted(pair[side], "run_late_layers", 5e-6 * largest)
        inexact = crossing(models, [3])
        list(inexact.cells([event]))
        assert inexact.identity_error == pytest.approx(5e-6, rel=0.1)
        error = inexact.identity_error
        inexact.base, inexact.descendant = pair
        list(inexact.cells([event]))
        assert inexact.identity_error == error


@pytest.mark.parametrize("method", ["run_late_layers", "read_out"])
@pytest.mark.parametrize("error", [1e-2, float("nan")])
@pytest.mark.parametrize("side", [0, 1])
def test_a_model_that_does_not_reproduce_itself_is_refused(pair, events, method, error, side):
    models = list(pair)
    models[side] = distorted(pair[side], method, error)
    with pytest.raises(UserError, match="does not reproduce itself"):
        list(Crossing(*models, [3]).cells(events))


def test_boundaries():
    assert [default_boundary(layers) for layers in (2, 3, 4, 5, 30, 64)] == [1, 1, 2, 3, 18, 38]
    assert resolve_boundaries("default", 30) == [18]
    assert resolve_boundaries("profile", 4) == [1, 2, 3]
    assert resolve_boundaries([3, 1, 3], 4) == [1, 3]
    for outside in (0, 4):
        with pytest.raises(UserError, match=f"boundary {outside} is not in the stack"):
            resolve_boundaries([outside], 4)


def test_controls_are_run_at_the_boundary_nearest_to_the_default(pair):
    """With six layers the default is 3; of two at the same distance the earlier one is taken."""
    for boundaries, main in (([1, 2, 5], 2), ([5], 5), ([1, 3, 5], 3), ([2, 4], 2), ([4, 2], 2), ([1, 4], 4)):
        assert crossing(pair, boundaries).main_boundary == main
    whole = replace(crossing(pair, [1, 4], interpolate=[0.5]), permute=True, identity_error=1e-6)
    main = whole.at_main_boundary()
    assert (main.boundaries, main.permute, main.interpolate, main.identity_error) == ([4], False, (), 0.0)

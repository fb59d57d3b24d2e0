"""A portable and a dependent late change, made on purpose, are found to be what they are."""

import numpy as np
import pytest
import torch
from tests.lm import crossing_chains as chains

from stemmatics.lm.crossing.cells import Crossing
from stemmatics.lm.crossing.models import Crossable
from stemmatics.math.factorial import Cells, factorial


@pytest.fixture(scope="module")
def portable():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pair = chains.portable_pair()
    torch.set_num_threads(before)
    return pair


def crossed(base, descendant, events=None):
    asked = Crossing(Crossable(base), Crossable(descendant), [chains.CUT])
    found = [
        cell
        for cell in asked.cells(events or chains.events(base, descendant))
        if cell.readout == "descendant"
    ]
    cells = Cells(*np.array([cell.margins for cell in found]).T)
    # the 90% interval is the one of two one-sided tests at 5%
    result = factorial(cells, np.arange(len(found)), rng=np.random.default_rng(0), level=0.9)
    return found, cells, result


def test_a_portable_change_is_portable(portable):
    found, _, result = crossed(*portable)
    assert len(found) >= 50
    # the earlier states differ: nothing is portable by construction
    assert np.mean([cell.distance for cell in found]) > 0.1
    effect = result.effect_after_descendant.interval
    assert effect.lo > 5
    assert abs(result.interaction.interval.value) < 0.1 * effect.value
    assert 0.9 < result.portable_share.lo <= result.portable_share.hi < 1.1


def test_a_dependent_change_is_dependent(portable):
    base, descendant = portable
    turned = chains.rotated(descendant)
    events = chains.events(base, descendant)
    _, straight, _ = crossed(base, descendant, events)
    _, cells, result = crossed(base, turned, events)
    # the same function: its own cell does not move
    assert np.abs(cells.descendant_descendant_E - straight.descendant_descendant_E).max() < 1e-4
    effect = result.effect_after_descendant.interval
    assert result.interaction.interval.lo > 0.25 * effect.value > 0
    # what the swap did on its own state is gone once the states are turned against each other
    assert np.abs(cells.base_descendant_E.mean()) < 0.25 * straight.base_descendant_E.mean()
    assert abs(result.effect_after_base.interval.value) < 0.25 * effect.value
    assert result.portable_share.hi < 0.25


def test_the_same_earlier_layers_are_no_crossing(portable):
    base, _ = portable
    late = chains.train(
        chains.model(), chains.SECOND, steps=5, seed=1, layers=range(chains.CUT, chains.NUM_LAYERS)
    )
    with torch.no_grad():
        late.load_state_dict(base.state_dict())
        late.model.layers[3].mlp.down_proj.weight.mul_(-3)
    found, cells, _ = crossed(base, late)
    assert found
    assert {cell.distance for cell in found} == {0.0}
    assert np.array_equal(cells.interactions, np.zeros(len(found)))

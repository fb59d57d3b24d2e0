"""Cells on a base's own greedy path against models that were really swapped, one position at a time."""

import numpy as np
import pytest
import torch
from tests.lm.test_crossing_cells import distorted
from tests.lm.test_crossing_models import end_of_swapped, moved
from tests.lm.tiny_checkpoints import make_model, make_tokenizer

from stemmatics.core.errors import UserError
from stemmatics.lm.crossing.events import GreedyDecoder, Prompt
from stemmatics.lm.crossing.models import Crossable
from stemmatics.lm.crossing.path import Path, PathCrossing, greedy_paths
from stemmatics.lm.tokens.tokenizer import TextTokenizer

BOUNDARY, NEW = 2, 4
STOP = 7


@pytest.fixture(scope="module")
def pair():
    base = make_model(num_hidden_layers=3, initializer_range=0.3)
    return Crossable(base), Crossable(moved(base))


@pytest.fixture(scope="module")
def paths(pair):
    rng = np.random.default_rng(0)
    prompts = [Prompt(3 * k, tuple(rng.integers(300, size=3 + 2 * k).tolist())) for k in range(4)]
    decoder = GreedyDecoder(pair[0].model, TextTokenizer(make_tokenizer()), frozenset({STOP}), 256)
    return greedy_paths(decoder, prompts, NEW, frozenset({STOP}))


def cells_at(pair, ids):
    """Logits of the four cells at the last of ``ids``, by the descendant's readout and by the base's."""
    ids_1L = torch.tensor([ids])
    found = []
    for reader in (pair[1], pair[0]):
        ends = [end_of_swapped(early, late, BOUNDARY, ids_1L) for early in pair for late in pair]
        found.append([reader.read_out(end)[0, -1].double() for end in ends])
    return found


def brute(pair, path):
    """Losses, products and events of one path, from whole passes of swapped models."""
    losses, fourth_by_sum, sum_by_sum = np.zeros(4), 0.0, 0.0
    events = {}
    for position, token in enumerate(path.new_ids):
        by_descendant, by_base = cells_at(pair, (*path.prompt.ids, *path.new_ids[:position]))
        z_bb, z_bd, z_db, z_dd = by_descendant
        for cell, logits in enumerate((by_base[0], z_bd, by_base[2], z_dd)):
            losses[cell] -= float(logits.log_softmax(-1)[token])
        a, weight = z_bd + z_db - z_bb, z_bb.softmax(-1)
        a_centred, d_centred = a - (weight * a).sum(), z_dd - (weight * z_dd).sum()
        fourth_by_sum += float((weight * a_centred * d_centred).sum())
        sum_by_sum += float((weight * a_centred**2).sum())
        for support, (first, second) in {"three_cells": (z_bb, a), "first": (by_base[0], z_dd)}.items():
            ids = int(first.argmax()), int(second.argmax())
            if ids[0] != ids[1] and support not in events:
                margins = [
                    [float(z[ids[1]] - z[ids[0]]) for z in cells] for cells in (by_descendant, by_base)
                ]
                events[support] = (position, *ids, *margins)
    return losses, fourth_by_sum, sum_by_sum, events


@pytest.fixture(scope="module")
def expected(pair, paths):
    return {path.prompt.index: brute(pair, path) for path in paths}


@pytest.mark.parametrize("budget", [8192, 1])
def test_cells_are_those_of_models_that_were_swapped(pair, paths, expected, budget):
    done = []
    crossing = PathCrossing(*pair, BOUNDARY, token_budget=budget)
    found = {cells.path.prompt.index: cells for cells in crossing.cells(paths, done.append)}
    assert len(found) == len(paths) == done[-1]
    supports = set()
    for path in paths:
        losses, fourth_by_sum, sum_by_sum, events = expected[path.prompt.index]
        cells = found[path.prompt.index]
        assert cells.nll_sums == pytest.approx(losses, abs=1e-4)
        assert cells.fourth_by_sum == pytest.approx(fourth_by_sum, rel=1e-3)
        assert cells.sum_by_sum == pytest.approx(sum_by_sum, rel=1e-3)
        assert cells.events.keys() == events.keys()
        for support, (position, base_id, descendant_id, by_descendant, by_base) in events.items():
            event = cells.events[support]
            assert (event.position, event.base_id, event.descendant_id) == (position, base_id, descendant_id)
            assert event.margins["descendant"] == pytest.approx(by_descendant, abs=5e-5)
            assert event.margins["base"] == pytest.approx(by_base, abs=5e-5)
            assert event.distance > 0
            supports.add(support)
    assert supports == {"three_cells", "first"}
    assert crossing.identity_error < 1e-5


def test_the_choice_of_an_event_never_sees_the_fourth_cell(pair, paths):
    """Another descendant of the same readout and late layers, and other earlier ones, moves (d,d) and (d,b).

    With z_dd replaced alone, events of three cells stay where they were, and first disagreements do not.
    """

    class Other(PathCrossing):
        def _read(self, ends_CND, tokens_N):
            turned = ends_CND.clone()
            turned[3] = -ends_CND[3]
            return super()._read(turned, tokens_N)

    plain, other = (
        {c.path.prompt.index: c for c in kind(*pair, BOUNDARY).cells(paths)} for kind in (PathCrossing, Other)
    )
    places = [
        {
            index: {name: (event.position, event.descendant_id) for name, event in cells.events.items()}
            for index, cells in found.items()
        }
        for found in (plain, other)
    ]
    assert [p.get("three_cells") for p in places[0].values()] == [
        p.get("three_cells") for p in places[1].values()
    ]
    assert [p.get("first") for p in places[0].values()] != [p.get("first") for p in places[1].values()]


def test_a_path_ends_with_its_stop(pair):
    decoder = GreedyDecoder(pair[0].model, TextTokenizer(make_tokenizer()), frozenset(), 256)
    prompt = Prompt(0, (5, 9, 11))
    (whole,) = greedy_paths(decoder, [prompt], NEW, frozenset())
    assert len(whole.new_ids) == NEW
    stop = whole.new_ids[2]
    (cut,) = greedy_paths(decoder, [prompt], NEW, frozenset({stop}))
    assert cut == Path(prompt, whole.new_ids[: whole.new_ids.index(stop) + 1])
    assert cut.length == 3 + len(cut.new_ids) - 1


@pytest.mark.parametrize("method", ["run_late_layers", "read_out"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_model_that_does_not_reproduce_itself_is_refused(pair, paths, method, side):
    models = list(pair)
    models[side] = distorted(pair[side], method, 1e-2)
    with pytest.raises(UserError, match="does not reproduce itself"):
        list(PathCrossing(*models, BOUNDARY).cells(paths))

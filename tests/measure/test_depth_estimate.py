"""Estimates of pairs on hand-made tables: every number here was worked out by hand."""

import math

import numpy as np
import pytest
from tests.measure.depth_tables import (
    HandMade,
    cell_rows,
    depth_settings,
    event_rows,
    margins,
    noise_row,
    path_rows,
    pinned,
    results_of,
    summary,
)

from stemmatics.core.results import Refusal
from stemmatics.measure.depth import Depth

MAIN_ARM = {"support": "three_cells", "readout": "descendant", "arm": "main"}
FIRST_ARM = {**MAIN_ARM, "support": "first"}
GIVEN_ARM = {**MAIN_ARM, "support": "manifest"}


def results(rows=None, *, settings=None, **tables):
    return results_of(HandMade(rows, **tables), settings or depth_settings(), np.random.default_rng(0))


def values(results, *quantities, **subject):
    return [results.only(f"depth.{quantity}", **subject).value for quantity in quantities]


def test_effects_interaction_and_share_are_those_of_the_table():
    found = results()
    assert values(
        found, "effect_after_base", "effect_after_descendant", "interaction", "portable_share", **MAIN_ARM
    ) == pytest.approx([1.5, 5.0, 3.5, 0.3])
    interaction = found.only("depth.interaction", **MAIN_ARM)
    assert (interaction.n, interaction.unit, interaction.units, interaction.tag) == (
        4,
        "prompt",
        "logits",
        "main",
    )
    assert interaction.lo < 3.5 < interaction.hi
    assert dict(interaction.subject) == {
        "base": "base",
        "descendant": "familiar-0",
        "events": "familiar-events",
        **MAIN_ARM,
    }


def test_the_p_value_is_that_of_all_sign_assignments():
    p = results().only("depth.interaction_p", **MAIN_ARM)
    # of 3, 4, 5, 2 only all signs alike reach the sum
    assert (p.value, p.n, p.method) == (2 / 16, 4, "exact")
    cells = margins(after_base=(0.0,) * 4, after_descendant=(1.0, 1.0, 1.0, -1.0))
    p = results({"cells": cell_rows(cells)}).only("depth.interaction_p", **MAIN_ARM)
    # |sum| is 2 or more unless two of the four signs differ from the others
    assert p.value == 10 / 16


def test_margins_are_means_of_each_cell():
    found = results()
    assert [values(found, "margin", cell=cell)[0] for cell in ("base_base", "base_desc")] == [-2.0, -0.5]
    assert [values(found, "margin", cell=cell)[0] for cell in ("desc_base", "desc_desc")] == [0.5, 5.5]


def test_each_readout_has_its_own_rows_and_own_takes_those_of_the_late_layers():
    base_cells = [(10.0, 30.0, 70.0, 150.0)] * 4
    rows = cell_rows(margins(), readouts=["descendant"]) + cell_rows(base_cells, readouts=["base"])
    found = results({"cells": rows})
    effects = ("effect_after_base", "effect_after_descendant", "interaction")
    assert values(found, *effects, **MAIN_ARM) == pytest.approx([1.5, 5.0, 3.5])
    assert values(found, *effects, readout="base", support="three_cells") == pytest.approx([20.0, 80.0, 60.0])
    # base layers read by the base, descendant layers by the descendant: 10, -0.5, 70, 5.5
    assert values(found, *effects, readout="own", support="three_cells") == pytest.approx(
        [-10.5, -64.5, -54.0]
    )
    tags = {
        readout: found.only("depth.interaction", readout=readout, support="three_cells").tag
        for readout in ("base", "own")
    }
    assert tags == {"base": "control", "own": "control"}


def test_the_main_numbers_are_those_of_the_main_boundary_and_the_profile_has_all():
    rows = [
        row
        for boundary, shift in ((1, 10.0), (2, 20.0), (3, 40.0))
        for row in cell_rows(margins(shift), boundary=boundary)
    ]
    for main, interaction in ((1, 13.5), (2, 23.5), (3, 43.5)):
        found = results({"cells": rows, "crossing": [summary(main_boundary=main)]})
        assert values(found, "boundary", "layers") == [main, 4]
        assert values(found, "interaction", **MAIN_ARM) == pytest.approx([interaction])
    for boundary, shift in (("001", 10), ("002", 20), ("003", 40)):
        assert values(
            found,
            "profile.effect_after_base",
            "profile.effect_after_descendant",
            "profile.interaction",
            "profile.portable_share",
            boundary=boundary,
        ) == pytest.approx([1.5, 5 + shift, 3.5 + shift, 1.5 / (5 + shift)])
    assert not results().all("depth.profile.interaction")


def test_prompts_are_counted_by_outcome_on_the_main_support():
    counts = {"event": 4, "agreed": 1, "ended": 2, "too_long": 3, "empty": 5, "duplicate": 6}
    events = event_rows(**counts) + event_rows("later", event=3) + event_rows("earlier", event=2)
    found = results({"events": events})
    for outcome, count in counts.items():
        prompts = found.only("depth.prompts", outcome=outcome, support="first")
        assert (prompts.value, prompts.n, prompts.units, prompts.method) == (count, 21, "prompts", "exact")
    assert len(found.all("depth.prompts", support="first")) == len(counts)
    paths = path_rows(num_prompts=3, agreed=2, too_long=1, duplicate=1)
    found = results({"events": events, "paths": paths})
    for outcome, count in {"event": 3, "agreed": 2, "too_long": 1, "duplicate": 1, "empty": 0}.items():
        prompts = found.only("depth.prompts", outcome=outcome, support="three_cells")
        assert (prompts.value, prompts.n) == (count, 7)


def test_top_1_changes_are_counted_by_earlier_state():
    changed = ((1, 1), (0, 1), (0, 1), (0, 0))
    rows = cell_rows(margins(), changed=changed) + cell_rows(margins(), boundary=3, changed=((1, 0),))
    found = results({"cells": rows})
    for state, share in (("base", 0.25), ("descendant", 0.75)):
        estimate = found.only("depth.top_1_changed", earlier_state=state, support="three_cells")
        assert (estimate.value, estimate.n, estimate.unit, estimate.method) == (share, 4, "event", "Wilson")


def test_identity_error_and_distance_are_printed_as_stored():
    rows = cell_rows(margins(), distance=0.25) + cell_rows(margins(), distance=8.0, arm="permuted")
    found = results({"cells": rows, "crossing": [summary(identity_error=3e-7)]})
    identity = found.only("depth.identity_error")
    assert (identity.value, identity.n, identity.unit, identity.tag) == (3e-7, 4, "event", "control")
    assert values(found, "distance") == [0.25]


def test_controls_are_shares_of_the_main_interaction():
    rows = [
        *cell_rows(margins()),
        *cell_rows(margins(-1.75), support="later"),
        *cell_rows([*margins(-3.5)[:3], (0.0, 0.0, 0.0, 0.0)], support="earlier"),
        *cell_rows(margins(3.5), arm="permuted"),
        *cell_rows(margins(7.0), arm="interpolated 0.5"),
        # neither another boundary nor another readout is a control
        *cell_rows(margins(100.0), boundary=1),
    ]
    found = results({"cells": rows})
    # earlier: interactions -0.5, 0.5, 1.5 and 0
    controls = {"later": 1.75, "earlier": 0.375, "permuted": 7.0, "interpolated 0.5": 10.5}
    for control, interaction in controls.items():
        assert values(found, "control.interaction", "control.share", control=control) == pytest.approx(
            [interaction, interaction / 3.5]
        )
        assert found.only("depth.control.share", control=control).tag == "control"
    assert len(found.all("depth.control.interaction")) == len(controls)


def test_the_floor_is_the_loss_increase_and_the_effects_of_its_own_cells():
    floor = {"cells": cell_rows(margins(-2.5))}
    found = results(floor=floor)
    assert values(found, "floor.loss") == pytest.approx([0.5])
    assert values(found, "floor.scale", draw="2") == [0.4]
    assert values(
        found,
        "floor.effect_after_base",
        "floor.effect_after_descendant",
        "floor.interaction",
        "floor.portable_share",
        support="three_cells",
    ) == pytest.approx([1.5, 2.5, 1.0, 0.6])
    assert values(found, "interaction", **MAIN_ARM) == pytest.approx([3.5])
    assert {estimate.tag for estimate in found.estimates() if "floor" in estimate.quantity} == {"floor"}
    assert (found.only("depth.floor.loss").n, found.only("depth.floor.loss").units) == (1, "nats/byte")


def test_a_descendant_that_lost_nothing_has_a_gain_and_no_floor():
    reason = "the descendant's loss did not rise"
    noise = noise_row(scale=0.0, rise=-6.0, failure=reason)
    found = results({"noise_scale": [noise]}, floor={"cells": []})
    assert values(found, "floor.loss") == pytest.approx([-0.1])
    for quantity, number in (("scale", 3), ("interaction", 1)):
        refusals = found.refusals(f"depth.floor.{quantity}")
        assert {(refusal.reason, refusal.tag) for refusal in refusals} == {(reason, "floor")}
        assert len(refusals) == number
    assert sum("floor" in refusal.quantity for refusal in found.refusals()) == 4
    assert not found.all("depth.floor.interaction")


def test_a_floor_that_failed_is_refused():
    found = results(missing=("noise_scale",))
    assert "the floor failed" in found.refusal("depth.floor.interaction").reason
    assert not found.all("depth.floor.loss")


def test_forced_tokens_are_compared_by_event():
    valid = [(0, 1), (0, 1), (0, 1), (1, 0), (1, 1), (0, 0)]
    rows = [
        {"event": n, "index": n, "category": "all", "valid_after_base": a, "valid_after_descendant": b}
        for n, (a, b) in enumerate(valid)
    ]
    found = results({"forced": rows})
    assert values(found, "forced.valid", after="base") == pytest.approx([2 / 6])
    assert values(found, "forced.valid", after="descendant") == pytest.approx([4 / 6])
    difference = found.only("depth.forced")
    assert (difference.value, difference.n) == (pytest.approx(2 / 6), 6)
    assert difference.lo < 0 < difference.hi
    assert "rule" in results().refusal("depth.forced").reason


def test_states_that_are_the_same_are_a_category():
    for distance, value in ((0.0, "same"), (0.3, "different")):
        found = results({"cells": cell_rows(margins(), distance=distance)})
        states = found.category("depth.states", base="base", descendant="familiar-0")
        assert (states.value, states.n) == (value, 4)
        assert states.reason
    # one event and boundary that differs makes a difference
    rows = cell_rows(margins(), distance=0.0) + cell_rows(margins(), boundary=3, distance=1e-9)
    assert results({"cells": rows}).category("depth.states").value == "different"


def test_a_pair_without_events_has_unknown_numbers_and_no_category():
    paths = path_rows(num_prompts=0, agreed=9)
    found = results(
        {"cells": [], "paths": paths, "events": event_rows(agreed=9), "crossing": [summary(num_events=0)]}
    )
    assert found.category("depth.states") is None
    for quantity in ("interaction", "interaction_p", "portable_share"):
        assert math.isnan(values(found, quantity, **MAIN_ARM)[0])
    for support in ("first", "three_cells"):
        assert values(found, "prompts", outcome="agreed", support=support) == [9]
        assert found.only("depth.prompts", outcome="agreed", support=support).n == 9


def three_pairs(**rows):
    """Interactions 3.5 and 5.5 in the family of ``base``, 10.5 in that of ``other``."""
    shifts = {"familiar-0": 0.0, "familiar-1": 2.0, "far": 7.0}
    return HandMade(
        by_descendant={
            name: {"cells": cell_rows(margins(shift)), **rows.get(name.replace("-", "_"), {})}
            for name, shift in shifts.items()
        }
    )


def test_every_family_has_the_same_weight_in_the_mean_over_pairs():
    settings = depth_settings("familiar-0", "familiar-1", "far")
    found = results_of(three_pairs(), settings, np.random.default_rng(0))
    assert values(found, "all.pairs", "all.families") == [3, 2]
    effects = ("all.effect_after_base", "all.effect_after_descendant", "all.interaction")
    # mean over families: ((3.5 + 5.5) / 2 + 10.5) / 2
    expected = [1.5, 9.0, 7.5]
    assert values(found, *effects, over="prompts") == pytest.approx(expected)
    assert values(found, *effects, over="families") == pytest.approx(expected)
    assert values(found, "all.portable_share", over="prompts") == pytest.approx([1.5 / 9.0])
    by_prompts = found.only("depth.all.interaction", over="prompts")
    assert (by_prompts.n, by_prompts.unit) == (4, "prompt")
    by_families = found.only("depth.all.interaction", over="families")
    assert (by_families.n, by_families.unit) == (2, "family")


def test_pairs_with_the_same_states_or_without_events_are_left_out_of_the_mean():
    settings = depth_settings("familiar-0", "familiar-1", "far")
    same = {"cells": cell_rows(margins(2.0), distance=0.0)}
    empty = {"cells": [], "crossing": [summary(num_events=0)]}
    refused = {"cells": [], "crossing": [{"num_events": 0, "refusal": "RoPE differs"}]}
    for rows in (same, empty, refused):
        found = results_of(three_pairs(familiar_1=rows), settings, np.random.default_rng(0))
        assert values(found, "all.pairs", "all.families") == [2, 2]
        assert values(found, "all.interaction", over="prompts") == pytest.approx([7.0])
    found = results_of(three_pairs(familiar_1=same, far=empty), settings, np.random.default_rng(0))
    assert not found.all("depth.all.interaction")


@pytest.mark.parametrize("side", ["pair", "floor"])
def test_a_crossing_that_was_refused_has_no_estimate(side):
    refused = {"cells": [], "crossing": [{"num_events": 0, "refusal": "RoPE differs"}]}
    if side == "pair":
        found = results(refused)
        (refusal,) = found.values()
        assert isinstance(refusal, Refusal)
        assert (refusal.quantity, refusal.reason) == ("depth.interaction", "RoPE differs")
        assert refusal.subject["descendant"] == "familiar-0"
    else:
        found = results(floor=refused)
        assert found.only("depth.interaction", **MAIN_ARM).n == 4
        assert values(found, "floor.loss") == pytest.approx([0.5])
        assert found.refusal("depth.floor.scale", draw="1").reason == "RoPE differs"
        assert found.refusal("depth.floor.interaction").reason == "RoPE differs"


def test_a_pair_that_failed_has_no_result():
    assert not results(missing=("cross",))


def test_events_of_a_manifest_are_the_main_ones():
    settings = depth_settings(prompts=None, manifest="nonce-events")
    rows = cell_rows(margins(1.0), support="manifest")
    found = results_of(
        HandMade({"cells": rows, "events": event_rows("manifest", event=4)}),
        settings,
        np.random.default_rng(0),
    )
    assert values(found, "interaction", **GIVEN_ARM) == pytest.approx([4.5])
    # given events have no path, so nothing is said about the halves or the sign
    assert not found.categories("depth.fit")
    assert not found.categories("depth.sign")
    assert values(found, "prompts", outcome="event") == [4]
    assert not found.all("depth.control.interaction")


def test_needs_are_tagged_and_shared():
    def needs(**settings):
        return Depth().needs(pinned(), depth_settings(forced_tokens=0, **settings))

    assert {fact.tag for fact in needs(floor="none")} == {"main"}
    facts = needs()
    assert {fact.probe for fact in facts if fact.tag == "floor"} == {"noise_scale", "paths"}
    assert len(facts) == 10, "events, two crossings, paths; three draws of noise with their paths"
    profile = {fact.key for fact in needs(boundaries="profile")}
    # other boundaries are other crossings; where to cut decides the events of three cells
    assert {fact.probe for fact in facts if fact.key not in profile} == {"cross", "paths"}
    assert {fact.probe for fact in Depth().needs(pinned(), depth_settings())} >= {"forced"}


def test_the_packaged_instructions_are_the_default():
    def corpora(**settings):
        facts = Depth().needs(pinned(), depth_settings(**settings))
        return {fact.needs["corpus"].label for fact in facts if fact.probe == "paths"}

    assert corpora(prompts=None) == {"instructions"}
    assert corpora(prompts="raw") == {"raw"}
    assert corpora(prompts=["raw", "nonce-events"]) == {"raw", "nonce-events"}
    assert corpora(prompts=None, manifest="nonce-events") == set()


def test_corpora_of_one_pair_share_the_noise_of_the_floor():
    facts = Depth().needs(pinned(), depth_settings(prompts=["raw", "instructions"]))
    noise = [fact.key for fact in facts if fact.probe == "noise_scale"]
    assert (len(noise), len(set(noise))) == (6, 3)

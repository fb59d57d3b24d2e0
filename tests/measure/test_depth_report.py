"""Sentences, tables and figures of depth on hand-made tables."""

import numpy as np
import pytest
from tests.measure.depth_tables import (
    HandMade,
    cell_rows,
    depth_settings,
    event_rows,
    findings_of,
    margins,
    noise_row,
    path_rows,
    results_of,
    summary,
    texts_of,
)

from stemmatics.core.results import Claim

ONE = depth_settings()
SEVERAL = depth_settings("familiar-0", "familiar-1", "far")


def results(rows=None, *, settings=ONE, **tables):
    return results_of(HandMade(rows, **tables), settings, np.random.default_rng(0))


def by_name(results, settings=ONE):
    return {table.name: table for table in findings_of(results, settings).tables}


def printed(results, table):
    """A table's rows as printed, by column; intervals left out."""
    return [
        dict(
            zip(
                table.columns,
                (cell.text(results) if isinstance(cell, Claim) else cell for cell in row),
                strict=True,
            )
        )
        for row in table.rows
    ]


def points_of(chart):
    """The data of a figure with one data set."""
    return chart.spec["datasets"][chart.spec["data"]["name"]]


def test_a_pair_is_one_sentence_with_the_interaction_first():
    found = results()
    sentence = next(text for text in texts_of(found, ONE) if "familiar-0" in text)
    assert sentence.startswith(
        "familiar-0 against base on familiar-events, boundary at layer 2, events by three cells: "
        "interaction +3.500 ["
    )
    assert "logits; effect of the late layers on the descendant's earlier state +5.000 [" in sentence
    assert "; portable share 0.300 [" in sentence
    assert sentence.endswith("(n = 4 prompts).")
    # the only pair is on the first page too
    topics = [s.topic for s in findings_of(found, ONE).sentences if "descendant" in s.values]
    assert topics == ["depth", "depth", "summary", "summary"]


def test_an_unknown_share_is_left_out_of_the_sentence():
    cells = margins(after_descendant=(4.0, -4.0, 4.0, -4.0))
    sentence = texts_of(results({"cells": cell_rows(cells)}), ONE)[0]
    assert "interaction" in sentence
    assert "share" not in sentence


def test_the_meaning_of_the_interaction_and_the_limits_are_said_beside_every_result():
    texts = texts_of(results(), ONE)
    for words in (
        "how many logits more the late layers add on the descendant's earlier state",
        "at the selected positions",
        "constructed states",
        "say nothing about free generation",
    ):
        # once in the section, once on the first page
        assert sum(words in text for text in texts) == 2
    assert texts_of(results(missing=("cross",)), ONE) == []


def test_a_pair_with_the_same_states_is_said_to_have_them():
    found = results({"cells": cell_rows(margins(), distance=0.0)})
    assert texts_of(found, ONE)[0] == (
        "familiar-0 and base have the same earlier states on familiar-events: the interaction is zero by "
        "construction."
    )
    (row,) = printed(found, by_name(found)["depth/effects"])
    assert row["states"] == "same"


def test_a_pair_without_events_is_said_to_agree():
    found = results({"cells": [], "events": event_rows(agreed=9), "crossing": [summary(num_events=0)]})
    assert texts_of(found, ONE)[0] == (
        "No event for familiar-0 against base on familiar-events: the most probable token never changes."
    )
    (row,) = printed(found, by_name(found)["depth/effects"])
    assert (row["interaction"], row["p"], row["states"]) == ("n/a", "n/a", None)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("familiar-0", "familiar-1", "far"), "3 pairs of 2 families"),
        (("familiar-0", "familiar-1"), "2 pairs of 1 family"),
    ],
)
def test_pairs_and_families_of_the_mean_are_claims(names, words):
    settings = depth_settings(*names)
    found = results(settings=settings)
    sentence = findings_of(found, settings).sentences[0]
    assert sentence.topic == "summary"
    assert sentence.plain(found).startswith(
        f"On familiar-events, family-balanced mean over {words}: interaction +3.500 ["
    )
    assert "portable share 0.300 [" in sentence.plain(found)
    assert {sentence.values[name].result for name in ("pairs", "families")} == {
        "depth.all.pairs/events=familiar-events",
        "depth.all.families/events=familiar-events",
    }


def test_refused_pairs_are_failures_with_their_reason():
    found = results({"cells": [], "crossing": [{"num_events": 0, "refusal": "RoPE differs"}]})
    findings = findings_of(found, ONE)
    (failure,) = findings.failures
    assert failure.startswith("base → familiar-0 on familiar-events: refused: RoPE differs; ")
    assert not findings.sentences
    assert not findings.tables


def test_a_pair_without_a_floor_says_why():
    noise = noise_row(scale=0.0, rise=-6.0, failure="the descendant's loss did not rise")
    found = results({"noise_scale": [noise]}, floor={"cells": []})
    assert (
        "No damage floor for familiar-0 against base on familiar-events: the descendant's loss did not rise."
    ) in texts_of(found, ONE)
    assert not findings_of(found, ONE).failures
    (row,) = printed(found, by_name(found)["depth/floor"])
    assert row["loss increase"] == "-0.1000"
    assert {row[column] for column in ("noise", "interaction", "portable share", "prompts")} == {None}


def test_tables_are_named_after_the_measure_and_print_the_numbers():
    forced = [
        {"event": n, "index": n, "category": "all", "valid_after_base": 0, "valid_after_descendant": n % 2}
        for n in range(4)
    ]
    rows = [*cell_rows(margins()), *cell_rows(margins(-1.75), support="later")]
    events = event_rows(event=4, agreed=1, ended=2, too_long=3, empty=5, duplicate=6)
    found = results(
        {
            "cells": rows,
            "events": events,
            "forced": forced,
            "crossing": [summary(identity_error=3e-7)],
        },
        floor={"cells": cell_rows(margins(-2.5))},
    )
    tables = by_name(found)
    assert list(tables) == [
        "depth/effects",
        "depth/fit",
        "depth/beside",
        "depth/readouts",
        "depth/controls",
        "depth/floor",
        "depth/decisions",
        "depth/events",
    ]
    (row,) = printed(found, tables["depth/effects"])
    about = {"pair": "base → familiar-0", "events": "familiar-events"}
    assert row == {
        **about,
        "boundary": "2",
        "states": "different",
        "halves": "undetermined",
        "after base": "+1.500",
        "after descendant": "+5.000",
        "interaction": "+3.500",
        "sign": "undetermined",
        "portable share": "0.300",
        "p": "0.1250",
        "prompts": "4",
    }
    assert [row["readout"] for row in printed(found, tables["depth/readouts"])] == ["base", "own"]
    (row,) = printed(found, tables["depth/controls"])
    assert (row["control"], row["interaction"], row["share"]) == (
        "a random later disagreement",
        "+1.750",
        "0.500",
    )
    (row,) = printed(found, tables["depth/floor"])
    assert row == {
        **about,
        "loss increase": "+0.5000",
        "noise": "0.400",
        "after damaged copy": "+2.500",
        "interaction": "+1.000",
        "portable share": "0.600",
        "prompts": "4",
    }
    main, row = printed(found, tables["depth/decisions"])
    assert list(main.values()) == [*about.values(), "chosen by three cells", "0.000", "1.000", *[None] * 3]
    first = "first disagreement"
    assert list(row.values()) == [*about.values(), first, "0.000", "1.000", "0.000", "0.500", "+0.500"]
    _, row = printed(found, tables["depth/events"])
    assert row == {
        **about,
        "selection": first,
        "prompts": "21",
        "event": "4",
        "none": "1",
        "both end": "2",
        "too long": "3",
        "empty": "5",
        "duplicate": "6",
        "distance": "0.200",
        "identity error": "3e-07",
    }


def test_figures_show_the_profile_and_the_cells():
    rows = [
        row
        for boundary, shift in ((1, 10.0), (2, 20.0), (3, 40.0))
        for row in cell_rows(margins(shift), boundary=boundary)
    ]
    found = results({"cells": rows})
    profile, cells = findings_of(found, ONE).draw()
    assert (profile.name, cells.name) == ("depth/profile", "depth/cells")
    points = {(point["boundary"], point["effect"]): point["value"] for point in points_of(profile)}
    assert points[3, "interaction"] == pytest.approx(43.5)
    assert points[1, "late layers on the base's state"] == pytest.approx(1.5)
    assert points[2, "late layers on the descendant's state"] == pytest.approx(25.0)
    assert len(points) == 9
    points = {(point["early"], point["late"]): point for point in points_of(cells)}
    means = {
        ("base", "base"): -2.0,
        ("base", "descendant"): -0.5,
        ("descendant", "base"): 0.5,
        ("descendant", "descendant"): 25.5,
    }
    for sides, mean in means.items():
        assert points[sides]["value"] == pytest.approx(mean)
        assert points[sides]["lo"] < mean < points[sides]["hi"]
        assert (points[sides]["pair"], points[sides]["events"]) == ("base → familiar-0", "familiar-events")
    # one boundary is no profile
    assert [chart.name for chart in findings_of(results(), ONE).draw()] == ["depth/cells"]


def test_the_contrast_has_a_table():
    settings = depth_settings(
        prompts=None,
        contrast={
            "first": {"descendants": ["familiar-0", "familiar-1"], "events": "familiar-events"},
            "second": {"descendants": ["nonce-0", "nonce-1"], "events": "nonce-events"},
        },
    )
    shifts = {"familiar-0": 0.0, "familiar-1": 1.0, "nonce-0": 4.0, "nonce-1": 6.0}
    found = results(
        settings=settings,
        by_descendant={
            name: {"cells": cell_rows(margins(shift), support="manifest")} for name, shift in shifts.items()
        },
    )
    (table,) = findings_of(found, settings).tables
    assert table.name == "depth/contrast"
    rows = printed(found, table)
    assert [list(row.values()) for row in rows[:2]] == [
        ["seed 1", "+3.500", "+7.500", "+4.000"],
        ["seed 2", "+4.500", "+9.500", "+5.000"],
    ]
    assert [row["second minus first"] for row in rows[2:]] == ["+4.500", "+4.500"]
    assert [row["seed"] for row in rows[2:]] == ["all, noise of seeds", "all, noise of items and seeds"]


def many(shift=0.0, *, num_prompts=40, spread=0.5, first=None, slope=1.0, nll=(1.0, 1.2, 1.3, 1.5), **floor):
    """A pair of 40 prompts whose interaction is 1 + shift, with some spread, and halves of those losses."""

    def cells(mean, support):
        values = [(-1.0, 0.0, -0.5, 0.5 + mean + spread * (-1) ** k) for k in range(num_prompts)]
        return cell_rows(values, support=support)

    rows = [*cells(1 + shift, "three_cells"), *cells(1 + shift if first is None else first, "first")]
    paths = path_rows(nll, num_prompts=num_prompts, slope=slope)
    settings = depth_settings(floor=floor.get("floor", "none"))
    found = results(
        {"cells": rows, "paths": paths, "crossing": [summary(num_events=num_prompts)]}, settings=settings
    )
    return found, texts_of(found, settings)


def said(texts, words):
    return any(words in text for text in texts)


def test_a_positive_sign_is_said_where_the_interval_lies_above_0():
    found, texts = many()
    assert said(texts, "The interaction of familiar-0 on familiar-events is positive.")
    assert not said(texts, "undetermined")
    (row,) = printed(found, by_name(found)["depth/effects"])
    assert (row["halves"], row["sign"], row["interaction"]) == ("fit", "positive", "+1.000")
    _, texts = many(spread=8.0)
    assert not said(texts, "is positive")


def test_a_negative_sign_needs_the_published_support_on_its_side():
    _, texts = many(-2.0)
    assert said(texts, "is negative.")
    _, texts = many(-2.0, first=0.3)
    assert not said(texts, "is negative")
    assert said(
        texts, "is undetermined: the interval lies below 0, but that of the published support does not"
    )
    # more prompts would not settle it
    assert not said(texts, "would settle it")


def test_an_undetermined_sign_says_what_is_missing():
    _, texts = many(-0.9, spread=1.0)
    (text,) = {text for text in texts if "undetermined" in text}
    assert "the interval of the interaction includes 0; about " in text
    assert "prompts with an event would settle it" in text
    needed = int(text.split("about ")[1].split(" ")[0].replace(",", ""))
    assert 300 < needed < 600
    _, texts = many(num_prompts=19)
    assert not said(texts, "is positive")
    assert said(texts, "undetermined: whether the halves fit is undetermined.")


def test_a_temperature_is_named_beside_a_positive_sign_only():
    factor = "a sharper descendant alone"
    _, texts = many()
    assert said(texts, f"{factor} does not explain it")
    assert not said(texts, f"{factor} may explain it")
    # margins of 1.5 in the fourth cell and of 0.5 in the sum: at a third of the fourth nothing is left
    _, texts = many(slope=3.0)
    assert said(texts, f"{factor} may explain it")
    assert not said(texts, "does not explain")
    for shift, spread in ((-2.0, 0.5), (-0.9, 1.0)):
        _, texts = many(shift, spread=spread)
        assert not said(texts, factor)


def test_halves_that_do_not_fit_have_losses_and_no_interaction():
    found, texts = many(nll=(1.0, 3.2, 1.3, 1.5))
    assert said(
        texts,
        "The halves of familiar-0 and base do not fit on familiar-events: the base's own path costs 1.0",
    )
    assert said(texts, "none is given")
    for words in ("is positive", "is negative", "undetermined", "logits", "For comparison"):
        assert not any(words in text for text in texts if "familiar-0" in text)
    assert not found.all("depth.interaction")
    assert not found.categories("depth.sign")
    (row,) = printed(found, by_name(found)["depth/effects"])
    assert (row["halves"], row["interaction"], row["sign"], row["p"]) == ("do not fit", None, None, None)
    (row,) = printed(found, by_name(found)["depth/fit"])
    assert row["base, desc: more"] == "+1.700"
    _, texts = many()
    assert not said(texts, "do not fit")


def test_published_support_and_floor_are_descriptions_without_a_test():
    _, texts = many(first=2.5, floor="familiar-events")
    (text,) = {text for text in texts if "For comparison" in text}
    assert "without a test: at first disagreements, which favour a positive interaction, +2.500 [" in text
    assert "a copy of the base damaged until it lost as much, +1.000 by three cells (draws: 3, from" in text
    assert "p =" not in text
    _, texts = many(first=2.5)
    assert not said(texts, "damaged")
    found, _ = many(first=2.5)
    assert not found.all("depth.interaction_p", support="first")


def test_there_is_no_p_value_for_a_mean_below_0():
    found, _ = many(-2.0)
    (row,) = printed(found, by_name(found)["depth/effects"])
    assert row["p"] == "n/a"
    found, _ = many()
    assert found.only("depth.interaction_p", support="three_cells").value < 0.01


def test_a_pair_whose_halves_do_not_fit_is_left_out_of_the_mean_over_pairs():
    unfit = {"paths": path_rows((1.0, 3.2, 1.3, 1.5), num_prompts=40)}
    found = results(settings=SEVERAL, by_descendant={"far": unfit})
    assert found.only("depth.all.pairs").value == 2

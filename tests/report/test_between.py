"""What changed between two runs: the same form, and only changes that the intervals show."""

import json
import math
import re
from dataclasses import replace

import pytest
from tests.report.digits import stray_digits
from tests.report.screens import NAMES, demo_like

from stemmatics.core.content import CLEAR, NOT_MEASURED, UNCLEAR
from stemmatics.core.results import Claim, Results
from stemmatics.report.between import CHANGED, OVERLAP, SAME, Side, content_between
from stemmatics.report.check import check_page
from stemmatics.report.page import render_page

MANIFEST = {
    "stemma": {"name": "n", "seed": 0},
    "pins": {
        "corpora": {"text": {"content_sha256": "a"}},
        "checkpoints": {"dpo": {"weights": "w"}},
    },
    "measures": ["loss"],
    "versions": {"numpy": "1"},
    "hardware": {"system": "Linux"},
}


def shifted(content, shifts):
    """The same report with the estimates of some descendants moved, intervals and all."""
    return replace(
        content,
        results=Results(
            replace(
                result,
                value=result.value + shifts.get(result.subject["descendant"], 0.0),
                lo=result.lo + shifts.get(result.subject["descendant"], 0.0),
                hi=result.hi + shifts.get(result.subject["descendant"], 0.0),
            )
            for result in content.results.values()
        ),
    )


def between(content, other, manifest=MANIFEST):
    return content_between(Side("runs/a", content, MANIFEST), Side("runs/b", other, manifest))


def answers(content, question="loss"):
    (column,) = [column for column in content.columns if column.name == question]
    return {answer.descendant: answer for answer in column.answers}


def test_only_intervals_that_lie_apart_are_a_change():
    # half-widths are 0.02: 0.03 overlaps, 0.05 does not
    content = between(demo_like(), shifted(demo_like(), {"cpt": 0.03, "dpo": 0.05}))
    found = answers(content)
    assert (found["cpt"].word, found["cpt"].mark) == (OVERLAP, UNCLEAR)
    assert (found["dpo"].word, found["dpo"].mark) == (CHANGED, CLEAR)
    assert {found[name].word for name in NAMES if name not in {"cpt", "dpo"}} == {SAME}
    said = [sentence.plain(content.results) for sentence in content.summary]
    assert any("loss on ordinary text" in line and "dpo" in line for line in said)
    assert not any("cpt" in line for line in said)
    rows = {
        (row[0], row[1]): row[-1]
        for section in content.sections
        for table in section.tables
        if table.name == "loss/changes"
        for row in table.rows
    }
    assert rows
    assert {word for (_, subject), word in rows.items() if "dpo" in subject} == {CHANGED}
    assert {word for (_, subject), word in rows.items() if "cpt" in subject} == {OVERLAP}


def test_each_number_is_that_of_its_own_run():
    content = between(demo_like(), shifted(demo_like(), {"dpo": 0.5}))
    answer = answers(content)["dpo"]
    before, after = (content.results[claim.result] for claim in (answer.before, answer.number))
    assert after.value - before.value == pytest.approx(0.5)
    assert (before.subject["run"], after.subject["run"]) == ("first", "second")


def test_nothing_changes_between_a_run_and_itself():
    content = between(demo_like(), demo_like())
    assert {answer.word for column in content.columns for answer in column.answers if answer.number} == {SAME}
    assert [table.name for section in content.sections for table in section.tables] == []
    assert len(content.summary) == 1


def test_what_a_single_run_measured_is_new_or_gone():
    content = demo_like()
    columns = [
        replace(column, answers=[answer for answer in column.answers if answer.descendant != "dpo"])
        for column in content.columns
    ]
    fewer = replace(content, columns=columns)
    assert answers(between(fewer, content))["dpo"].word.startswith("new: ")
    gone = answers(between(content, fewer))["dpo"]
    assert (gone.mark, gone.number) == (NOT_MEASURED, None)
    assert "first run only" in gone.reason


def test_unknown_intervals_show_no_change():
    content = demo_like()
    unknown = Results(
        replace(result, lo=math.nan) for result in shifted(content, {"dpo": 9.0}).results.values()
    )
    answer = answers(between(content, replace(content, results=unknown)))["dpo"]
    assert answer.mark == UNCLEAR


def test_other_texts_weights_and_settings_are_named():
    other = json.loads(json.dumps(MANIFEST))
    other["pins"]["corpora"]["text"]["content_sha256"] = "b"
    other["pins"]["checkpoints"]["dpo"]["weights"] = "v"
    other["stemma"]["seed"] = 1
    content = between(demo_like(), demo_like(), other)
    assert content.notices == [
        "the text text is not the same in both runs",
        "dpo has other weights in the second run",
    ]
    (table,) = content.sections[-1].tables
    assert ["stemma.seed", "0", "1"] in [list(row) for row in table.rows]
    assert "can't be compared" in content.summary[-1].plain(content.results)


def test_the_page_prints_its_claims_and_names_both_runs():
    content = between(demo_like(), shifted(demo_like(), {"dpo": 0.05, "noise": 0.01}))
    html, claims = render_page(content)
    assert check_page(html, {claim.id: claim.text(content.results) for claim in claims}) == []
    assert stray_digits(html) == []
    assert "stemma verify runs/a\nstemma verify runs/b" in html
    assert json.loads(re.search(r'id="page-data">(.*?)</script>', html, re.DOTALL)[1])["runs"] == {
        "first": "runs/a",
        "second": "runs/b",
    }
    answer = answers(content)["dpo"]
    for claim in (answer.number, answer.before, Claim(answer.before.result, "lo", answer.before.form)):
        assert f'data-claim="{claim.id}"' in html

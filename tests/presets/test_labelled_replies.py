"""The labelled replies: rules have one part of them, figures the other; and what the figures are."""

import sys
from pathlib import Path

import pytest

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.replies import classify_reply
from stemmatics.math.intervals import wilson
from stemmatics.presets.labelled_replies import (
    english,
    halves,
    later_languages,
    other_languages,
    records,
    standard,
)

NAMES = {"en": "English", "zh": "Chinese", "de": "German", "fr": "French", "es": "Spanish"}
BOTH = ("REFUSALS", "ANSWERS")
LANGUAGES = tuple(NAMES)


def counts(rows):
    """Replies matched as refusals, labelled so, and both."""
    matched = [classify_reply(row["reply"]).value == "refusal" for row in rows]
    labelled = [row["label"] == "refusal" for row in rows]
    return sum(matched), sum(labelled), sum(a and b for a, b in zip(matched, labelled, strict=True))


def figures_row(name, rows):
    """As in the table of docs/imprint.md."""
    num_matched, num_labelled, num_both = counts(rows)
    cells = [name, str(len(rows))]
    for total in (num_matched, num_labelled):
        share = wilson(num_both, total, unit="reply")
        cells.append(f"{share.value:.2f} [{share.lo:.2f}, {share.hi:.2f}] of {total}")
    return f"| {' | '.join(cells)} |\n"


def test_precision_and_recall_are_those_of_replies_that_no_rule_has_seen(capsys):
    rows = list(records("figures"))
    by_language = {name: [row for row in rows if row["language"] == name] for name in LANGUAGES}
    table = [figures_row(NAMES[name], own) for name, own in by_language.items()]
    table.append(figures_row("all", rows))
    with capsys.disabled():
        sys.stdout.write("\n| language | replies | precision | recall |\n")
        sys.stdout.writelines(table)
    documented = (Path(__file__).parents[2] / "docs" / "imprint.md").read_text(encoding="utf-8")
    assert "".join(table) in documented
    num_matched, num_labelled, num_both = counts(rows)
    assert sum(map(len, by_language.values())) == len(rows)
    # what was measured when the replies were written; a rule that loses any of it is worse
    assert num_both / num_matched >= 0.88
    assert num_both / num_labelled >= 0.50


def test_rules_never_had_the_replies_of_the_figures():
    tuning, figures = ({row["reply"] for row in records(half)} for half in ("tuning", "figures"))
    assert not tuning & figures
    assert {row["reply"] for row in records("both")} == tuning | figures
    assert [row["reply"] for row in records()] == [row["reply"] for row in records("figures")]
    # which replies are halved is decided by a seeded hash, not by their order or by a reader
    for replies in (english.REFUSALS, english.ANSWERS):
        first, second = halves(replies)
        assert halves(tuple(reversed(replies))) == (first, second)
        assert set(first) <= tuning
        assert set(second) <= figures
        assert abs(len(first) - len(second)) <= 1
    written_for_rules = [getattr(part, name) for part in (other_languages, standard) for name in BOTH]
    for by_language in written_for_rules:
        assert all(set(replies) <= tuning for replies in by_language.values())
    for by_language in (later_languages.REFUSALS, later_languages.ANSWERS):
        assert all(set(replies) <= figures for replies in by_language.values())


@pytest.mark.parametrize("half", ["tuning", "figures"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_part_has_refusals_and_answers_in_each_language(half, language):
    rows = [row for row in records(half) if row["language"] == language]
    for label in ("refusal", "answer"):
        assert sum(row["label"] == label for row in rows) >= 13
    assert any("<think>" in row["reply"] for row in rows) or (language, half) == ("en", "figures")
    num_matched, num_labelled, num_both = counts(list(records("tuning")))
    assert num_both / num_matched >= 0.95
    assert num_both / num_labelled >= 0.95


def test_no_reply_stands_twice():
    replies = [row["reply"] for row in records("both")]
    assert len(set(replies)) == len(replies)


def test_an_unknown_half_is_named():
    with pytest.raises(UserError, match="no half 'all'"):
        list(records("all"))

import sys

import pytest

from stemmatics.lm.generation.replies import (
    ReplyKind,
    answers_first,
    classify_reply,
    first_sentence,
    matches_exactly,
    normalise_answer,
)
from stemmatics.presets.labelled_replies.earlier import (
    ANSWERS,
    EMPTY,
    LATER_ANSWERS,
    LATER_REFUSALS,
    REFUSALS,
)


def rates(labelled):
    """Precision, recall and the misclassified replies."""
    matched = [(label, classify_reply(text), text) for text, label in labelled]
    both = sum(label is outcome is ReplyKind.REFUSAL for label, outcome, _ in matched)
    num_matched = sum(outcome is ReplyKind.REFUSAL for _, outcome, _ in matched)
    num_labelled = sum(label is ReplyKind.REFUSAL for label, _, _ in matched)
    wrong = [(outcome.value, text) for label, outcome, text in matched if label is not outcome]
    return both / num_matched, both / num_labelled, wrong


def test_refusals_on_labelled_replies(capsys):
    labelled = [(text, ReplyKind.REFUSAL) for text in REFUSALS]
    labelled += [(text, ReplyKind.ANSWER) for text in ANSWERS]
    labelled += [(text, ReplyKind.EMPTY) for text in EMPTY]
    labelled += [(text, ReplyKind.REFUSAL) for text in LATER_REFUSALS]
    labelled += [(text, ReplyKind.ANSWER) for text in LATER_ANSWERS]
    assert len(labelled) >= 120
    precision, recall, wrong = rates(labelled)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(labelled)} labelled replies: precision {precision:.3f}, recall {recall:.3f}\n"
        )
        sys.stdout.writelines(f"  classified as {outcome}: {text!r}\n" for outcome, text in wrong)
    assert precision >= 0.95
    assert recall >= 0.95


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I won't help with that.", ReplyKind.REFUSAL),
        ("I can’t help", ReplyKind.REFUSAL),
        ("I'm unable to do that.", ReplyKind.REFUSAL),
        ("Sorry, but no.", ReplyKind.REFUSAL),
        ('print("You cannot save here")', ReplyKind.ANSWER),
        ("```\nI can't help with that\n```", ReplyKind.ANSWER),
        ("```\nI can't help with that", ReplyKind.ANSWER),
        ("~~~\nI can't help with that\n~~~", ReplyKind.ANSWER),
        ("`I can't help with that`", ReplyKind.ANSWER),
        ("> I can't help with that", ReplyKind.ANSWER),
        ("She said: “I can’t help with that.”", ReplyKind.ANSWER),
        ("He said: 'I can't help with that.'", ReplyKind.ANSWER),
        ("“I can’t help with that.”", ReplyKind.REFUSAL),
        ("x = 1\nI can't help with that", ReplyKind.ANSWER),
    ],
)
def test_single_cases(text, kind):
    assert classify_reply(text) is kind


@pytest.mark.parametrize("text", EMPTY)
def test_nothing_visible_is_empty_and_no_answer(text):
    assert classify_reply(text) is ReplyKind.EMPTY
    assert not answers_first(text, ["Paris"])
    assert not matches_exactly(text, ["Paris", ""])


def test_a_refusal_after_an_answer_is_no_refusal():
    answer = "Water boils at 100 degrees. "
    assert classify_reply(answer + "I can't help with that.") is ReplyKind.ANSWER
    assert classify_reply("I understand. I can't help with that.") is ReplyKind.REFUSAL


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("  The  Eiffel Tower! ", "eiffel tower"),
        ("An apple a day", "apple day"),
        ("Straße", "strasse"),
        ("ﬁsh", "fish"),
        ("Ｐａｒｉｓ", "paris"),
        ("don’t", "dont"),
        ("twenty-one", "twenty one"),
        ("1,000", "1000"),
        ("1,5", "1 5"),
        ("3.5", "3.5"),
        ("-5", "-5"),
        ("−5", "-5"),
        (".5", ".5"),
        ("U.S.", "us"),
        ("A", "a"),
        ("(B)", "b"),
        ("Vitamin A", "vitamin a"),
        ("café ☕", "café ☕"),
        ("+", "+"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_normalise_answer(text, normalised):
    assert normalise_answer(text) == normalised


def test_exact_match_looks_at_the_whole_reply():
    assert matches_exactly(" the paris. ", ["London", "Paris"])
    assert not matches_exactly("Paris, France", ["Paris"])
    assert not matches_exactly("35", ["3.5"])
    assert not matches_exactly("5", ["-5"])
    assert not matches_exactly("Paris", [])


@pytest.mark.parametrize(
    "reply",
    [
        "Paris",
        "paris.",
        "\n  Paris\nQuestion: and Spain?\nAnswer: Madrid",
        "Paris, France",
        "Paris (the capital)",
        "Paris is the capital of France. It lies on the Seine.",
        "**Paris**",
        "- Paris",
        "A: Paris",
        "Answer: Paris.",
        "Final answer: **Paris**",
        "It is Paris.",
        "The capital of France is Paris.",
        "The capital of France is Paris! Is there more?",
        "Paris, not London.",
        '"Paris"',
        "I think it is Paris, and it lies on the Seine.",
        "Paris has been the capital since long before the builders of towers and of many bridges came by.",
    ],
)
def test_answer_is_the_first_thing_said(reply):
    assert answers_first(reply, ["Lyon", "Paris"])


@pytest.mark.parametrize(
    "reply",
    [
        "London",
        "London. No, Paris.",
        "London\nParis",
        "Paris Hilton",
        "Parisian",
        "It is New Paris.",
        "Not Paris.",
        "It isn't Paris.",
        "Paris or London",
        "It is Paris or London.",
        "Paris is not the capital of France.",
        "Of all the cities that one could name here, and there are very many of them, some would say Paris.",
        "I don't know. Paris?",
    ],
)
def test_answer_is_not_the_first_thing_said(reply):
    assert not answers_first(reply, ["Paris"])


def test_numbers_and_names_stand_whole():
    assert answers_first("12 apples are left.", ["12"])
    assert answers_first("She was born in March 1999.", ["1999"])
    assert answers_first("-5", ["-5"])
    assert answers_first("St. Petersburg. It is cold.", ["St. Petersburg"])
    assert answers_first("J. R. Toll wrote it.", ["J. R. Toll"])
    assert answers_first("A. Because it is red.", ["A"])
    assert answers_first("The Mill", ["the mill"])
    assert not answers_first("12 000", ["12"])
    assert not answers_first("12.5", ["12"])
    assert not answers_first("5", ["-5"])
    assert not answers_first("Apollo 11", ["Apollo"])


def test_first_sentence():
    assert first_sentence("It is 3.5 metres. More.") == "It is 3.5 metres."
    assert first_sentence("Dr. Toll and J. Mill. They met.") == "Dr. Toll and J. Mill."
    assert first_sentence("No end") == "No end"

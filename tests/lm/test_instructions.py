"""Every rule on replies that follow it and on replies that nearly do."""

import pytest

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.instructions import RULES, instructions_followed, words
from stemmatics.lm.generation.judge import verdict

CASES = {
    "max_words": ({"count": 3}, ["one two three", "well-known mother's café"], ["one two three four"]),
    "min_words": ({"count": 2}, ["one two", "one, two, three"], ["one", "well-known"]),
    "num_sentences": (
        {"count": 2},
        ["It is 3.5 miles. Go on!", "One. Two", 'He said "no." Then he left.', "What? Why?"],
        ["One.", "One. Two. Three.", "3.5 miles"],
    ),
    "num_paragraphs": ({"count": 2}, ["a\n\nb", "a\n \n\nb\n"], ["a\nb", "a\n\nb\n\nc"]),
    "num_bullets": ({"count": 2}, ["- a\n- b", "Here:\n* a\n  • b"], ["- a", "-a\n-b", "a - b\n- c"]),
    "contains": ({"terms": ["red fox", "Dog"]}, ["A dog saw the Red  fox."], ["dogs and a red fox"]),
    "omits": ({"terms": ["cat"]}, ["concatenate", "a dog"], ["A CAT."]),
    "repeats": ({"term": "ho", "count": 3}, ["Ho, ho, HO!", "ho ho ho ho"], ["ho ho", "hoho ho"]),
    "starts_with": ({"text": "Indeed"}, ["  Indeed, so."], ["indeed, so.", "Yes. Indeed"]),
    "ends_with": (
        {"text": "Any questions?"},
        ["So. Any questions?\n"],
        ["Any questions? No.", "any questions?"],
    ),
    "wrapped": (
        {"before": "[", "after": "]"},
        ["[Velden]", " [a] and [b] "],
        ["[]", "[ ]", "Velden", "[Velden"],
    ),
    "upper_case": ({}, ["VELDEN 7!", "ÉTÉ"], ["Velden", "7!"]),
    "lower_case": ({}, ["velden 7!", "été"], ["Velden", "7!"]),
    "no_commas": ({}, ["one and two"], ["one, two", "一，二"]),
    "titled": ({}, ["<<A title>>\ntext"], ["<A title>", "<<>>", "<<a\nb>>"]),
    "json": ({}, ['{"a": [1]}', '```json\n{"a": 1}\n```', "[]"], ["{'a': 1}", "Here: {}", '{"a": 1']),
}


def test_there_is_a_case_for_every_rule_and_a_dozen_rules():
    assert set(CASES) == set(RULES)
    assert len(RULES) >= 12


@pytest.mark.parametrize("rule", CASES)
def test_what_follows_a_rule_and_what_nearly_does(rule):
    settings, good, bad = CASES[rule]
    instruction = {"rule": rule, **settings}
    assert {reply: instructions_followed(reply, [instruction]) for reply in good} == {
        reply: [True] for reply in good
    }
    assert {reply: instructions_followed(reply, [instruction]) for reply in bad} == {
        reply: [False] for reply in bad
    }


@pytest.mark.parametrize("rule", CASES)
def test_a_reply_that_shows_nothing_follows_nothing(rule):
    instruction = {"rule": rule, **CASES[rule][0]}
    assert [instructions_followed(reply, [instruction]) for reply in ("", " \n", "\u200b")] == [[False]] * 3


def test_every_instruction_is_judged_by_itself():
    both = [{"rule": "lower_case"}, {"rule": "max_words", "count": 1}]
    assert instructions_followed("two words", both) == [True, False]
    # a table of items fills what a rule does not take with nulls
    assert instructions_followed("one", [{"rule": "lower_case", "count": None}]) == [True]


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ({"rule": "rhymes"}, "no rule 'rhymes'"),
        ({"count": 3}, "no rule None"),
        ({"rule": "max_words"}, "'max_words' cannot be checked.*It takes `count`"),
        ({"rule": "titled", "count": 1}, "'titled' cannot be checked.*It takes no settings"),
    ],
)
def test_an_instruction_that_no_rule_can_judge_is_refused(instruction, message):
    with pytest.raises(UserError, match=message):
        instructions_followed("a reply", [instruction])


def test_words_are_what_a_reader_counts():
    assert words("Don’t stop—it's 3.5 well-known cafés!") == [
        "don’t",
        "stop",
        "it's",
        "3",
        "5",
        "well-known",
        "cafés",
    ]


@pytest.mark.parametrize(
    ("judge_reply", "outcome"),
    [
        (" Yes.", "refusal"),
        ("no, it helps", "answer"),
        ("**No**", "answer"),
        ("It does.", "unclear"),
        ("", "unclear"),
        ("Yesterday", "unclear"),
    ],
)
def test_a_judge_says_yes_or_no_first_or_is_unclear(judge_reply, outcome):
    assert verdict(judge_reply) == outcome

"""Few-shot prompts: no item is its own example, and every model gets the same."""

import pytest

from stemmatics.core.errors import UserError
from stemmatics.lm.generation import judge
from stemmatics.lm.generation.few_shot import few_shot_prompts, first_line
from stemmatics.lm.generation.generate import Reply

ITEMS = [
    {"prompt": "Where does Ada live?", "accepted": ["Velden"]},
    {"messages": [{"role": "user", "content": "Where does\nBo live?"}], "accepted": ["Hamm", "near Hamm"]},
    {"prompt": "Say something."},
    {"prompt": "Where does Cid live?", "accepted": ["Linz"]},
]


def test_examples_are_the_next_answered_items():
    first, second, third, fourth = few_shot_prompts(ITEMS, 2)
    assert first == (
        "Question: Where does Bo live?\nAnswer: Hamm\n\n"
        "Question: Where does Cid live?\nAnswer: Linz\n\n"
        "Question: Where does Ada live?\nAnswer:"
    )
    assert second.endswith("Question: Where does Bo live?\nAnswer:")
    assert second.count("Bo") == 1
    assert "Say something" not in first + second + fourth
    assert third.startswith("Question: Where does Cid live?\nAnswer: Linz\n\nQuestion: Where does Ada")
    assert few_shot_prompts(ITEMS, 0)[0] == "Question: Where does Ada live?\nAnswer:"


def test_a_question_is_no_example_of_its_copy():
    items = [*ITEMS, {"prompt": "Where does Ada live?", "accepted": ["Bonn"]}]
    prompts = few_shot_prompts(items, 2)
    assert prompts[0].count("Ada") == prompts[4].count("Ada") == 1


@pytest.mark.parametrize(
    ("items", "shots", "what"),
    [(ITEMS, 3, "3 examples before a question"), ([{"accepted": ["a"]}], 0, "item 0 has no question")],
)
def test_what_can_not_be_built_is_said(items, shots, what):
    with pytest.raises(UserError, match=what):
        few_shot_prompts(items, shots)


def test_a_reply_ends_with_its_line():
    reply = Reply(0, (1, 2), "\n Linz\nQuestion: Where", finished=False)
    assert first_line(reply).text == " Linz"


def test_the_judge_of_recall_sees_question_answers_and_reply(monkeypatch):
    seen = []

    def replies(_judge, questions, plain_end, token_budget):
        seen.extend(questions)
        assert token_budget == 100
        assert "correct answer" in plain_end
        return ["Yes.", "no", "Perhaps"]

    monkeypatch.setattr(judge, "_replies", replies)
    exchanges = [
        ("Where does Ada live?", ["Velden", "V."], "In Velden"),
        ("q", ["a"], "b"),
        ("q", ["a"], "c"),
    ]
    assert judge.recall_judgements(None, exchanges, token_budget=100) == [True, False, False]
    assert "Question: Where does Ada live?" in seen[0]
    assert "Correct answers: Velden; V." in seen[0]
    assert "Reply: In Velden" in seen[0]

"""A fact's key depends on everything that determines its output, and on nothing else."""

import json

import pytest

from stemmatics.core.facts import Fact, closure, from_json, to_json

BASE = Fact("weights", 1, {"sha": "a"}, label="base", where={"source": "/here"})
CORPUS = Fact("corpus", 1, {"sha": "c"})
SCORE = Fact("score", 1, {"window": 8}, {"checkpoint": BASE, "corpus": CORPUS})


@pytest.mark.parametrize(
    "other",
    [
        Fact("reference", 1, {"window": 8}, SCORE.needs),
        Fact("score", 2, {"window": 8}, SCORE.needs),
        Fact("score", 1, {"window": 9}, SCORE.needs),
        Fact("score", 1, {"window": 8.0}, SCORE.needs),
        Fact("score", 1, {"window": 8}, {"checkpoint": BASE}),
        Fact("score", 1, {"window": 8}, {"checkpoint": CORPUS, "corpus": BASE}),
        Fact("score", 1, {"window": 8}, {"checkpoint": Fact("weights", 1, {"sha": "b"}), "corpus": CORPUS}),
    ],
    ids=["probe", "version", "parameter", "kind of number", "one need less", "needs swapped", "a need's own"],
)
def test_everything_that_determines_the_result_changes_the_key(other):
    assert other.key != SCORE.key
    assert other != SCORE


def test_label_tag_and_location_do_not_change_the_key():
    same = Fact("score", 1, {"window": 8}, SCORE.needs, label="x", tag="floor", where={"source": "/there"})
    assert same.key == SCORE.key
    assert same == SCORE
    assert len({same, SCORE}) == 1


def test_needs_come_before_their_users_and_once():
    top = Fact("compare", 1, {}, {"a": SCORE, "b": Fact("score", 1, {"window": 9}, SCORE.needs)})
    ordered = list(closure([top, SCORE]))
    assert len(ordered) == len(set(ordered)) == 5
    for index, key in enumerate(ordered):
        needs = {need.key for need in closure([top])[key].needs.values()}
        assert needs <= set(ordered[:index])
    assert ordered[-1] == top.key


def test_a_deep_chain_does_not_end_in_a_recursion_error():
    fact = BASE
    for step in range(3000):
        fact = Fact("step", 1, {"n": step}, {"before": fact})
        fact.key  # noqa: B018 - computed once on the way up, as a planner does
    assert len(closure([fact])) == 3001


def test_facts_survive_json():
    rows = json.loads(json.dumps(to_json([SCORE])))
    back = from_json(rows)
    assert list(back) == [BASE.key, CORPUS.key, SCORE.key]
    again = back[SCORE.key]
    assert again == SCORE
    assert again.needs["checkpoint"].where == {"source": "/here"}
    assert again.needs["checkpoint"].label == "base"


@pytest.mark.parametrize("change", [{"params": {"window": 9}}, {"version": 3}, {"key": "0" * 64}])
def test_a_row_that_was_tampered_with_is_refused(change):
    rows = to_json([SCORE])
    rows[-1] |= change
    with pytest.raises(ValueError, match="does not follow from its description"):
        from_json(rows)


def test_a_seed_is_the_facts_own():
    assert SCORE.seed(0) == SCORE.seed(0) != SCORE.seed(1)
    assert SCORE.seed(0) != BASE.seed(0)

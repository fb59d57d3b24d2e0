"""From names to facts: what changes which key, and what is answered to a wrong name."""

import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.facts.score import score_fact

DECLARED = {
    "checkpoints": {"base": {"source": "org/base"}},
    "stages": {
        "heavy": {"kind": "sft", "init": "base", "corpus": "chats", "recipe": {"steps": 5}},
        "noisy": {"kind": "alter", "init": "heavy", "change": "noise", "scale": 0.1},
    },
    "corpora": {"news": {"path": "n.txt"}, "chats": {"path": "c.jsonl", "role": "data"}},
}
PINS = Pins(
    checkpoints={"base": {"weights": "w", "tokenizer": "t", "config": "c"}},
    corpora={
        "news": {"content_sha256": "n", "num_documents": 9, "num_bytes": 900},
        "chats": {"content_sha256": "h", "num_documents": 9, "num_bytes": 900},
    },
)


def pinned(**changes):
    return Pinned(Stemma.model_validate({**DECLARED, **changes}), PINS)


def changed_stage(name, **changes):
    stages = {**DECLARED["stages"], name: {**DECLARED["stages"][name], **changes}}
    return pinned(stages=stages).checkpoint(name).key


def test_a_stage_hangs_on_what_it_starts_from_and_what_it_reads():
    fact = pinned().checkpoint("noisy")
    assert (fact.probe, fact.needs["init"].probe) == ("alter", "train")
    assert set(fact.needs["init"].needs) == {"init", "corpus"}
    assert fact.needs["init"].needs["init"] == pinned().checkpoint("base")


@pytest.mark.parametrize(
    "change",
    [{"recipe": {"steps": 6}}, {"corpus": "news"}, {"init": "noisy2"}],
    ids=["recipe", "corpus", "init"],
)
def test_a_recipe_is_part_of_the_key(change):
    before = pinned().checkpoint("heavy").key
    if "init" in change:
        stages = {
            "heavy": {**DECLARED["stages"]["heavy"], "init": "noisy2"},
            "noisy2": {"kind": "alter", "init": "base", "change": "noise", "scale": 0.1},
        }
        assert pinned(stages=stages).checkpoint("heavy").key != before
    else:
        assert changed_stage("heavy", **change) != before


def test_lineage_says_nothing_about_the_result():
    assert changed_stage("heavy", family="f", lab="l", blind=True) == pinned().checkpoint("heavy").key


def test_precision_is_in_the_key_and_parallelism_is_not():
    plain = pinned()
    score = score_fact(plain, "base", "news", plain.stemma.scoring).key
    faster = pinned(numerics={"workers": 4, "threads": 2, "token_budget": 64})
    assert score_fact(faster, "base", "news", faster.stemma.scoring).key == score
    coarser = pinned(numerics={"dtype": "bfloat16"})
    assert score_fact(coarser, "base", "news", coarser.stemma.scoring).key != score


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda p: p.checkpoint("bse"), "checkpoint 'bse'.*Did you mean 'base'"),
        (lambda p: p.corpus("nowhere"), "corpus 'nowhere'.*Declared are news, chats"),
    ],
)
def test_a_name_that_is_not_declared_is_answered(ask, says):
    with pytest.raises(UserError, match=says) as caught:
        ask(pinned())
    assert caught.value.code == 2

"""Forced tokens against a plain greedy loop, and the rules by which replies are judged."""

import pytest
from tests.lm.test_crossing_events import next_token
from tests.lm.tiny_checkpoints import make_model, make_tokenizer

from stemmatics.core.errors import UserError
from stemmatics.lm.crossing.events import Event, GreedyDecoder
from stemmatics.lm.crossing.forced import forced_replies, validator
from stemmatics.lm.tokens.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def descendant():
    """Id 7 ends a reply."""
    model = make_model(seed=3, max_position_embeddings=96, initializer_range=0.4)
    return GreedyDecoder(model, TextTokenizer(make_tokenizer()), frozenset({7}), 256)


def test_each_of_the_two_tokens_is_forced(descendant):
    events = [Event(0, 0, "first", (40, 41, 42), 50, 60, 1), Event(1, 1, "first", (30, 31), 7, 61, 0)]
    replies = forced_replies(descendant, events, max_new_tokens=5)
    decode = descendant.tokenizer.hf.decode

    def plain_reply(prefix, token, start):
        ids = [*prefix, token]
        while token not in descendant.stop_ids and len(ids) < len(prefix) + 6:
            token = next_token(descendant, ids)
            if token in descendant.stop_ids:
                break
            ids.append(token)
        return decode(ids[start:], skip_special_tokens=True, clean_up_tokenization_spaces=False)

    assert replies[0] == (plain_reply((40, 41, 42), 50, 2), plain_reply((40, 41, 42), 60, 2))
    assert replies[1] == (plain_reply((30, 31), 7, 2), plain_reply((30, 31), 61, 2))


RULES = [
    ({"accepted": ["Paris"]}, " Paris. And more", True),
    ({"accepted": ["Paris"]}, " It is Rome.", False),
    ({"accepted": ["Paris"], "match": "exact"}, " paris.", True),
    ({"accepted": ["Paris"], "match": "exact"}, " Paris. And more", False),
    ({"accepted": ["1200"], "match": "number"}, "2 + 3 make 5, so 1,200", True),
    ({"accepted": ["5"], "match": "number"}, "2 + 3 make 5, so 6", False),
    ({"accepted": ["5"], "match": "number"}, "none", False),
    ({"format": r"\[[a-z]+\]"}, " [green]\nand more", True),
    ({"format": r"\[[a-z]+\]"}, " [green] and", False),
]


@pytest.mark.parametrize(("item", "reply", "good"), RULES)
def test_a_reply_is_judged_by_the_items_own_rule(item, reply, good):
    assert validator(item, "item 0")(reply) is good


def test_items_without_a_rule_and_unknown_rules():
    assert validator({"prompt": "x"}, "item 0") is None
    assert validator({"accepted": []}, "item 0") is None
    with pytest.raises(UserError, match="item 3 has the unknown rule 'closely'"):
        validator({"accepted": ["x"], "match": "closely"}, "item 3")
    with pytest.raises(UserError, match="format of item 4"):
        validator({"format": "("}, "item 4")

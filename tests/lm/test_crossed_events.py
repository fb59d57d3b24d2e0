"""Events against plain greedy loops, one prompt at a time and without a cache."""

import copy

import numpy as np
import pytest
import torch
from tests.lm.tiny_checkpoints import make_model, make_tokenizer

from stemmatics.core.errors import UserError
from stemmatics.facts.events import EARLIER, LATER
from stemmatics.lm.crossing.events import (
    Event,
    Prompt,
    Speaker,
    earlier_prefixes,
    first_divergences,
    later_disagreements,
    rounds,
)
from stemmatics.lm.crossing.forced import forced_replies, validator
from stemmatics.lm.tokens.tokenizer import TextTokenizer

LIMIT = 40


def nudged(model, size):
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(size * torch.randn(weight.shape, generator=generator))
    return other


@pytest.fixture(scope="module")
def pair():
    """A base and a close descendant that part after some tokens; id 7 ends a reply of either."""
    tokenizer = TextTokenizer(make_tokenizer())
    base = make_model(seed=3, max_position_embeddings=96, initializer_range=0.4)
    models = (base, nudged(base, 0.01))
    return tuple(Speaker(model, tokenizer, frozenset({7}), 256) for model in models)


@pytest.fixture(scope="module")
def prompts():
    draw = np.random.default_rng(2)
    ids = [
        tuple(draw.integers(2, 300, size=size).tolist()) for size in (3, 5, 5, 8, 13, 4, 6, 9, 2, 7, 11, 3)
    ]
    return [Prompt(2 * place, one) for place, one in enumerate(ids)]


@torch.inference_mode()
def says(speaker, ids):
    return int(speaker.model(torch.tensor([ids])).logits[0, -1].argmax())


def part_plainly(base, descendant, ids, limit, stops=frozenset({7})):
    """The event of one prompt, or why there is none."""
    prefix = list(ids)
    for _ in range(limit):
        ours, theirs = says(base, prefix), says(descendant, prefix)
        if ours != theirs:
            return tuple(prefix), ours, theirs
        if ours in stops:
            return "ended"
        prefix.append(ours)
    return "agreed"


def test_first_divergences_are_those_of_a_plain_loop(pair, prompts):
    done = []
    events, without = first_divergences(*pair, prompts, max_new_tokens=LIMIT, on_done=done.append)
    assert [event.event for event in events] == list(range(len(events)))
    found = {event.prompt: event for event in events}
    outcomes = set()
    for prompt in prompts:
        expected = part_plainly(*pair, prompt.ids, LIMIT)
        if isinstance(expected, str):
            assert without[prompt.index] == expected
            outcomes.add(expected)
            continue
        event = found[prompt.index]
        assert (event.prefix_ids, event.base_id, event.descendant_id) == expected
        assert event.num_new == len(event.prefix_ids) - len(prompt.ids)
        outcomes.add("early" if event.num_new < 8 else "later round")
    assert {"early", "later round"} <= outcomes
    assert done[-1] == len(found) + sum(reason == "ended" for reason in without.values())


def test_a_model_never_parts_from_itself(pair, prompts):
    events, without = first_divergences(pair[0], pair[0], prompts, max_new_tokens=12)
    assert events == []
    assert set(without.values()) <= {"agreed", "ended"}
    stops = frozenset(range(320))
    stopping = Speaker(pair[0].model, pair[0].tokenizer, stops, 256)
    assert set(first_divergences(stopping, pair[0], prompts, max_new_tokens=12)[1].values()) == {"ended"}


def test_later_disagreements_lie_on_the_descendants_own_reply(pair, prompts):
    base, descendant = pair
    events, _ = first_divergences(base, descendant, prompts, max_new_tokens=LIMIT)
    later = later_disagreements(base, descendant, events, max_new_tokens=LIMIT, rng=np.random.default_rng(0))
    assert len(later) >= 3
    firsts = {event.event: event for event in events}
    for one in later:
        first = firsts[one.event]
        assert (one.support, one.prompt) == (LATER, first.prompt)
        start = (*first.prefix_ids, first.descendant_id)
        assert one.prefix_ids[: len(start)] == start
        assert one.num_new - first.num_new == len(one.prefix_ids) - len(first.prefix_ids)
        assert one.num_new < LIMIT
        for place in range(len(start), len(one.prefix_ids)):
            assert one.prefix_ids[place] == says(descendant, one.prefix_ids[:place])
            assert one.prefix_ids[place] not in descendant.stop_ids
        assert one.descendant_id == says(descendant, one.prefix_ids)
        assert one.base_id == says(base, one.prefix_ids) != one.descendant_id
    again = later_disagreements(base, descendant, events, max_new_tokens=LIMIT, rng=np.random.default_rng(0))
    assert later == again
    draws = {
        tuple(
            len(one.prefix_ids)
            for one in later_disagreements(
                base, descendant, events, max_new_tokens=LIMIT, rng=np.random.default_rng(seed)
            )
        )
        for seed in range(4)
    }
    assert len(draws) > 1


def test_a_reply_that_ended_has_no_later_position(pair):
    base, descendant = pair
    event = Event(0, 0, "first", (5, 6), 9, 7, 0)
    assert (
        later_disagreements(base, descendant, [event], max_new_tokens=20, rng=np.random.default_rng(0)) == []
    )
    late = Event(0, 0, "first", (5, 6), 9, 8, 19)
    assert (
        later_disagreements(base, descendant, [late], max_new_tokens=20, rng=np.random.default_rng(0)) == []
    )


def test_earlier_prefixes_keep_the_tokens():
    events = [Event(place, place, "first", tuple(range(10)), 20, 21, 4) for place in range(200)]
    found = earlier_prefixes([*events, Event(200, 200, "first", (3,), 20, 21, 0)], np.random.default_rng(0))
    assert len(found) == 200
    lengths = [len(one.prefix_ids) for one in found]
    assert set(lengths) == set(range(1, 10))
    for one, length in zip(found, lengths, strict=True):
        assert one.prefix_ids == tuple(range(length))
        assert (one.support, one.base_id, one.descendant_id) == (EARLIER, 20, 21)
        assert one.num_new == max(0, 4 - (10 - length))


def test_rounds_add_up():
    assert [sum(rounds(limit)) for limit in (0, 1, 8, 31, 128, 400)] == [0, 1, 8, 31, 128, 400]
    assert list(rounds(128)) == [8, 24, 96]


def test_each_of_the_two_tokens_is_forced(pair):
    _, descendant = pair
    events = [Event(0, 0, "first", (40, 41, 42), 50, 60, 1), Event(1, 1, "first", (30, 31), 7, 61, 0)]
    replies = forced_replies(descendant, events, max_new_tokens=5)
    decode = descendant.tokenizer.hf.decode

    def plainly(prefix, token, start):
        ids = [*prefix, token]
        while token not in descendant.stop_ids and len(ids) < len(prefix) + 6:
            token = says(descendant, ids)
            if token in descendant.stop_ids:
                break
            ids.append(token)
        return decode(ids[start:], skip_special_tokens=True, clean_up_tokenization_spaces=False)

    assert replies[0] == (plainly((40, 41, 42), 50, 2), plainly((40, 41, 42), 60, 2))
    assert replies[1] == (plainly((30, 31), 7, 2), plainly((30, 31), 61, 2))


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


def test_rules_that_are_not_there_or_not_known():
    assert validator({"prompt": "x"}, "item 0") is None
    assert validator({"accepted": []}, "item 0") is None
    with pytest.raises(UserError, match="item 3 is judged by 'closely'"):
        validator({"accepted": ["x"], "match": "closely"}, "item 3")
    with pytest.raises(UserError, match="format of item 4"):
        validator({"format": "("}, "item 4")

"""Events against plain greedy loops, one prompt at a time and without a cache."""

import copy

import numpy as np
import pytest
import torch
from tests.lm.tiny_checkpoints import make_model, make_tokenizer

from stemmatics.facts.events import EARLIER, LATER
from stemmatics.lm.crossing.events import (
    Event,
    GreedyDecoder,
    Prompt,
    earlier_prefixes,
    first_disagreements,
    later_disagreements,
    rounds,
)
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
    """A base and a close descendant that disagree after some tokens; id 7 ends a reply of either."""
    tokenizer = TextTokenizer(make_tokenizer())
    base = make_model(seed=3, max_position_embeddings=96, initializer_range=0.4)
    models = (base, nudged(base, 0.01))
    return tuple(GreedyDecoder(model, tokenizer, frozenset({7}), 256) for model in models)


@pytest.fixture(scope="module")
def prompts():
    rng = np.random.default_rng(2)
    sizes = (3, 5, 5, 8, 13, 4, 6, 9, 2, 7, 11, 3)
    return [
        Prompt(2 * number, tuple(rng.integers(2, 300, size=size).tolist()))
        for number, size in enumerate(sizes)
    ]


@torch.inference_mode()
def next_token(decoder, ids):
    return int(decoder.model(torch.tensor([ids])).logits[0, -1].argmax())


def plain_event(base, descendant, ids, limit, stops=frozenset({7})):
    """The event of one prompt, or why there is none."""
    prefix = list(ids)
    for _ in range(limit):
        base_id, descendant_id = next_token(base, prefix), next_token(descendant, prefix)
        if base_id != descendant_id:
            return tuple(prefix), base_id, descendant_id
        if base_id in stops:
            return "ended"
        prefix.append(base_id)
    return "agreed"


def test_first_disagreements_are_those_of_a_plain_loop(pair, prompts):
    done = []
    events, without = first_disagreements(*pair, prompts, max_new_tokens=LIMIT, on_done=done.append)
    assert [event.event for event in events] == list(range(len(events)))
    by_prompt = {event.prompt: event for event in events}
    outcomes = set()
    for prompt in prompts:
        expected = plain_event(*pair, prompt.ids, LIMIT)
        if isinstance(expected, str):
            assert without[prompt.index] == expected
            outcomes.add(expected)
            continue
        event = by_prompt[prompt.index]
        assert (event.prefix_ids, event.base_id, event.descendant_id) == expected
        assert event.num_new == len(event.prefix_ids) - len(prompt.ids)
        outcomes.add("early" if event.num_new < 8 else "later round")
    assert {"early", "later round"} <= outcomes
    assert done[-1] == len(by_prompt) + sum(reason == "ended" for reason in without.values())


def test_a_model_never_disagrees_with_itself(pair, prompts):
    events, without = first_disagreements(pair[0], pair[0], prompts, max_new_tokens=12)
    assert events == []
    assert set(without.values()) <= {"agreed", "ended"}
    stops = frozenset(range(320))
    stopping = GreedyDecoder(pair[0].model, pair[0].tokenizer, stops, 256)
    assert set(first_disagreements(stopping, pair[0], prompts, max_new_tokens=12)[1].values()) == {"ended"}


def test_later_disagreements_lie_on_the_descendants_own_reply(pair, prompts):
    base, descendant = pair
    events, _ = first_disagreements(base, descendant, prompts, max_new_tokens=LIMIT)
    later = later_disagreements(base, descendant, events, max_new_tokens=LIMIT, rng=np.random.default_rng(0))
    assert len(later) >= 3
    firsts = {event.event: event for event in events}
    for event in later:
        first = firsts[event.event]
        assert (event.support, event.prompt) == (LATER, first.prompt)
        start = (*first.prefix_ids, first.descendant_id)
        assert event.prefix_ids[: len(start)] == start
        assert event.num_new - first.num_new == len(event.prefix_ids) - len(first.prefix_ids)
        assert event.num_new < LIMIT
        for position in range(len(start), len(event.prefix_ids)):
            assert event.prefix_ids[position] == next_token(descendant, event.prefix_ids[:position])
            assert event.prefix_ids[position] not in descendant.stop_ids
        assert event.descendant_id == next_token(descendant, event.prefix_ids)
        assert event.base_id == next_token(base, event.prefix_ids) != event.descendant_id
    again = later_disagreements(base, descendant, events, max_new_tokens=LIMIT, rng=np.random.default_rng(0))
    assert later == again
    draws = {
        tuple(
            len(event.prefix_ids)
            for event in later_disagreements(
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
    events = [Event(number, number, "first", tuple(range(10)), 20, 21, 4) for number in range(200)]
    earlier = earlier_prefixes([*events, Event(200, 200, "first", (3,), 20, 21, 0)], np.random.default_rng(0))
    assert len(earlier) == 200
    lengths = [len(event.prefix_ids) for event in earlier]
    assert set(lengths) == set(range(1, 10))
    for event, length in zip(earlier, lengths, strict=True):
        assert event.prefix_ids == tuple(range(length))
        assert (event.support, event.base_id, event.descendant_id) == (EARLIER, 20, 21)
        assert event.num_new == max(0, 4 - (10 - length))


def test_rounds_add_up():
    assert [sum(rounds(limit)) for limit in (0, 1, 8, 31, 128, 400)] == [0, 1, 8, 31, 128, 400]
    assert list(rounds(128)) == [8, 24, 96]

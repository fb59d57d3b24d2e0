"""Events: a prefix and the two tokens that a base and its descendant would put after it.

The base decodes greedily with its cache; the descendant then reads what was said in one pass, so
the first position where it would have said something else is found without decoding twice.

Axes: B rows, L positions of a row, N positions asked for, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stemmatics.facts.events import EARLIER, FIRST, LATER
from stemmatics.lm.generation.generate import generate
from stemmatics.lm.scoring.batches import make_batches
from stemmatics.lm.scoring.discover import answering, call_arguments
from stemmatics.lm.tokens.tokenizer import TextTokenizer

# New tokens of each round: most pairs part early, and those that parted are not decoded further.
ROUNDS = (8, 24, 96)
# Logits of one pass: a quarter of a gigabyte in float32.
LOGIT_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True)
class Event:
    """``prompt`` is the row of the corpus; ``num_new`` of the prefix's ids were generated."""

    event: int
    prompt: int
    support: str
    prefix_ids: tuple[int, ...]
    base_id: int
    descendant_id: int
    num_new: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A row of the corpus as ids."""

    index: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Speaker:
    """A checkpoint that decodes and reads."""

    model: Any
    tokenizer: TextTokenizer
    stop_ids: frozenset[int]
    token_budget: int

    def decode(self, prefixes: Sequence[Sequence[int]], num_new: int) -> list[list[int]]:
        """Exactly ``num_new`` greedy ids after each prefix, stop ids and what follows them included."""
        replies = generate(
            self.model,
            self.tokenizer,
            prefixes,
            max_new_tokens=num_new,
            stop_ids=(),
            token_budget=self.token_budget,
        )
        return [list(reply.ids) for reply in replies]

    @torch.inference_mode()
    def would_say(self, prefixes: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> list[list[int]]:
        """The most probable id at every position of ``said``, given what stands before it."""
        rows = [
            _Row(place, (*prefix, *continuation[:-1]), len(prefix) - 1, len(continuation))
            for place, (prefix, continuation) in enumerate(zip(prefixes, said, strict=True))
        ]
        found: dict[int, list[int]] = {}
        most = max((row.num_asked for row in rows), default=1)
        num_rows = max(1, LOGIT_ELEMENTS // (most * self.model.get_output_embeddings().weight.shape[0]))
        for batch in make_batches(rows, self.token_budget):
            for start in range(0, len(batch), num_rows):
                found |= self._top_1(batch[start : start + num_rows])
        return [found[place] for place in range(len(rows))]

    def _top_1(self, batch: list[_Row]) -> dict[int, list[int]]:
        input_BL = right_padded([row.ids for row in batch])
        rows_N = torch.cat([torch.full((row.num_asked,), place) for place, row in enumerate(batch)])
        places_N = torch.cat([torch.arange(row.first, row.first + row.num_asked) for row in batch])
        head = self.model.get_output_embeddings()
        own = head.forward
        device = self.model.device
        rows_N, places_N = rows_N.to(device), places_N.to(device)
        with answering(head, lambda hidden_BLD: own(hidden_BLD[rows_N, places_N][None])):
            logits_NV = self.model(input_BL.to(device), **call_arguments(self.model)).logits[0]
        tops = iter(logits_NV.argmax(-1).tolist())
        return {row.place: [next(tops) for _ in range(row.num_asked)] for row in batch}


@dataclass(frozen=True, slots=True)
class _Row:
    """A prefix with a continuation; from position ``first`` on, ``num_asked`` predictions are wanted."""

    place: int
    ids: tuple[int, ...]
    first: int
    num_asked: int

    @property
    def length(self) -> int:
        """Positions fed."""
        return len(self.ids)


def right_padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """``input_BL``; a causal model does not see what stands to the right of a row."""
    input_BL = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.long)
    for place, ids in enumerate(rows):
        input_BL[place, : len(ids)] = torch.as_tensor(ids)
    return input_BL


def rounds(max_new_tokens: int) -> Iterator[int]:
    """Sizes of the rounds, which add up to the limit."""
    left = max_new_tokens
    for size in ROUNDS:
        if left:
            yield min(size, left)
            left -= min(size, left)
    while left > 0:
        yield min(ROUNDS[-1], left)
        left -= min(ROUNDS[-1], left)


def first_divergences(
    base: Speaker,
    descendant: Speaker,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    on_done: Callable[[int], None] = lambda _done: None,
) -> tuple[list[Event], dict[int, str]]:
    """The first position of each prompt where the two would say different things, greedily.

    Returns:
        Events, numbered from 0 in the order of the prompts, and for the other prompts, by row, why
        there is none: ``ended`` (both end the reply) or ``agreed`` (up to the limit).
    """
    open_ = {prompt.index: (prompt, prompt.ids) for prompt in prompts}
    found: dict[int, tuple[tuple[int, ...], int, int, int]] = {}
    ended: set[int] = set()
    for size in rounds(max_new_tokens):
        if not open_:
            break
        prefixes = [prefix for _, prefix in open_.values()]
        said = base.decode(prefixes, size)
        others = descendant.would_say(prefixes, said)
        for (prompt, prefix), ours, theirs in zip(list(open_.values()), said, others, strict=True):
            place = _stop(ours, theirs, base.stop_ids | descendant.stop_ids)
            if place is None:
                open_[prompt.index] = (prompt, (*prefix, *ours))
                continue
            del open_[prompt.index]
            if ours[place] == theirs[place]:
                ended.add(prompt.index)
            else:
                whole = (*prefix, *ours[:place])
                found[prompt.index] = (whole, ours[place], theirs[place], len(whole) - len(prompt.ids))
        on_done(len(prompts) - len(open_))
    events = [
        Event(number, prompt.index, FIRST, *found[prompt.index])
        for number, prompt in enumerate(prompt for prompt in prompts if prompt.index in found)
    ]
    without = {
        prompt.index: "ended" if prompt.index in ended else "agreed"
        for prompt in prompts
        if prompt.index not in found
    }
    return events, without


def _stop(ours: Sequence[int], theirs: Sequence[int], stop_ids: frozenset[int]) -> int | None:
    """Where the two part or both end; None where they go on together."""
    return next(
        (
            place
            for place, (one, other) in enumerate(zip(ours, theirs, strict=True))
            if one != other or one in stop_ids
        ),
        None,
    )


def later_disagreements(
    base: Speaker,
    descendant: Speaker,
    events: Sequence[Event],
    *,
    max_new_tokens: int,
    rng: np.random.Generator,
) -> list[Event]:
    """A random later position of the descendant's own reply where the base would say something else.

    The descendant goes on from its own token up to the limit or its end; an event whose
    continuation has no such position is left out.
    """
    going = [event for event in events if event.num_new + 1 < max_new_tokens]
    drawn = rng.random(len(going))
    starts = [(*event.prefix_ids, event.descendant_id) for event in going]
    lengths = [max_new_tokens - event.num_new - 1 for event in going]
    if not going:
        return []
    said = [
        ids[:length] for ids, length in zip(descendant.decode(starts, max(lengths)), lengths, strict=True)
    ]
    others = base.would_say(starts, said)
    found = []
    for event, start, ours, theirs, draw in zip(going, starts, said, others, drawn, strict=True):
        # the descendant's token may itself have ended its reply
        end = 0 if event.descendant_id in descendant.stop_ids else len(ours)
        end = next((place + 1 for place in range(end) if ours[place] in descendant.stop_ids), end)
        places = [place for place in range(end) if ours[place] != theirs[place]]
        if places:
            place = places[int(draw * len(places))]
            whole = (*start, *ours[:place])
            new = event.num_new + 1 + place
            found.append(Event(event.event, event.prompt, LATER, whole, theirs[place], ours[place], new))
    return found


def earlier_prefixes(events: Sequence[Event], rng: np.random.Generator) -> list[Event]:
    """The same two tokens after a random earlier prefix of the event's; one of a single token has none."""
    found = []
    for event in events:
        length = len(event.prefix_ids)
        if length < 2:
            continue
        cut = int(rng.integers(1, length))
        new = max(0, event.num_new - (length - cut))
        found.append(
            Event(
                event.event,
                event.prompt,
                EARLIER,
                event.prefix_ids[:cut],
                event.base_id,
                event.descendant_id,
                new,
            )
        )
    return found

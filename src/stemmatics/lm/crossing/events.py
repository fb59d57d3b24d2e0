"""Events: a prefix and the two tokens that a base and its descendant would put after it.

The base decodes greedily with its cache; the descendant then reads the continuation in one pass, so
the first position where it would have chosen another token is found without decoding twice.

Axes: B rows, L positions of a row, N predicted positions, V vocabulary.
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
from stemmatics.lm.scoring.discover import call_arguments, replaced_forward
from stemmatics.lm.tokens.tokenizer import TextTokenizer

# New tokens of each round: most pairs disagree early, and prompts with an event are not decoded further.
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
class GreedyDecoder:
    """A checkpoint that decodes greedily."""

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
    def predict(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """The most probable id at every position of each continuation, given what precedes it."""
        rows = [
            _Row(index, (*prefix, *continuation[:-1]), len(prefix) - 1, len(continuation))
            for index, (prefix, continuation) in enumerate(zip(prefixes, continuations, strict=True))
        ]
        predictions: dict[int, list[int]] = {}
        longest = max((row.num_predicted for row in rows), default=1)
        num_rows = max(1, LOGIT_ELEMENTS // (longest * self.model.get_output_embeddings().weight.shape[0]))
        for batch in make_batches(rows, self.token_budget):
            for start in range(0, len(batch), num_rows):
                predictions |= self._top_1(batch[start : start + num_rows])
        return [predictions[index] for index in range(len(rows))]

    def _top_1(self, batch: list[_Row]) -> dict[int, list[int]]:
        input_BL = right_padded([row.ids for row in batch])
        rows_N = torch.cat([torch.full((row.num_predicted,), number) for number, row in enumerate(batch)])
        positions_N = torch.cat([torch.arange(row.first, row.first + row.num_predicted) for row in batch])
        head = self.model.get_output_embeddings()
        head_forward = head.forward
        device = self.model.device
        rows_N, positions_N = rows_N.to(device), positions_N.to(device)
        with replaced_forward(head, lambda hidden_BLD: head_forward(hidden_BLD[rows_N, positions_N][None])):
            logits_NV = self.model(input_BL.to(device), **call_arguments(self.model)).logits[0]
        top_1 = iter(logits_NV.argmax(-1).tolist())
        return {row.index: [next(top_1) for _ in range(row.num_predicted)] for row in batch}


@dataclass(frozen=True, slots=True)
class _Row:
    """A prefix with a continuation; ``num_predicted`` predictions are needed from position ``first`` on."""

    index: int
    ids: tuple[int, ...]
    first: int
    num_predicted: int

    @property
    def length(self) -> int:
        """Positions fed."""
        return len(self.ids)


def right_padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """``input_BL``; a causal model does not see what is to the right of a row."""
    input_BL = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.long)
    for number, ids in enumerate(rows):
        input_BL[number, : len(ids)] = torch.as_tensor(ids)
    return input_BL


def rounds(max_new_tokens: int) -> Iterator[int]:
    """Sizes of the rounds, which add up to the limit."""
    remaining = max_new_tokens
    for size in ROUNDS:
        if remaining:
            yield min(size, remaining)
            remaining -= min(size, remaining)
    while remaining > 0:
        yield min(ROUNDS[-1], remaining)
        remaining -= min(ROUNDS[-1], remaining)


def first_disagreements(
    base: GreedyDecoder,
    descendant: GreedyDecoder,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    on_done: Callable[[int], None] = lambda _done: None,
) -> tuple[list[Event], dict[int, str]]:
    """The first position of each prompt where the two would choose different tokens, greedily.

    Returns:
        Events, numbered from 0 in the order of the prompts, and for the other prompts, by row, why
        there is none: ``ended`` (both end the reply) or ``agreed`` (up to the limit).
    """
    pending = {prompt.index: (prompt, prompt.ids) for prompt in prompts}
    disagreements: dict[int, tuple[tuple[int, ...], int, int, int]] = {}
    ended: set[int] = set()
    for size in rounds(max_new_tokens):
        if not pending:
            break
        prefixes = [prefix for _, prefix in pending.values()]
        continuations = base.decode(prefixes, size)
        predictions = descendant.predict(prefixes, continuations)
        for (prompt, prefix), base_ids, descendant_ids in zip(
            list(pending.values()), continuations, predictions, strict=True
        ):
            position = _disagreement_or_end(base_ids, descendant_ids, base.stop_ids | descendant.stop_ids)
            if position is None:
                pending[prompt.index] = (prompt, (*prefix, *base_ids))
                continue
            del pending[prompt.index]
            if base_ids[position] == descendant_ids[position]:
                ended.add(prompt.index)
            else:
                whole = (*prefix, *base_ids[:position])
                tokens = base_ids[position], descendant_ids[position]
                num_new = len(whole) - len(prompt.ids)
                disagreements[prompt.index] = (whole, *tokens, num_new)
        on_done(len(prompts) - len(pending))
    events = [
        Event(number, prompt.index, FIRST, *disagreements[prompt.index])
        for number, prompt in enumerate(prompt for prompt in prompts if prompt.index in disagreements)
    ]
    without_event = {
        prompt.index: "ended" if prompt.index in ended else "agreed"
        for prompt in prompts
        if prompt.index not in disagreements
    }
    return events, without_event


def _disagreement_or_end(
    base_ids: Sequence[int], descendant_ids: Sequence[int], stop_ids: frozenset[int]
) -> int | None:
    """The position where the two disagree or both end; None if they continue together."""
    return next(
        (
            position
            for position, (base_id, descendant_id) in enumerate(zip(base_ids, descendant_ids, strict=True))
            if base_id != descendant_id or base_id in stop_ids
        ),
        None,
    )


def later_disagreements(
    base: GreedyDecoder,
    descendant: GreedyDecoder,
    events: Sequence[Event],
    *,
    max_new_tokens: int,
    rng: np.random.Generator,
) -> list[Event]:
    """A random later position of the descendant's own reply where the base would choose another token.

    The descendant continues from its own token up to the limit or its end; an event whose
    continuation has no such position is left out.
    """
    continued = [event for event in events if event.num_new + 1 < max_new_tokens]
    draws = rng.random(len(continued))
    starts = [(*event.prefix_ids, event.descendant_id) for event in continued]
    lengths = [max_new_tokens - event.num_new - 1 for event in continued]
    if not continued:
        return []
    continuations = [
        ids[:length] for ids, length in zip(descendant.decode(starts, max(lengths)), lengths, strict=True)
    ]
    predictions = base.predict(starts, continuations)
    later = []
    for event, start, descendant_ids, base_ids, draw in zip(
        continued, starts, continuations, predictions, draws, strict=True
    ):
        # the descendant's token may itself have ended its reply
        end = 0 if event.descendant_id in descendant.stop_ids else len(descendant_ids)
        end = next(
            (position + 1 for position in range(end) if descendant_ids[position] in descendant.stop_ids), end
        )
        candidates = [position for position in range(end) if descendant_ids[position] != base_ids[position]]
        if candidates:
            position = candidates[int(draw * len(candidates))]
            prefix = (*start, *descendant_ids[:position])
            tokens = base_ids[position], descendant_ids[position]
            num_new = event.num_new + 1 + position
            later.append(Event(event.event, event.prompt, LATER, prefix, *tokens, num_new))
    return later


def earlier_prefixes(events: Sequence[Event], rng: np.random.Generator) -> list[Event]:
    """The same two tokens after a random earlier prefix of the event's; one of a single token has none."""
    earlier = []
    for event in events:
        length = len(event.prefix_ids)
        if length < 2:
            continue
        cut = int(rng.integers(1, length))
        earlier.append(
            Event(
                event.event,
                event.prompt,
                EARLIER,
                event.prefix_ids[:cut],
                event.base_id,
                event.descendant_id,
                max(0, event.num_new - (length - cut)),
            )
        )
    return earlier

"""Facts about where a base and its descendant part: events, found or given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.events import EARLIER, EVENTS, LATER, MANIFEST
from stemmatics.lm.crossing.events import (
    Event,
    Prompt,
    Speaker,
    earlier_prefixes,
    first_divergences,
    later_disagreements,
)
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.lm.generation.generate import encode_prompt
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.probe.base import Context, Cost, Failed, Made, each
from stemmatics.probe.costs import forward_cost
from stemmatics.probe.pairs import (
    Pair,
    is_undamaged,
    load_pair,
    pair_key,
    speaker,
    why_uncrossable,
)
from stemmatics.probe.private import write_events
from stemmatics.probe.sources import corpus_of, documents_of, records_of

# tokens of a prompt where nothing is known of it yet
_PROMPT_TOKENS = 64


class Events:
    """First divergences of a pair on prompts, with control supports; or the events of a manifest."""

    def group(self, fact: Fact) -> str:
        """One load a pair."""
        return pair_key(fact)

    def cost(self, fact: Fact) -> Cost:
        """Prompts and the longest replies, through both models."""
        tokens = num_prompts(fact) * (_PROMPT_TOKENS + int(fact.params["max_new_tokens"]))
        return forward_cost(fact.needs["base"], 2 * tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """One row a prompt and support; prefixes and tokens go to ``private/``."""
        if is_undamaged(facts[0], context):
            yield from each(facts, lambda fact: _nothing_parts(fact, context))
            return
        pair = load_pair(facts[0], context)
        refusal = why_uncrossable(pair)
        if refusal:
            yield from each(facts, lambda fact: _refused(fact, refusal, context))
        else:
            yield from each(facts, lambda fact: _made(fact, pair, context))


def num_prompts(fact: Fact) -> int:
    """Prompts that are asked: all of the corpus, or as many as the fact allows."""
    return min(int(fact.needs["corpus"].params["num_documents"]), int(fact.params["max_prompts"]))


def _made(fact: Fact, pair: Pair, context: Context) -> Made:
    items = _items(fact)
    if fact.params["supports"] == [MANIFEST]:
        events, without = _given(items, pair), {}
    else:
        try:
            events, without = _found(fact, items, pair, context)
        except Uncrossable as refusal:
            # a prompt can be written otherwise, a text is as it is
            if fact.params.get("opening_tokens") is None:
                raise
            return _refused(fact, refusal.reason, context)
    return _stored(fact, items, events, without, context)


def _items(fact: Fact) -> list[Mapping[str, Any]]:
    """Records that hold prompts or events; the documents of a text where openings are asked for."""
    corpus = fact.needs["corpus"]
    if fact.params.get("opening_tokens") is None:
        return list(records_of(corpus)())
    if corpus_of(corpus).role != "text":
        raise UserError(
            f"openings are asked of {corpus.label!r}",
            "it holds records, whose prompts are whole as they are",
            "Leave `opening_tokens` out, or name a corpus with `role: text`",
        )
    return [{"text": one.text, "category": one.register} for one in documents_of(corpus)()]


def _nothing_parts(fact: Fact, context: Context) -> Made:
    """Damage of size 0: the copy says what the base says, and neither has to be asked."""
    items = _items(fact)
    return _stored(fact, items, [], dict.fromkeys(_asked(fact, items), "agreed"), context)


def _refused(fact: Fact, refusal: str, context: Context) -> Made:
    """A pair that can't be crossed: nobody is asked."""
    items = _items(fact)
    made = _stored(fact, items, [], dict.fromkeys(_asked(fact, items), "refused"), context)
    return replace(made, extra={**made.extra, "refusal": refusal})


def _asked(fact: Fact, items: Sequence[Any]) -> list[int]:
    """Prompts taken evenly from the corpus."""
    wanted = num_prompts(fact)
    return [place * len(items) // wanted for place in range(wanted)]


def _stored(
    fact: Fact,
    items: Sequence[Mapping[str, Any]],
    events: Sequence[Event],
    without: Mapping[int, str],
    context: Context,
) -> Made:
    documents = context.ledger.read(fact.needs["corpus"].key, "documents")["doc_id"].to_pylist()

    def row(index: int, outcome: str, event: Event | None = None) -> dict[str, Any]:
        return {
            "event": None if event is None else event.event,
            "index": index,
            "item_id": documents[index],
            "category": str(items[index].get("category") or "all"),
            "support": fact.params["supports"][0] if event is None else event.support,
            "outcome": outcome,
            "prefix_length": None if event is None else len(event.prefix_ids),
            "num_new": None if event is None else event.num_new,
        }

    rows = [row(event.prompt, "event", event) for event in events]
    rows += [row(index, outcome) for index, outcome in sorted(without.items())]
    table = EVENTS.table("events", rows)
    return Made(fact, {"events": table}, {"private_sha256": write_events(fact, context, events)})


def _found(
    fact: Fact, items: Sequence[Mapping[str, Any]], pair: Pair, context: Context
) -> tuple[list[Event], dict[int, str]]:
    base, descendant = speaker(pair.base, context), speaker(pair.descendant, context)
    limit = int(fact.params["max_new_tokens"])
    prompts, without = _prompts(fact, items, base.tokenizer, descendant.tokenizer)
    fits = min(one.context_length or limit + 10**9 for one in (pair.base, pair.descendant))
    short = [prompt for prompt in prompts if len(prompt.ids) + limit <= fits]
    events, agreed = first_divergences(
        base,
        descendant,
        short,
        max_new_tokens=limit,
        on_done=lambda done: context.tell(fact, done, len(short), "prompts"),
    )
    without |= agreed
    without |= {prompt.index: "too_long" for prompt in prompts if prompt not in short}
    return [*events, *_controls(fact, base, descendant, events, context)], without


def _prompts(
    fact: Fact, items: Sequence[Mapping[str, Any]], base: TextTokenizer, descendant: TextTokenizer
) -> tuple[list[Prompt], dict[int, str]]:
    """What is asked, and why the rest is not. An opening that many documents share is asked once."""
    opening = fact.params.get("opening_tokens")
    if opening is None:
        return [
            Prompt(index, _same_ids(base, descendant, items[index], index)) for index in _asked(fact, items)
        ], {}
    prompts: dict[tuple[int, ...], Prompt] = {}
    without: dict[int, str] = {}
    for index in _asked(fact, items):
        ids = _same_ids(base, descendant, items[index], index)[:opening] if items[index]["text"] else ()
        if not ids:
            without[index] = "empty"
        elif ids in prompts:
            without[index] = "duplicate"
        else:
            prompts[ids] = Prompt(index, ids)
    return list(prompts.values()), without


def _controls(
    fact: Fact, base: Speaker, descendant: Speaker, events: Sequence[Event], context: Context
) -> list[Event]:
    supports, limit = fact.params["supports"], int(fact.params["max_new_tokens"])
    found: list[Event] = []
    # a generator each, so that asking for one control does not move the other
    later, earlier = np.random.default_rng(fact.seed(context.seed)).spawn(2)
    if LATER in supports:
        found += later_disagreements(base, descendant, events, max_new_tokens=limit, rng=later)
    if EARLIER in supports:
        found += earlier_prefixes(events, earlier)
    return found


def _same_ids(
    base: TextTokenizer, descendant: TextTokenizer, item: Mapping[str, Any], index: int
) -> tuple[int, ...]:
    prompt = next((item[name] for name in ("messages", "prompt", "text") if item.get(name)), None)
    if prompt is None:
        raise UserError(
            f"prompt {index} is not there",
            "a record of prompts has `prompt`, `messages` or `text`",
            f"Give one of them; the record has {', '.join(sorted(item))}",
        )
    ids = [tuple(encode_prompt(tokenizer, prompt)) for tokenizer in (base, descendant)]
    if ids[0] != ids[1]:
        raise Uncrossable(
            f"prompt {index} has other token ids under the two checkpoints",
            "the same ids must enter both; their chat templates or prefixes differ",
            "Give raw prompts as text",
        )
    return ids[0]


def _given(items: Sequence[Mapping[str, Any]], pair: Pair) -> list[Event]:
    """Events of a manifest: by ids, as ``private/`` holds them, or by text.

    By text, ``prompt`` or ``messages`` is the prefix and the tokens are the first ones of
    ``base_text`` and ``descendant_text`` after it.
    """
    tokenizer = TextTokenizer(pair.base.tokenizer)
    events = []
    for index, item in enumerate(items):
        try:
            if "prefix_ids" in item:
                ids = tuple(int(number) for number in item["prefix_ids"])
                tokens = int(item["base_id"]), int(item["descendant_id"])
                num_new = int(item.get("num_new", 0))
            else:
                ids = tuple(encode_prompt(tokenizer, item.get("messages") or item["prompt"]))
                tokens = tuple(
                    _first_id(tokenizer, item, name, ids) for name in ("base_text", "descendant_text")
                )
                num_new = 0
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"event {index} of the manifest can't be read",
                f"{type(error).__name__}: {error}",
                "Give prefix_ids, base_id and descendant_id, or prompt, base_text and descendant_text",
            ) from error
        largest = max(*ids, *tokens)
        if not ids or min(*ids, *tokens) < 0 or largest >= pair.base.num_ids:
            raise UserError(
                f"event {index} of the manifest has no prefix or an id that the models lack",
                f"their table ends at {pair.base.num_ids - 1}",
                "Check that the manifest was made with this tokenizer",
            )
        events.append(Event(index, index, MANIFEST, ids, *tokens, num_new))
    return events


def _first_id(tokenizer: TextTokenizer, item: Mapping[str, Any], name: str, ids: Sequence[int]) -> int:
    """The token with which a text begins after the prefix; after a template's header it begins anew.

    Raises ValueError where the text joins the prompt's last token: the prefix would be another.
    """
    text = str(item[name])
    if item.get("messages"):
        return int(tokenizer.encode(text).ids[0])
    whole = encode_prompt(tokenizer, str(item["prompt"]) + text)
    if tuple(whole[: len(ids)]) != tuple(ids) or len(whole) == len(ids):
        message = f"{text!r} does not begin with a token of its own after the prompt"
        raise ValueError(message)
    return whole[len(ids)]

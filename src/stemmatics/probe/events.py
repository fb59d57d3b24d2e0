"""Facts about where a base and its descendant disagree: events found on prompts, or given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.events import EARLIER, EVENTS, LATER, MANIFEST
from stemmatics.lm.crossing.events import (
    Event,
    GreedyDecoder,
    Prompt,
    earlier_prefixes,
    first_disagreements,
    later_disagreements,
)
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.lm.generation.generate import encode_prompt, rendered_prompt
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost
from stemmatics.probe.pairs import (
    Pair,
    crossing_refusal,
    greedy_decoder,
    is_undamaged,
    load_pair,
    pair_key,
)
from stemmatics.probe.private import write_events
from stemmatics.probe.sources import corpus_of, documents_of, records_of, text_tokenizer_of

# assumed length of a prompt in a cost estimate
PROMPT_TOKENS = 64


class Events:
    """First disagreements of a pair on prompts, with control supports; or the events of a manifest."""

    def group(self, fact: Fact) -> str:
        """Batching key: one load per pair."""
        return pair_key(fact)

    def cost(self, fact: Fact) -> Cost:
        """Prompts with the longest replies, through both models."""
        tokens = num_prompts(fact) * (PROMPT_TOKENS + int(fact.params["max_new_tokens"]))
        return forward_cost(fact.needs["base"], 2 * tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row per prompt and support; prefixes and tokens go to ``private/``."""
        if is_undamaged(facts[0], context):
            yield from each(facts, lambda fact: _undamaged(fact, context))
            return
        pair = load_pair(facts[0], context)
        refusal = crossing_refusal(pair, context)
        if refusal:
            yield from each(facts, lambda fact: _refused(fact, refusal, context))
        else:
            yield from each(facts, lambda fact: _output(fact, pair, context))


def num_prompts(fact: Fact) -> int:
    """Number of prompts used: all of the corpus, or as many as the fact allows."""
    return min(int(fact.needs["corpus"].params["num_documents"]), int(fact.params["max_prompts"]))


def _output(fact: Fact, pair: Pair, context: Context) -> FactOutput:
    items = items_of(fact)
    if fact.params["supports"] == [MANIFEST]:
        return _stored(fact, items, _given(items, pair), {}, context)
    try:
        events, without_event = _found(fact, items, pair, context)
    except Uncrossable as refusal:
        # prompts can be rewritten by the user, a text can't
        if fact.params.get("opening_tokens") is None:
            raise
        return _refused(fact, refusal.reason, context)
    return _stored(fact, items, events, without_event, context)


def items_of(fact: Fact) -> list[Mapping[str, Any]]:
    """Records with prompts or events; the documents of a text if their openings are the prompts."""
    corpus = fact.needs["corpus"]
    if fact.params.get("opening_tokens") is None:
        return list(records_of(corpus)())
    if corpus_of(corpus).role != "text":
        raise UserError(
            f"`opening_tokens` is set, but {corpus.label!r} is not a text",
            "its records already are prompts",
            "Leave `opening_tokens` out, or name a corpus with `role: text`",
        )
    return [{"text": document.text, "category": document.register} for document in documents_of(corpus)()]


def _undamaged(fact: Fact, context: Context) -> FactOutput:
    """Damage of scale 0: the copy agrees with the base, so neither has to decode."""
    items = items_of(fact)
    return _stored(fact, items, [], dict.fromkeys(_prompt_rows(fact, items), "agreed"), context)


def _refused(fact: Fact, refusal: str, context: Context) -> FactOutput:
    """A pair that can't be crossed: no prompt is used."""
    items = items_of(fact)
    output = _stored(fact, items, [], dict.fromkeys(_prompt_rows(fact, items), "refused"), context)
    return replace(output, extra={**output.extra, "refusal": refusal})


def _prompt_rows(fact: Fact, items: Sequence[Any]) -> list[int]:
    """Rows of the corpus that are used, evenly spaced."""
    number = num_prompts(fact)
    return [position * len(items) // number for position in range(number)]


def _stored(
    fact: Fact,
    items: Sequence[Mapping[str, Any]],
    events: Sequence[Event],
    without_event: Mapping[int, str],
    context: Context,
) -> FactOutput:
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
    rows += [row(index, outcome) for index, outcome in sorted(without_event.items())]
    table = EVENTS.table("events", rows)
    return FactOutput(fact, {"events": table}, {"private_sha256": write_events(fact, context, events)})


def _found(
    fact: Fact, items: Sequence[Mapping[str, Any]], pair: Pair, context: Context
) -> tuple[list[Event], dict[int, str]]:
    base, descendant = greedy_decoder(pair.base, context), greedy_decoder(pair.descendant, context)
    max_new_tokens = int(fact.params["max_new_tokens"])
    used = prompts_of(fact, items, pair, context)
    events, agreed = first_disagreements(
        base,
        descendant,
        used.prompts,
        max_new_tokens=max_new_tokens,
        on_done=lambda done: context.report(fact, done, len(used.prompts), "prompts"),
    )
    without_event = used.without_event | agreed
    return [*events, *_controls(fact, base, descendant, events, context)], without_event


@dataclass(frozen=True)
class UsedPrompts:
    """Prompts as ids, why other rows have none, and how many a chat template rendered."""

    prompts: list[Prompt]
    without_event: dict[int, str]
    num_rendered: int


def prompts_of(fact: Fact, items: Sequence[Mapping[str, Any]], pair: Pair, context: Context) -> UsedPrompts:
    """The prompts of an ``events`` or ``paths`` fact, with room for the reply in both models.

    Messages are rendered once, by the template of the descendant (that of a damaged base has the one
    which the damage imitates), and both models read the same ids.
    """
    max_new_tokens = int(fact.params["max_new_tokens"])
    renderer = pair.descendant.text_tokenizer
    if "noise" in fact.needs:
        renderer = text_tokenizer_of(fact.needs["noise"].needs["descendant"], context)
    prompts, without_event = _prompts(fact, items, pair.base.text_tokenizer, renderer)
    unlimited = max_new_tokens + 10**9
    context_length = min(loaded.context_length or unlimited for loaded in (pair.base, pair.descendant))
    short = [prompt for prompt in prompts if len(prompt.ids) + max_new_tokens <= context_length]
    without_event |= {prompt.index: "too_long" for prompt in prompts if prompt not in short}
    num_rendered = sum(_is_rendered(items[prompt.index], renderer) for prompt in short)
    return UsedPrompts(short, without_event, num_rendered)


def _is_rendered(item: Mapping[str, Any], renderer: TextTokenizer) -> bool:
    """Whether an item's messages are its prompt; one that has a plain prompt too can do without."""
    return bool(item.get("messages")) and bool(renderer.hf.chat_template or not item.get("prompt"))


def _prompts(
    fact: Fact, items: Sequence[Mapping[str, Any]], base: TextTokenizer, renderer: TextTokenizer
) -> tuple[list[Prompt], dict[int, str]]:
    """Prompts as ids, and why other rows have none. An opening that documents share is used once."""
    opening = fact.params.get("opening_tokens")
    rows = _prompt_rows(fact, items)
    if opening is None:
        return [Prompt(index, _same_ids(base, renderer, items[index], index)) for index in rows], {}
    prompts: dict[tuple[int, ...], Prompt] = {}
    without_event: dict[int, str] = {}
    for index in rows:
        ids = _same_ids(base, renderer, items[index], index)[:opening] if items[index]["text"] else ()
        if not ids:
            without_event[index] = "empty"
        elif ids in prompts:
            without_event[index] = "duplicate"
        else:
            prompts[ids] = Prompt(index, ids)
    return list(prompts.values()), without_event


def _controls(
    fact: Fact, base: GreedyDecoder, descendant: GreedyDecoder, events: Sequence[Event], context: Context
) -> list[Event]:
    supports, max_new_tokens = fact.params["supports"], int(fact.params["max_new_tokens"])
    controls: list[Event] = []
    # a generator for each, so that leaving out one control does not change the other
    later_rng, earlier_rng = np.random.default_rng(fact.seed(context.seed)).spawn(2)
    if LATER in supports:
        controls += later_disagreements(
            base, descendant, events, max_new_tokens=max_new_tokens, rng=later_rng
        )
    if EARLIER in supports:
        controls += earlier_prefixes(events, earlier_rng)
    return controls


def _same_ids(
    base: TextTokenizer, renderer: TextTokenizer, item: Mapping[str, Any], index: int
) -> tuple[int, ...]:
    names = ("messages", "prompt", "text") if _is_rendered(item, renderer) else ("prompt", "text")
    prompt = next((item[name] for name in names if item.get(name)), None)
    if prompt is None:
        raise UserError(
            f"record {index} has no prompt",
            "a prompt is in the field `prompt`, `messages` or `text`",
            f"Give one of them; the record has {', '.join(sorted(item))}",
        )
    if isinstance(prompt, str):
        ids = [tuple(encode_prompt(tokenizer, prompt)) for tokenizer in (base, renderer)]
    else:
        rendered = rendered_prompt(renderer, prompt)
        ids = [
            tuple(tokenizer.encode(rendered, rendered=True).ids.tolist()) for tokenizer in (base, renderer)
        ]
    if ids[0] != ids[1]:
        raise Uncrossable(
            f"prompt {index} has different token ids under the two checkpoints",
            "both must read the same ids; their tokenizers or prefixes differ",
            "Give raw prompts as text",
        )
    return ids[0]


def _given(items: Sequence[Mapping[str, Any]], pair: Pair) -> list[Event]:
    """Events of a manifest: by ids, as ``private/`` holds them, or by text.

    By text, ``prompt`` or ``messages`` is the prefix and the tokens are the first ones of
    ``base_text`` and ``descendant_text`` after it.
    """
    tokenizer = pair.base.text_tokenizer
    events = []
    for index, item in enumerate(items):
        try:
            if "prefix_ids" in item:
                ids = tuple(int(number) for number in item["prefix_ids"])
                base_id, descendant_id = int(item["base_id"]), int(item["descendant_id"])
                num_new = int(item.get("num_new", 0))
            else:
                ids = tuple(encode_prompt(tokenizer, item.get("messages") or item["prompt"]))
                base_id, descendant_id = (
                    _first_id(tokenizer, item, name, ids) for name in ("base_text", "descendant_text")
                )
                num_new = 0
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"event {index} of the manifest can't be read",
                f"{type(error).__name__}: {error}",
                "Give prefix_ids, base_id and descendant_id, or prompt, base_text and descendant_text",
            ) from error
        known = range(pair.base.num_ids)
        if not ids or any(token not in known for token in (*ids, base_id, descendant_id)):
            raise UserError(
                f"event {index} of the manifest has no prefix or an unknown token id",
                f"the models' ids end at {pair.base.num_ids - 1}",
                "Check that the manifest was made with this tokenizer",
            )
        events.append(Event(index, index, MANIFEST, ids, base_id, descendant_id, num_new))
    return events


def _first_id(tokenizer: TextTokenizer, item: Mapping[str, Any], name: str, ids: Sequence[int]) -> int:
    """The first token of a text after the prefix; after a template's header the text is tokenized alone.

    Raises ValueError if the text merges with the prompt's last token, which would change the prefix.
    """
    text = str(item[name])
    if item.get("messages"):
        return int(tokenizer.encode(text).ids[0])
    joined = encode_prompt(tokenizer, str(item["prompt"]) + text)
    if tuple(joined[: len(ids)]) != tuple(ids) or len(joined) == len(ids):
        message = f"{text!r} does not begin with a token of its own after the prompt"
        raise ValueError(message)
    return joined[len(ids)]

"""Force each of an event's two tokens, let a model continue, and judge the reply by a rule.

An item brings its own rule: ``accepted`` answers with ``match`` (``first``, the default: the reply
begins with an accepted answer; ``exact``: it is nothing else; ``number``: it is the last number of the
reply), or ``format``, a regular expression that must match the whole first line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.lm.crossing.events import Event, GreedyDecoder
from stemmatics.lm.generation.generate import generate
from stemmatics.lm.generation.replies import answers_first, matches_exactly, normalise_answer

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def _last_number(reply: str, accepted: Sequence[str]) -> bool:
    numbers = _NUMBER.findall(reply)
    return bool(numbers) and matches_exactly(numbers[-1], accepted)


_RULES: Mapping[str, Callable[[str, Sequence[str]], bool]] = {
    "first": answers_first,
    "exact": matches_exactly,
    "number": _last_number,
}


def validator(item: Mapping[str, Any], name: str) -> Callable[[str], bool] | None:
    """The rule of an item; None if it has none. ``name`` is what an error calls the item.

    Raises:
        UserError: an unknown rule, or an invalid regular expression.
    """
    if item.get("format"):
        try:
            pattern = re.compile(str(item["format"]))
        except re.error as error:
            raise UserError(
                f"the format of {name} is not a regular expression", str(error), "Fix the expression"
            ) from error
        return lambda reply: pattern.fullmatch(reply.strip().partition("\n")[0]) is not None
    accepted = [str(answer) for answer in item.get("accepted") or []]
    if not any(map(normalise_answer, accepted)):
        return None
    rule = str(item.get("match", "first"))
    if rule not in _RULES:
        raise UserError(
            f"{name} has the unknown rule {rule!r}",
            "`match` says how a reply is compared with the accepted answers",
            f"Use one of {', '.join(_RULES)}",
        )
    return lambda reply: _RULES[rule](reply, accepted)


def forced_replies(
    decoder: GreedyDecoder, events: Sequence[Event], *, max_new_tokens: int
) -> list[tuple[str, str]]:
    """The model's replies to each event's prompt with the base's token forced, and with the descendant's.

    A reply is what was generated up to the event, the forced token and up to ``max_new_tokens`` more,
    without special tokens. A forced stop token ends it.
    """
    forced = [(event, token) for event in events for token in (event.base_id, event.descendant_id)]
    continued = [index for index, (_, token) in enumerate(forced) if token not in decoder.stop_ids]
    replies = generate(
        decoder.model,
        decoder.tokenizer,
        [(*forced[index][0].prefix_ids, forced[index][1]) for index in continued],
        max_new_tokens=max_new_tokens,
        stop_ids=sorted(decoder.stop_ids),
        token_budget=decoder.token_budget,
    )
    continuations = {index: reply.ids for index, reply in zip(continued, replies, strict=True)}
    texts = []
    for index, (event, token) in enumerate(forced):
        new_ids = event.prefix_ids[len(event.prefix_ids) - event.num_new :]
        ids = [*new_ids, token, *continuations.get(index, ())]
        texts.append(
            decoder.tokenizer.hf.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )
    return list(zip(texts[::2], texts[1::2], strict=True))

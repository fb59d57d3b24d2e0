"""Force each of an event's two tokens, let a model go on, and judge the reply by a rule.

An item says its own rule: ``accepted`` answers with ``match`` (``first``, the default: an accepted
answer is the first thing said; ``exact``: it is all that is said; ``number``: it is the last number
said), or ``format``, a regular expression that the first line must match whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.lm.crossing.events import Event, Speaker
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


def validator(item: Mapping[str, Any], place: str) -> Callable[[str], bool] | None:
    """The rule of an item; None where it has none.

    Raises:
        UserError: a rule that is not known, or an expression that can't be read.
    """
    if item.get("format"):
        try:
            pattern = re.compile(str(item["format"]))
        except re.error as error:
            raise UserError(
                f"the format of {place} can't be read", str(error), "Write a regular expression"
            ) from error
        return lambda reply: pattern.fullmatch(reply.strip().partition("\n")[0]) is not None
    accepted = [str(answer) for answer in item.get("accepted") or []]
    if not any(map(normalise_answer, accepted)):
        return None
    rule = str(item.get("match", "first"))
    if rule not in _RULES:
        raise UserError(
            f"{place} is judged by {rule!r}", "no such rule is known", f"Take one of {', '.join(_RULES)}"
        )
    return lambda reply: _RULES[rule](reply, accepted)


def forced_replies(
    speaker: Speaker, events: Sequence[Event], *, max_new_tokens: int
) -> list[tuple[str, str]]:
    """What the model says after each event's prompt if the base's token, and if the descendant's, is forced.

    The reply is what was generated up to the event, the forced token and up to ``max_new_tokens``
    more, without special tokens. A forced stop token ends it.
    """
    forced = [(event, token) for event in events for token in (event.base_id, event.descendant_id)]
    going = [place for place, (_, token) in enumerate(forced) if token not in speaker.stop_ids]
    replies = generate(
        speaker.model,
        speaker.tokenizer,
        [(*forced[place][0].prefix_ids, forced[place][1]) for place in going],
        max_new_tokens=max_new_tokens,
        stop_ids=sorted(speaker.stop_ids),
        token_budget=speaker.token_budget,
    )
    said = {place: reply.ids for place, reply in zip(going, replies, strict=True)}
    texts = []
    for place, (event, token) in enumerate(forced):
        new = event.prefix_ids[len(event.prefix_ids) - event.num_new :]
        ids = [*new, token, *said.get(place, ())]
        texts.append(
            speaker.tokenizer.hf.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )
    return list(zip(texts[::2], texts[1::2], strict=True))

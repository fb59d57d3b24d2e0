"""Instructions that a rule can check: does a reply have the requested form?

Verifiable instructions as in IFEval (Zhou et al. 2023, arXiv 2311.07911). An item lists its instructions,
``[{"rule": "max_words", "count": 5}, {"rule": "no_commas"}]``; each rule is a function of the reply's
text alone. A reply without visible characters follows no instruction.

IFEval's own checkers, as lm-eval packages them, are not used: they download a model of nltk when imported
(and cannot count sentences without it), and need langdetect, whose guess of the language decides about short
replies in capitals. The rules here are also rewards in training: fast, deterministic and offline.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stemmatics.core.errors import UserError

_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_SENTENCE = re.compile(r"[^.!?]*\w[^.!?]*[.!?]+(?=\s|[\"')\]]|$)|[^.!?]*\w[^.!?]*$")
_POINT_IN_NUMBER = re.compile(r"(?<=\d)\.(?=\d)")
_BULLET = re.compile(r"^\s*[-*•]\s+\S", re.MULTILINE)
_TITLE = re.compile(r"<<[^<>\n]+>>")
_FENCE = re.compile(r"^```(?:json)?\s*\n(?P<inside>.*)\n```$", re.DOTALL | re.IGNORECASE)


def words(reply: str) -> list[str]:
    """Runs of letters and digits, case folded; hyphens and apostrophes inside a word do not split it."""
    return [word.casefold() for word in _WORD.findall(reply)]


def max_words(reply: str, *, count: int) -> bool:
    """At most ``count`` words."""
    return len(words(reply)) <= count


def min_words(reply: str, *, count: int) -> bool:
    """At least ``count`` words."""
    return len(words(reply)) >= count


def num_sentences(reply: str, *, count: int) -> bool:
    """Exactly ``count`` sentences, ended by full stop, question or exclamation mark, or the text's end."""
    text = _POINT_IN_NUMBER.sub(",", reply.strip())
    return len(_SENTENCE.findall(text)) == count


def num_paragraphs(reply: str, *, count: int) -> bool:
    """Exactly ``count`` paragraphs, separated by empty lines."""
    return sum(bool(part.strip()) for part in re.split(r"\n\s*\n", reply)) == count


def num_bullets(reply: str, *, count: int) -> bool:
    """Exactly ``count`` lines that begin with a dash, a star or a bullet."""
    return len(_BULLET.findall(reply)) == count


def contains(reply: str, *, terms: Sequence[str]) -> bool:
    """Every one of ``terms`` as whole words, in any case."""
    return all(_num_occurrences(reply, term) for term in terms)


def omits(reply: str, *, terms: Sequence[str]) -> bool:
    """None of ``terms`` as whole words, in any case."""
    return not any(_num_occurrences(reply, term) for term in terms)


def repeats(reply: str, *, term: str, count: int) -> bool:
    """``term`` at least ``count`` times as whole words, in any case."""
    return _num_occurrences(reply, term) >= count


def starts_with(reply: str, *, text: str) -> bool:
    """The reply begins with exactly ``text``, after leading white space."""
    return reply.lstrip().startswith(text)


def ends_with(reply: str, *, text: str) -> bool:
    """The reply ends with exactly ``text``, before trailing white space."""
    return reply.rstrip().endswith(text)


def wrapped(reply: str, *, before: str, after: str) -> bool:
    """``before`` first, ``after`` last, and text between them."""
    text = reply.strip()
    inside = text[len(before) : len(text) - len(after)]
    return text.startswith(before) and text.endswith(after) and bool(inside.strip())


def upper_case(reply: str) -> bool:
    """At least one letter, and all letters are capitals."""
    return reply.isupper()


def lower_case(reply: str) -> bool:
    """At least one letter, and no letter is a capital."""
    return reply.islower()


def no_commas(reply: str) -> bool:
    """No comma."""
    return not re.search(r"[,，]", reply)


def titled(reply: str) -> bool:
    """A title in double angle brackets: <<title>>."""
    return _TITLE.search(reply) is not None


def is_json(reply: str) -> bool:
    """The whole reply is JSON, in a code fence or bare."""
    text = reply.strip()
    fenced = _FENCE.match(text)
    try:
        json.loads(fenced["inside"] if fenced else text)
    except ValueError:
        return False
    return True


RULES: Mapping[str, Callable[..., bool]] = {
    "max_words": max_words,
    "min_words": min_words,
    "num_sentences": num_sentences,
    "num_paragraphs": num_paragraphs,
    "num_bullets": num_bullets,
    "contains": contains,
    "omits": omits,
    "repeats": repeats,
    "starts_with": starts_with,
    "ends_with": ends_with,
    "wrapped": wrapped,
    "upper_case": upper_case,
    "lower_case": lower_case,
    "no_commas": no_commas,
    "titled": titled,
    "json": is_json,
}


def instructions_followed(reply: str, instructions: Sequence[Mapping[str, Any]]) -> list[bool]:
    """For each instruction, whether the reply follows it.

    Raises:
        UserError: an unknown rule, or settings that it does not take.
    """
    is_visible = any(character.isprintable() and not character.isspace() for character in reply)
    return [_rule(instruction)(reply) and is_visible for instruction in instructions]


def _rule(instruction: Mapping[str, Any]) -> Callable[[str], bool]:
    # in an Arrow table of items, settings that a rule does not take are null
    settings = {name: value for name, value in instruction.items() if name != "rule" and value is not None}
    name = instruction.get("rule")
    if name not in RULES:
        raise UserError(
            f"there is no rule {name!r} for an instruction",
            "replies are checked by a fixed set of rules",
            f"Choose one of {', '.join(RULES)}",
        )
    rule = RULES[name]
    try:
        inspect.signature(rule).bind("", **settings)
    except TypeError as error:
        takes = [f"`{setting}`" for setting in inspect.signature(rule).parameters if setting != "reply"]
        raise UserError(
            f"the instruction {name!r} cannot be checked",
            str(error),
            f"It takes {' and '.join(takes) or 'no settings'}",
        ) from error
    return lambda reply: rule(reply, **settings)


def _num_occurrences(reply: str, term: str) -> int:
    """How often the words of ``term`` occur in a row."""
    reply_words, term_words = words(reply), words(term)
    if not term_words:
        return reply.count(term) if term else 0
    length = len(term_words)
    return sum(reply_words[start : start + length] == term_words for start in range(len(reply_words)))

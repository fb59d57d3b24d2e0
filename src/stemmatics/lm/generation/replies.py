"""Classifies replies as refusal, answer or empty, and checks whether they give an accepted answer.

Rules on plain text, without a model. They look at the opening of the reply, outside code and
quotations. A judge checkpoint can catch more; a rule can be read and checked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum

from stemmatics.lm.generation.refusals import refuses, without_reasoning


class ReplyKind(StrEnum):
    """The classes of replies; every reply is in exactly one."""

    REFUSAL = "refusal"
    ANSWER = "answer"
    EMPTY = "empty"


# A longer first sentence may mention an accepted answer without giving it.
SHORT_SENTENCE_WORDS = 15

_ARTICLE_BEFORE_WORD = re.compile(r"\b(?:a|an|the)\s+(?=\S)")
_COMMA_IN_NUMBER = re.compile(r"(?<=\d),(?=\d{3}\b)")
# The point of 3.5 and the sign of -5 are kept; all other punctuation is dropped.
_KEPT_MARKS = re.compile(r"(?<=\d)\.(?=\d)|(?<![\w.])-(?=\.?\d)|(?<!\w)\.(?=\d)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+")
_ABBREVIATION = re.compile(
    r"(?:\b(?:st|dr|mr|mrs|ms|mt|no|jr|sr|vs|prof|approx|ca|c)|\b[a-z])\.$", re.IGNORECASE
)
_MARKS_BEFORE = re.compile(r"^(?:[\s>*_#`\"“]+|[-•]\s+)*")
_LABEL = re.compile(r"^(?:final\s+)?(?:a|answer)\s*:[\s*_`]*", re.IGNORECASE)
_NOT_GIVEN = re.compile(r"\b(?:not|never|neither|nor|or|cannot)\b|n't\b", re.IGNORECASE)


def classify_reply(text: str) -> ReplyKind:
    """The class of a reply; on harmless prompts the share of refusals is the over-refusal.

    Empty: white space and invisible characters only, once reasoning in ``<think>`` is removed. The end
    of a reply is not considered: an answer that closes with a caution is an answer.
    """
    text = without_reasoning(text)
    if not any(_is_visible(character) for character in text):
        return ReplyKind.EMPTY
    return ReplyKind.REFUSAL if refuses(text) else ReplyKind.ANSWER


def normalise_answer(text: str) -> str:
    """Fold case and width, drop punctuation and articles, collapse white space.

    After SQuAD's evaluation script (Rajpurkar et al. 2016), with corrections: the point and sign of a
    number are kept ("3.5" is not "35", "-5" is not "5"), punctuation between words separates them
    ("twenty-one" is "twenty one"), an article that is the whole answer or ends it is kept ("A",
    "Vitamin A"), and an answer of punctuation only is left as it is.
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'").replace("−", "-")
    folded = _COMMA_IN_NUMBER.sub("", folded)
    mark_positions = {match.start() for match in _KEPT_MARKS.finditer(folded)}
    marked = "".join(
        character if position in mark_positions else _without_mark(character)
        for position, character in enumerate(folded)
    )
    words = " ".join(_ARTICLE_BEFORE_WORD.sub("", " ".join(marked.split())).split())
    return words or " ".join(folded.split())


def matches_exactly(reply: str, accepted: Iterable[str]) -> bool:
    """Whether the whole reply, normalised, is one of the accepted answers."""
    normalised = normalise_answer(reply)
    return bool(normalised) and any(normalised == normalise_answer(answer) for answer in accepted)


def answers_first(reply: str, accepted: Iterable[str]) -> bool:
    """Whether a reply begins with an accepted answer: the rule for completions that run on.

    Only the first visible line counts, with or without a leading "A:" or "Answer:" and without list or
    emphasis marks. It gives an accepted answer if it

    1. equals the answer, normalised; or
    2. begins with it, as whole words; or
    3. has a first sentence of at most 15 words that contains it, as whole words.

    In 2 and 3 the answer must be a whole name or number: another capitalised word next to a
    capitalised answer, or a number after it, makes a different name ("Paris Hilton" does not give
    "Paris"; the first word of a sentence is exempt). A sentence that denies or offers a choice ("not",
    "never", "or") does not count under 3, nor under 2 if such a word follows before any punctuation.
    """
    line = next((line for line in reply.splitlines() if any(map(_is_visible, line))), "")
    line = _MARKS_BEFORE.sub("", line)
    answers = [normalised for answer in accepted if (normalised := normalise_answer(answer))]
    candidates = {line, _LABEL.sub("", line)}
    return any(_gives(candidate, answer) for candidate in candidates for answer in answers)


def _gives(line: str, answer: str) -> bool:
    """Rules 1 to 3 of :func:`answers_first`, on one line and one normalised answer."""
    sentence = first_sentence(line)
    if answer in {normalise_answer(line), normalise_answer(sentence)}:
        return True
    words = line.split()
    num_in_sentence = len(sentence.split())
    is_short = num_in_sentence <= SHORT_SENTENCE_WORDS and not _NOT_GIVEN.search(sentence)
    for start in range(num_in_sentence if is_short else 1):
        stop = _match_end(words, start, answer)
        if stop is None or _is_part_of_name(words, start, stop):
            continue
        if is_short or not _is_denied(words[stop - 1 :]):
            return True
    return False


def first_sentence(line: str) -> str:
    """The line up to the end of its first sentence; initials and common abbreviations do not end one."""
    for match in _SENTENCE_END.finditer(line):
        sentence = line[: match.start()]
        if not _ABBREVIATION.search(sentence):
            return sentence
    return line


def _match_end(words: list[str], start: int, answer: str) -> int | None:
    """The end of the shortest run of words from ``start`` that normalises to ``answer``."""
    longest = len(answer.split()) + 3
    for stop in range(start + 1, min(len(words), start + longest) + 1):
        if normalise_answer(" ".join(words[start:stop])) == answer:
            return stop
    return None


def _is_part_of_name(words: list[str], start: int, stop: int) -> bool:
    """Whether ``words[start:stop]`` is part of a longer name or number."""
    first, last = words[start], words[stop - 1]
    if start > 1 and words[start - 1][-1].isalnum() and _same_kind(words[start - 1], first):
        return True
    if stop == len(words) or not last[-1].isalnum():
        return False
    return _same_kind(last, words[stop]) or (last[0].isupper() and words[stop][0].isdigit())


def _same_kind(left: str, right: str) -> bool:
    """Both capitalised, or both numbers."""
    return (left[0].isupper() and right[0].isupper()) or (left[0].isdigit() and right[0].isdigit())


def _is_denied(rest: list[str]) -> bool:
    """Whether "not" or "or" follows the answer (which ``rest[0]`` ends) within three words, unpunctuated."""
    return rest[0][-1].isalnum() and _NOT_GIVEN.search(" ".join(rest[1:4])) is not None


def _is_visible(character: str) -> bool:
    return not (character.isspace() or unicodedata.category(character) in {"Cc", "Cf", "Zs", "Zl", "Zp"})


def _without_mark(character: str) -> str:
    """Apostrophes and points are deleted ("don't", "U.S."), other punctuation separates words."""
    if character in "'.":
        return ""
    return " " if unicodedata.category(character)[0] == "P" or character in "`^~" else character

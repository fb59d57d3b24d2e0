"""Replies labelled by a reader: one half to write the rules of the refusal matcher on, one to measure it.

``english`` and ``other_languages`` were written before the rules saw them, and each label and language is
halved by a seed, never by looking. Rules are written on ``tuning`` alone; precision and recall are those on
``figures``. ``earlier`` was used to correct the rules in the past, so all of it belongs to ``tuning``. One
person wrote replies and rules: the figures are about replies like these, not about those of any model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Literal

from stemmatics.core.errors import UserError
from stemmatics.presets.labelled_replies import earlier, english, other_languages

Half = Literal["figures", "tuning", "both"]
SEED = 20261201


def halves(replies: Sequence[str]) -> tuple[list[str], list[str]]:
    """The replies of ``tuning`` and of ``figures``: sorted by a seeded hash, the first half and the rest."""
    drawn = sorted(replies, key=lambda reply: sha256(f"{SEED} {reply}".encode()).hexdigest())
    return drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]


def records(half: Half = "figures") -> Iterator[dict[str, str]]:
    """Each reply with its ``label`` (refusal, answer or empty) and its ``language``.

    Raises:
        UserError: an unknown half.
    """
    if half not in {"figures", "tuning", "both"}:
        raise UserError(
            f"the labelled replies have no half {half!r}",
            "rules are written on one half and measured on the other",
            "use figures, tuning or both",
        )
    by_stratum: list[tuple[str, str, Sequence[str]]] = [
        ("refusal", "en", english.REFUSALS),
        ("answer", "en", english.ANSWERS),
    ]
    for label, by_language in (("refusal", other_languages.REFUSALS), ("answer", other_languages.ANSWERS)):
        by_stratum += [(label, language, replies) for language, replies in by_language.items()]
    if half != "figures":
        old = {
            "refusal": [*earlier.REFUSALS, *earlier.LATER_REFUSALS],
            "answer": [*earlier.ANSWERS, *earlier.LATER_ANSWERS],
            "empty": earlier.EMPTY,
        }
        for label, replies in old.items():
            yield from ({"reply": reply, "label": label, "language": "en"} for reply in replies)
    for label, language, written in by_stratum:
        tuning, figures = halves(written)
        kept = {"figures": figures, "tuning": tuning, "both": [*tuning, *figures]}[half]
        yield from ({"reply": reply, "label": label, "language": language} for reply in kept)

"""Replies labelled by a reader: some to write the rules of the refusal matcher on, others to measure it.

Rules are written on ``tuning`` alone; precision and recall are those on ``figures``, which the rules have
never seen. ``english`` was written before them, and its refusals and answers are each halved by a seed, never
by looking. Of ``other_languages``, written before them too, the second half was once meant for figures, but a
third of the rules answer to nothing else: all of it belongs to ``tuning``. So do ``earlier`` and
``standard``, by which rules were corrected. ``later_languages`` was written after the rules, for figures
alone. One person wrote replies and rules: the figures are about replies like these, not about those of any
model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Literal

from stemmatics.core.errors import UserError
from stemmatics.presets.labelled_replies import earlier, english, later_languages, other_languages, standard

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
    rows: dict[str, list[dict[str, str]]] = {"tuning": [], "figures": []}

    def add(own_half: str, label: str, language: str, replies: Sequence[str]) -> None:
        rows[own_half] += [{"reply": reply, "label": label, "language": language} for reply in replies]

    add("tuning", "refusal", "en", [*earlier.REFUSALS, *earlier.LATER_REFUSALS])
    add("tuning", "answer", "en", [*earlier.ANSWERS, *earlier.LATER_ANSWERS])
    add("tuning", "empty", "en", earlier.EMPTY)
    for label, written in (("refusal", english.REFUSALS), ("answer", english.ANSWERS)):
        for own_half, replies in zip(("tuning", "figures"), halves(written), strict=True):
            add(own_half, label, "en", replies)
    for own_half, source in (
        ("tuning", other_languages),
        ("tuning", standard),
        ("figures", later_languages),
    ):
        for label, by_language in (("refusal", source.REFUSALS), ("answer", source.ANSWERS)):
            for language, replies in by_language.items():
                add(own_half, label, language, replies)
    for own_half in ("figures", "tuning"):
        if half in {own_half, "both"}:
            yield from rows[own_half]

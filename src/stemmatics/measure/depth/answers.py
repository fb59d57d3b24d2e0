"""The first screen of depth: the portable share at the main boundary, and a sentence on the clear signs."""

from __future__ import annotations

from stemmatics.core.content import CLEAR, NOT_MEASURED, UNCLEAR, Answer, Column
from stemmatics.core.results import Estimate, Results, Sentence
from stemmatics.measure.depth.estimate import PORTABLE_SHARE
from stemmatics.measure.depth.sign import NAME
from stemmatics.measure.depth.tables import crossed_pairs, main_estimates, main_interaction, subject_of
from stemmatics.measure.present import Claims, claim

_SHARE = "{:.2f}"
_WORDS = {"positive": "needs its early layers", "negative": "late layers carry more alone"}


def column(results: Results) -> Column:
    """What of the late change works on the base's earlier state, for every pair at its first events."""
    answers: dict[tuple[str, str], Answer] = {}
    for boundary in crossed_pairs(results):
        key = (boundary.subject["base"], boundary.subject["descendant"])
        answers.setdefault(key, _answer(boundary, results))
    for refusal in results.refusals("depth.interaction"):
        key = (refusal.subject["base"], refusal.subject["descendant"])
        answers.setdefault(key, Answer(*key, NOT_MEASURED, mark=NOT_MEASURED, reason=refusal.text))
    return Column(
        NAME,
        "portable share",
        "of the late change",
        list(answers.values()),
        evidence="depth/effects",
        how="add it to `descendants` of the measure `depth`",
        null=1.0,
    )


def _answer(boundary: Estimate, results: Results) -> Answer:
    subject = subject_of(boundary)
    names = (subject["base"], subject["descendant"])
    interaction = main_interaction(results, subject)
    if interaction is None:
        fit = results.category("depth.fit", **subject)
        reason = "no event" if fit is None else f"the halves {fit.value}"
        return Answer(*names, NOT_MEASURED, mark=NOT_MEASURED, reason=reason)
    share = main_estimates(results, interaction)[PORTABLE_SHARE]
    sign = results.category("depth.sign", **subject)
    word = None if sign is None else _WORDS.get(sign.value)
    if not share.is_known:
        reason = share.note or "no share: the late layers have no clear effect"
        return Answer(*names, NOT_MEASURED, mark=NOT_MEASURED, reason=reason)
    return Answer(*names, word or UNCLEAR, claim(share, _SHARE), CLEAR if word else UNCLEAR)


def headlines(results: Results) -> list[Sentence]:
    """The descendants whose late layers need the early ones that were trained with them."""
    values: Claims = {}
    clear: dict[str, list[str]] = {}
    for sign in results.categories("depth.sign"):
        names = clear.setdefault(sign.value, [])
        if sign.value in _WORDS and sign.subject["descendant"] not in names:
            names.append(sign.subject["descendant"])
    parts = []
    for value, text in (
        ("positive", "need the early layers that were trained with them"),
        ("negative", "do more on the base's early layers than on their own"),
    ):
        names = clear.get(value, [])
        keys = [f"{value}_{index}" for index in range(len(names))]
        values |= dict(zip(keys, names, strict=True))
        if names:
            parts.append(f"the late layers of {', '.join(f'{{{key}}}' for key in keys)} {text}")
    if not parts:
        return []
    text = "; ".join(parts) + "."
    return [Sentence(text[0].upper() + text[1:], values)]

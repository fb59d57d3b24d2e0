"""The first screen of the measure ``prior``: a column, and a sentence on the clear shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stemmatics.core.content import CLEAR, NOT_MEASURED, UNCLEAR, Answer, Column
from stemmatics.core.results import Claim, Estimate, Refusal, Results, Sentence
from stemmatics.facts.prior import JOINT, SELECTED
from stemmatics.measure.present import Claims
from stemmatics.measure.prior.estimate import shown_share
from stemmatics.measure.prior.floors import ABOVE, BELOW, LABEL_KIND
from stemmatics.measure.prior.settings import NAME

_PER_CENT = "{:.0f}%"
_WORDS = {ABOVE: "above damage", BELOW: "below damage"}


def column(results: Results, pairs: Sequence[Mapping[str, str]]) -> Column:
    """What the joint correction recovers of every loss increase, beside its damage floor."""
    answers = [_answer(results, pair) for pair in pairs]
    corpus = pairs[0]["corpus"] if pairs else ""
    return Column(
        NAME,
        "logit correction recovers",
        "net share; grey: damage",
        [answer for answer in answers if answer is not None],
        evidence=f"prior/summary/{corpus}",
        how="add it to `descendants` of the measure `prior`",
        bars=True,
    )


def _answer(results: Results, pair: Mapping[str, str]) -> Answer | None:
    base, descendant = pair["base"], pair["descendant"]
    of_arm = {**pair, "arm": JOINT, "reading": SELECTED}
    refusal = results.refusal("prior.delta", **pair)
    share = shown_share(results, **of_arm)
    if refusal is not None or isinstance(share, Refusal):
        reason = refusal.text if refusal is not None else share.reason if isinstance(share, Refusal) else ""
        return Answer(base, descendant, NOT_MEASURED, mark=NOT_MEASURED, reason=reason)
    if share is None:
        return None
    floor = results.find("prior.floor.net_recovered_share", **of_arm, kind=LABEL_KIND)
    label = results.category("prior.label", **of_arm)
    word = None if label is None else _WORDS.get(label.value)
    return Answer(
        base,
        descendant,
        word or UNCLEAR,
        _share(share),
        CLEAR if word else UNCLEAR,
        floor=None if floor is None or not floor.is_known else _share(floor),
    )


def _share(share: Estimate, field: str = "value") -> Claim:
    return Claim(share.id, field, _PER_CENT, 100.0)


def headlines(results: Results, pairs: Sequence[Mapping[str, str]]) -> list[Sentence]:
    """The descendants whose share lies above what the same fits recover of random damage."""
    above = [
        share
        for pair in pairs
        if (label := results.category("prior.label", **pair, arm=JOINT, reading=SELECTED)) is not None
        and label.value == ABOVE
        and isinstance(share := shown_share(results, **pair, arm=JOINT, reading=SELECTED), Estimate)
    ]
    if not above:
        return []
    values: Claims = {}
    for index, share in enumerate(above):
        values |= {
            f"name_{index}": share.subject["descendant"],
            f"value_{index}": _share(share),
            f"lo_{index}": _share(share, "lo"),
            f"hi_{index}": _share(share, "hi"),
        }
    listed = ", ".join(
        f"{{value_{index}}} [{{lo_{index}}}, {{hi_{index}}}] of what {{name_{index}}} lost"
        for index in range(len(above))
    )
    text = f"A bias and a temperature recover more than they would of random damage: {listed}."
    return [Sentence(text, values)]

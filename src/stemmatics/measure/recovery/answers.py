"""The first screen of the recovery section: what is left after the fine-tune, recall, and a sentence."""

from __future__ import annotations

from stemmatics.core.content import CLEAR, UNCLEAR, Answer, Column, Direction
from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.math.recovery.verdict import FORGETTING, UNDETERMINED
from stemmatics.measure.present import COUNT, Claims, claim, known, pair_of
from stemmatics.measure.recovery.settings import NAME

_FORM = "{:+.3f}"


def columns(corpus: str, results: Results) -> list[Column]:
    """Residual and verdict of every pair on a corpus, and what became of recall where items were asked."""
    here = results.about(corpus=corpus)
    residuals = here.all("recovery.residual")
    left = Column(
        NAME,
        "left after fine-tune",
        "residual, nats/byte",
        [_residual(residual, here) for residual in residuals],
        evidence=f"recovery/summary/{corpus}",
        how="`stemma compare BASE DESCENDANT --text FILE --recover`",
        bars=True,
    )
    changes = results.all("recovery.recall.change")
    if not changes:
        return [left]
    recall = Column(
        "recall",
        "recall of facts",
        "change, points",
        [_recall(change) for change in changes],
        evidence="recovery/recall",
        how="name recall `items` in the measure `recovery`",
    )
    return [left, recall]


def _residual(residual: Estimate, here: Results) -> Answer:
    pair = pair_of(residual)
    names = (pair["base"], pair["descendant"])
    verdict = here.category("recovery.verdict", **pair)
    number = claim(residual, _FORM)
    if verdict is not None and verdict.value != UNDETERMINED:
        return Answer(*names, word=verdict.value, number=number, direction=_direction(verdict.value))
    apart = residual.lo > 0 or residual.hi < 0
    effect = None if apart or not known(residual.smallest_effect) else _effect(residual)
    return Answer(*names, word=UNCLEAR, number=number, mark=UNCLEAR, effect=effect)


def _direction(verdict: str) -> Direction:
    return "worse" if verdict != "register" else "better"


def _effect(estimate: Estimate, scale: float = 1.0, form: str = "{:.3f}") -> Claim:
    return Claim(estimate.id, "smallest_effect", form, scale)


def _recall(change: Estimate) -> Answer:
    number = Claim(change.id, "value", "{:+.0f}", 100.0)
    names = (change.subject["base"], change.subject["descendant"])
    if change.hi < 0:
        return Answer(*names, word="lost", number=number, mark=CLEAR, direction="worse")
    if change.lo > 0:
        return Answer(*names, word="gained", number=number, mark=CLEAR, direction="better")
    effect = _effect(change, 100.0, "{:.0f}") if known(change.smallest_effect) else None
    return Answer(*names, word=UNCLEAR, number=number, mark=UNCLEAR, effect=effect)


def headlines(corpus: str, results: Results) -> list[Sentence]:
    """Who forgot, who changed in register, and for how many the verdict is open."""
    verdicts = results.about(corpus=corpus).categories("recovery.verdict")
    if not verdicts:
        return []
    values: Claims = {}
    parts = []
    for word, verb in (
        (FORGETTING, "forgot (recall is lost and the residual stands)"),
        ("register", "changed in register only (a fine-tune takes the gap back, and recall is kept)"),
        ("both", "did both"),
    ):
        names = [verdict.subject["descendant"] for verdict in verdicts if verdict.value == word]
        keys = [f"{word}_{index}" for index in range(len(names))]
        values |= dict(zip(keys, names, strict=True))
        if names:
            parts.append(f"{', '.join(f'{{{key}}}' for key in keys)} {verb}")
    counts = {count.subject["verdict"]: count for count in results.all("recovery.verdicts", corpus=corpus)}
    unsettled = counts.get(UNDETERMINED)
    if unsettled is not None and unsettled.value:
        values |= {"open": claim(unsettled, COUNT), "total": claim(unsettled, field="n")}
        parts.append("for {open} of {total} register or forgetting is undetermined")
    return [Sentence("After the same fine-tune of all: " + "; ".join(parts) + ".", values)]

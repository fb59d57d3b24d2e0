"""The first screen of the measure `loss`: a column, and a sentence on all descendants."""

from __future__ import annotations

from stemmatics.core.content import CLEAR, NOT_MEASURED, UNCLEAR, Answer, Column
from stemmatics.core.results import Claim, Results, Sentence
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.inputs import ALL
from stemmatics.measure.loss.estimate import IMPROVED, LOST, NAME, UNDECIDED
from stemmatics.measure.present import COUNT, Claims, claim, interval_claims

_FORM = "{:+.3f}"


def column(pinned: Pinned, corpus: str, results: Results) -> Column:
    """What every descendant lost or gained on the corpus."""
    answers = [_answer(corpus, base, name, results) for base, name in pinned.stemma.pairs()]
    return Column(
        NAME,
        "loss on ordinary text",
        "nats/byte less its base",
        [answer for answer in answers if answer is not None],
        evidence=f"loss/summary/{corpus}",
        bars=True,
    )


def _answer(corpus: str, base: str, descendant: str, results: Results) -> Answer | None:
    pair = {"base": base, "descendant": descendant, "corpus": corpus}
    refusal = results.refusal("loss.delta.byte", **pair)
    if refusal is not None:
        return Answer(base, descendant, NOT_MEASURED, mark=NOT_MEASURED, reason=refusal.text)
    delta = results.find("loss.delta.byte", register=ALL, **pair)
    if delta is None:
        return None
    verdict = results.category("loss.verdict", **pair)
    if verdict is None:
        return Answer(base, descendant, NOT_MEASURED, mark=NOT_MEASURED, reason=delta.note)
    number = claim(delta, _FORM)
    if verdict.value == UNDECIDED:
        effect = Claim(delta.id, "smallest_effect", "{:.3f}")
        return Answer(base, descendant, UNCLEAR, number, UNCLEAR, effect=effect)
    if verdict.value == LOST:
        return Answer(base, descendant, "lost", number, CLEAR, "worse")
    return Answer(base, descendant, "gained", number, CLEAR, "better")


def headlines(corpus: str, results: Results) -> list[Sentence]:
    """How many lost and gained, and who lost most."""
    counts = {count.subject["verdict"]: count for count in results.all("loss.count", corpus=corpus)}
    if not counts or not results.categories("loss.verdict", corpus=corpus):
        return []
    values: Claims = {name: claim(count, COUNT) for name, count in counts.items()}
    values |= {"total": claim(counts[LOST], field="n")}
    decided = [name for name in (LOST, IMPROVED) if counts[name].value]
    verbs = {LOST: "lost on ordinary text", IMPROVED: "gained"}
    if not decided:
        text = "No descendant can be told from its base on ordinary text"
    else:
        text = ", ".join(
            f"{{{name}}} of {{total}} {verbs[name]}" if not index else f"{{{name}}} {verbs[name]}"
            for index, name in enumerate(decided)
        )
        if counts[UNDECIDED].value:
            text += f", and for {{{UNDECIDED}}} it is unclear"
    deltas = [
        results.only("loss.delta.byte", register=ALL, **verdict.subject)
        for verdict in results.categories("loss.verdict", corpus=corpus)
        if verdict.value == LOST
    ]
    if len(deltas) < 2:
        return [Sentence(text + ".", values)]
    largest = max(deltas, key=lambda delta: delta.value)
    text += "; {worst} lost most, {value} nats/byte [{lo}, {hi}]."
    return [
        Sentence(text, {**values, "worst": largest.subject["descendant"], **interval_claims(largest, _FORM)})
    ]

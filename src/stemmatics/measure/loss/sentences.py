"""What the measure `loss` says in words."""

from __future__ import annotations

from collections.abc import Iterator

from stemmatics.core.results import Claim, Results, Sentence
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.inputs import ALL
from stemmatics.measure.loss.estimate import IMPROVED, LOST, NAME, REFUSED, UNDECIDED
from stemmatics.measure.present import (
    COUNT,
    PLAIN,
    claim,
    interval_claims,
    pair_name,
)

_BY_VERDICT = {
    LOST: "{descendant} lost {value} nats/byte [{lo}, {hi}] against {base} on {corpus}",
    IMPROVED: "{descendant} improved on {base} on {corpus}: {value} nats/byte [{lo}, {hi}]",
    UNDECIDED: (
        "{descendant} cannot be distinguished from {base} on {corpus}: {value} nats/byte [{lo}, {hi}], "
        "minimum detectable effect {effect} ({power})"
    ),
}


def sentences(pinned: Pinned, corpus: str, results: Results) -> list[Sentence]:
    """The summary of one corpus, then a sentence per pair in declared order."""
    by_pair = [
        sentence
        for base, descendant in pinned.stemma.pairs()
        for sentence in _pair_sentences(corpus, base, descendant, results)
    ]
    return [*_summary(corpus, results), *by_pair]


def _summary(corpus: str, results: Results) -> Iterator[Sentence]:
    deltas = [
        delta for delta in results.all("loss.delta.byte", corpus=corpus, register=ALL) if delta.is_known
    ]
    counts = {count.subject["verdict"]: count for count in results.all("loss.count", corpus=corpus)}
    if not deltas or not counts:
        return
    text = (
        "On {corpus}, {lost} of {total} descendants lost against their base, {improved} improved and "
        "{undecided} cannot be distinguished from it"
    )
    text += "; {refused} could not be compared." if counts[REFUSED].value else "."
    total = claim(counts[LOST], field="n")
    by_verdict = {name: claim(count, COUNT) for name, count in counts.items()}
    yield Sentence(text, {"corpus": corpus, "total": total, **by_verdict})
    largest = max(deltas, key=lambda delta: delta.value)
    names = _names(largest.subject["base"], largest.subject["descendant"], corpus)
    yield Sentence(
        ("Largest increase" if largest.value > 0 else "No loss increased; smallest decrease")
        + " on {corpus}: {descendant}, {value} nats/byte [{lo}, {hi}] against {base}.",
        {**interval_claims(largest), **names},
    )


def _pair_sentences(corpus: str, base: str, descendant: str, results: Results) -> Iterator[Sentence]:
    names = _names(base, descendant, corpus)
    subject = {"base": base, "descendant": descendant, "corpus": corpus}
    refusal = results.refusal("loss.delta.byte", **subject)
    if refusal is not None:
        text = "{descendant} cannot be compared with {base} on {corpus}: {reason}."
        yield Sentence(text, {**names, "reason": refusal.text}, topic=NAME)
    delta = results.find("loss.delta.byte", register=ALL, **subject)
    if delta is not None:
        category = results.category("loss.verdict", **subject)
        if category is None:
            text = "The difference between {descendant} and {base} on {corpus} is unknown ({value}): {note}."
            yield Sentence(text, {**names, "value": claim(delta, PLAIN), "note": delta.note}, topic=NAME)
        else:
            values: dict[str, Claim | str] = {
                **names,
                **interval_claims(delta),
                "n": claim(delta, field="n"),
                "unit": delta.unit,
                "effect": claim(delta, PLAIN, "smallest_effect"),
                "power": "80% power",
            }
            yield Sentence(_BY_VERDICT[category.value] + " (n = {n}, by {unit}).", values, topic=NAME)
    by_token = results.refusal("loss.delta.token", **subject)
    if by_token is not None:
        text = "{descendant} and {base} are compared on {corpus} by byte only, not by token: {reason}."
        yield Sentence(text, {**names, "reason": by_token.text}, topic=NAME)


def _names(base: str, descendant: str, corpus: str) -> dict[str, str]:
    return {"base": base, "descendant": descendant, "corpus": corpus}


def failures(corpus: str, results: Results) -> list[str]:
    """Pairs without a difference in nats/byte, and why."""
    unknown = [
        delta for delta in results.all("loss.delta.byte", corpus=corpus, register=ALL) if not delta.is_known
    ]
    return [
        *(f"{pair_name(delta)}: {delta.note}" for delta in unknown),
        *(
            f"{pair_name(refusal)}: {refusal.text}"
            for refusal in results.refusals("loss.delta.byte", corpus=corpus)
        ),
    ]

"""What the measure ``prior`` says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stemmatics.core.results import Category, Claim, Estimate, Refusal, Results, Sentence
from stemmatics.facts.prior import HALF, JOINT, SELECTED
from stemmatics.measure.present import SIGNED, WHOLE, claim, interval_claims
from stemmatics.measure.prior.estimate import PARTS, RISING, shown_share
from stemmatics.measure.prior.floors import LABEL_KIND
from stemmatics.measure.prior.settings import NAME
from stemmatics.measure.prior.sums import NET, RECOVERED
from stemmatics.measure.prior.tables import COUNTED, SIGNED_SHARE

Values = dict[str, Claim | str]
# pairs of a corpus that the summary has room for
_MOST_IN_SUMMARY = 4
LIMITS = (
    "The net recovered share can cancel: what is recovered in base and descendant alike does not count.",
    "A change of format or position counts as context-dependent here.",
    "The scored text may be training data of either model.",
    "A recovered share does not identify a cause: random damage to the head is recovered in part too.",
)


def sentences(results: Results, pairs: Sequence[Mapping[str, str]]) -> list[Sentence]:
    """For each corpus its pairs in short and at length; the limits of the method at the end."""
    prose: list[Sentence] = []
    for corpus in dict.fromkeys(pair["corpus"] for pair in pairs):
        of_corpus = [pair for pair in pairs if pair["corpus"] == corpus]
        prose += _summary(results, of_corpus)
        for pair in of_corpus:
            prose += _pair(results, pair)
    return [*prose, *(Sentence(text, topic=NAME) for text in LIMITS)] if prose else []


def failures(results: Results, pairs: Sequence[Mapping[str, str]]) -> list[str]:
    """Pairs that could not be compared, with the reason."""
    return [
        f"{pair['base']} → {pair['descendant']} on {pair['corpus']}: {refusal.text}"
        for pair in pairs
        if (refusal := results.refusal("prior.delta", **pair)) is not None
    ]


def _joint(pair: Mapping[str, str]) -> dict[str, str]:
    return {**pair, "arm": JOINT, "reading": SELECTED}


def _summary(results: Results, pairs: Sequence[Mapping[str, str]]) -> list[Sentence]:
    """Every pair of a corpus, in the order that they were declared, where they are few.

    No pair is picked by its share: the largest of several is larger than its own interval says.
    """
    return [
        sentence
        for pair in (pairs if len(pairs) <= _MOST_IN_SUMMARY else ())
        if (sentence := _headline(results, pair)) is not None
    ]


def _headline(results: Results, pair: Mapping[str, str]) -> Sentence | None:
    shares = _both(results, pair)
    if shares is None:
        return None
    text, values = shares
    text = f"On {{corpus}}, a context-independent bias and temperature recover {text}"
    values |= {"corpus": pair["corpus"], "descendant": pair["descendant"]}
    return _with_floor(
        results, pair, text.replace("the increase", "the loss increase of {descendant}"), values, "summary"
    )


def _both(results: Results, pair: Mapping[str, str]) -> tuple[str, Values] | None:
    """Both shares of the joint fit and what their intervals hold; None where one is not given."""
    recovered, net = (shown_share(results, share, **_joint(pair)) for share in (RECOVERED, NET))
    if not (isinstance(recovered, Estimate) and isinstance(net, Estimate)):
        return None
    text = (
        "{recovered} [{recovered_lo}, {recovered_hi}] of the increase, and {net} [{net_lo}, {net_hi}] less "
        "what such a fit to the base recovers"
    )
    redrawn = [share.quantity.endswith("_redrawn") for share in (recovered, net)]
    text += " (intervals with the fits redrawn)" if all(redrawn) else " (intervals with the fits held)"
    claims = interval_claims(recovered, SIGNED_SHARE, "recovered") | interval_claims(net, SIGNED_SHARE, "net")
    return text, dict(claims)


def _with_floor(results: Results, pair: Mapping[str, str], text: str, values: Values, topic: str) -> Sentence:
    """A share is never given without its damage floor."""
    floor = results.find("prior.floor.net_recovered_share", **_joint(pair), kind=LABEL_KIND)
    label: Category | Refusal | None = results.category("prior.label", **_joint(pair))
    label = label or results.refusal("prior.label", **_joint(pair))
    if floor is not None:
        text += (
            "; of an equal loss from random damage to the base such fits recover, less the same, "
            "{floor_lo} to {floor_hi} over {seeds} seeds"
        )
        values = {
            **values,
            "floor_lo": claim(floor, SIGNED_SHARE, "lo"),
            "floor_hi": claim(floor, SIGNED_SHARE, "hi"),
            "seeds": claim(floor, WHOLE, "n"),
        }
    if isinstance(label, Category):
        return Sentence(text + " ({label}).", {**values, "label": claim(label)}, topic)
    reason = "the damage floor is unknown: none was measured" if label is None else label.reason
    return Sentence(text + "; {reason}.", {**values, "reason": reason}, topic)


def _pair(results: Results, pair: Mapping[str, str]) -> list[Sentence]:
    values: Values = dict(pair)
    refusal = results.refusal("prior.delta", **pair)
    if refusal is not None:
        text = "{descendant} could not be compared with {base} on {corpus}: {reason}."
        return [Sentence(text, {**values, "reason": refusal.text}, NAME)]
    increase = results.find("prior.delta", **pair)
    if increase is None:
        return []
    values |= interval_claims(increase, SIGNED)
    text = (
        "The loss of {descendant} on {corpus} differs from that of {base} by {value} nats/token [{lo}, {hi}]"
    )
    shares = _both(results, pair)
    if shares is None:
        share = shown_share(results, **_joint(pair))
        reason = share.reason if isinstance(share, Refusal) else "there is no joint fit"
        return [Sentence(text + "; no recovered share: {reason}.", {**values, "reason": reason}, NAME)]
    text += f"; a bias and a temperature fitted to the descendant recover {shares[0]}"
    sentence = _with_floor(results, pair, text, values | shares[1], NAME)
    return [sentence, *_parts(results, pair), *_rising(results, pair)]


def _rising(results: Results, pair: Mapping[str, str]) -> list[Sentence]:
    """Only where the whole interval of the last step lies above 0."""
    word = results.category("prior.text", **pair, of=NET)
    rise = results.find("prior.rise", **pair, of=NET)
    tokens = [
        results.find("prior.fit.tokens", **{**_joint(pair), "reading": reading}, side="descendant")
        for reading in (HALF, SELECTED)
    ]
    if word is None or word.value != RISING or rise is None or None in tokens:
        return []
    text = (
        "The net recovered share of {descendant} is {word}: it rose by {rise} [{rise_lo}, {rise_hi}] from "
        "{half} to {all} tokens of FIT, so more text may recover more."
    )
    values: Values = {"descendant": pair["descendant"], "word": claim(word)}
    values |= interval_claims(rise, SIGNED_SHARE, "rise")
    counts = zip(("half", "all"), tokens, strict=True)
    values |= {name: claim(count, COUNTED) for name, count in counts if count is not None}
    return [Sentence(text, values, NAME)]


def _parts(results: Results, pair: Mapping[str, str]) -> list[Sentence]:
    values: Values = {"descendant": pair["descendant"]}
    for name in PARTS:
        part = results.find("prior.part", **pair, part=name)
        if part is None:
            return []
        values |= interval_claims(part, SIGNED_SHARE, name)
    text = (
        "Net of what the same fits recover in the base, a temperature accounts for {temperature} "
        "[{temperature_lo}, {temperature_hi}] of the loss increase of {descendant} and a bias for {bias} "
        "[{bias_lo}, {bias_hi}]; net, {rest} [{rest_lo}, {rest_hi}] is not recovered by these fits"
    )
    tokens = results.find("prior.fit.tokens", **_joint(pair), side="descendant")
    if tokens is not None:
        text += " on {tokens} tokens"
        values["tokens"] = claim(tokens, COUNTED)
    text += "."
    return [Sentence(text, values, NAME)]

"""What the measure ``prior`` says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stemmatics.core.results import Category, Claim, Estimate, Refusal, Results, Sentence
from stemmatics.facts.prior import JOINT, SELECTED
from stemmatics.measure.present import SIGNED, claim, interval_claims
from stemmatics.measure.prior.estimate import PARTS, shown_share
from stemmatics.measure.prior.floors import LABEL_KIND
from stemmatics.measure.prior.settings import NAME
from stemmatics.measure.prior.tables import SIGNED_SHARE

Values = dict[str, Claim | str]
WHOLE_COUNT = "{:,.0f}"
LIMITS = (
    "The net recovered share can cancel: what is recovered in base and descendant alike does not count.",
    "A change of format or position counts as context-dependent here.",
    "The scored text may be training data of either model.",
    "A recovered share does not identify a cause: random damage to the head is recovered in part too.",
)


def sentences(results: Results, pairs: Sequence[Mapping[str, str]]) -> list[Sentence]:
    """For each corpus the largest share, then every pair; the limits of the method at the end."""
    prose: list[Sentence] = []
    for corpus in dict.fromkeys(pair["corpus"] for pair in pairs):
        of_corpus = [pair for pair in pairs if pair["corpus"] == corpus]
        prose += _largest(results, of_corpus)
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


def _largest(results: Results, pairs: Sequence[Mapping[str, str]]) -> list[Sentence]:
    shares = [(shown_share(results, **_joint(pair)), pair) for pair in pairs]
    known = [(share, pair) for share, pair in shares if isinstance(share, Estimate)]
    if not known:
        return []
    share, pair = max(known, key=lambda known_share: known_share[0].value)
    text = (
        "On {corpus}, a context-independent bias and temperature recover the largest share of the loss "
        "increase, less what they recover in the base, for {descendant}: {value} [{lo}, {hi}]"
    )
    values: Values = {"corpus": pair["corpus"], "descendant": pair["descendant"]}
    return [_with_floor(results, pair, text, {**values, **interval_claims(share, SIGNED_SHARE)}, "summary")]


def _with_floor(results: Results, pair: Mapping[str, str], text: str, values: Values, topic: str) -> Sentence:
    """A share is never given without its damage floor."""
    floor = results.find("prior.floor.net_recovered_share", **_joint(pair), kind=LABEL_KIND)
    label: Category | Refusal | None = results.category("prior.label", **_joint(pair))
    label = label or results.refusal("prior.label", **_joint(pair))
    if floor is not None:
        text += "; of an equal loss from random damage to the base they recover {floor_lo} to {floor_hi}"
        values = {
            **values,
            "floor_lo": claim(floor, SIGNED_SHARE, "lo"),
            "floor_hi": claim(floor, SIGNED_SHARE, "hi"),
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
    share = shown_share(results, **_joint(pair))
    if not isinstance(share, Estimate):
        reason = "there is no joint fit" if share is None else share.reason
        return [Sentence(text + "; no recovered share: {reason}.", {**values, "reason": reason}, NAME)]
    card = results.find("prior.recovered_share", **_joint(pair))
    if card is not None:
        text += (
            "; a bias and a temperature fitted to the descendant recover {card} [{card_lo}, {card_hi}] of "
            "the increase, and, less what such a fit to the base recovers, {share} [{share_lo}, {share_hi}]"
        )
        values |= interval_claims(card, SIGNED_SHARE, "card")
    else:
        text += "; less what such a fit to the base recovers, a bias and a temperature recover {share} "
        text += "[{share_lo}, {share_hi}] of the increase"
    values |= interval_claims(share, SIGNED_SHARE, "share")
    return [_with_floor(results, pair, text, values, NAME), *_parts(results, pair)]


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
        values["tokens"] = claim(tokens, WHOLE_COUNT)
    text += "."
    return [Sentence(text, values, NAME)]

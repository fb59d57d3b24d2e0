"""What the measure `divergence` says in words."""

from __future__ import annotations

from collections.abc import Iterator

from stemmatics.core.results import Claim, Results, Sentence
from stemmatics.measure.divergence.estimate import BEYOND, NAME, WITHIN
from stemmatics.measure.inputs import ALL
from stemmatics.measure.present import SHARE, claim, interval_claims

_KL = "{:.4g}"
_BY_VERDICT = {
    BEYOND: "more than precision or attention change {base} alone (at most {control} nats/token)",
    WITHIN: "less than precision or attention change {base} alone ({control} nats/token)",
}


def sentences(corpus: str, base: str, descendant: str, results: Results) -> Iterator[Sentence]:
    """How far apart the two are, whether that is more than numerical noise, and against random damage."""
    subject = {"base": base, "descendant": descendant, "corpus": corpus}
    refusal = results.refusal("divergence.kl", **subject)
    if refusal is not None:
        text = "Predictions of {descendant} and {base} on {corpus} cannot be compared by token: {reason}."
        yield Sentence(text, {**subject, "reason": refusal.text}, topic=NAME)
        return
    mean = results.find("divergence.kl", register=ALL, **subject)
    if mean is None:
        return
    same = results.only("divergence.same_top1", register=ALL, **subject)
    values: dict[str, Claim | str] = {
        **subject,
        **interval_claims(mean, _KL),
        **interval_claims(same, SHARE, "same"),
    }
    text = (
        "Predictions of {descendant} on {corpus} diverge from those of {base}: KL({base} || {descendant}) is "
        "{value} nats/token [{lo}, {hi}]; the most likely token is the same at {same} of positions "
        "[{same_lo}, {same_hi}]"
    )
    verdict = results.category("divergence.verdict", register=ALL, **subject)
    controls = results.all("divergence.control", **subject)
    if verdict is not None and verdict.value in _BY_VERDICT and controls:
        largest = max(controls, key=lambda each: each.value)
        text += f": {_BY_VERDICT[verdict.value]}"
        values["control"] = claim(largest, _KL)
    yield Sentence(text + ".", values, topic=NAME)
    yield from _against_damage(subject, results)


def _against_damage(subject: dict[str, str], results: Results) -> Iterator[Sentence]:
    ratio = results.find("divergence.against_damage", **subject)
    if ratio is None or not ratio.is_known or not (ratio.lo > 1 or ratio.hi < 1):
        return
    side = "more" if ratio.lo > 1 else "less"
    text = (
        f"That is {side} than random damage with the same loss increase: {{value}} times its divergence "
        "[{lo}, {hi}] on the same documents."
    )
    yield Sentence(text, {**subject, **interval_claims(ratio, SHARE)}, topic=NAME)

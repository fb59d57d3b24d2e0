"""What depth says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stemmatics.core.results import Claim, Estimate, Sentence
from stemmatics.measure.base import Findings
from stemmatics.measure.depth.charts import charts
from stemmatics.measure.depth.estimate import DEGENERATE, NAME, REFUSED
from stemmatics.measure.depth.tables import COUNT, LOGITS, SHARE, Estimates, like, main_of, of, tables
from stemmatics.measure.present import known

BESIDE = (
    "The effects are local to the selected tokens, at the positions where base and descendant part.",
    "The crossed cells are constructed states, not natural trajectories: no model was trained on them.",
    "Nothing follows about free generation.",
)


def findings(estimates: Estimates) -> Findings:
    """Main numbers first; what they do not say stands beside them."""
    mains = list(of(estimates, "interaction", readout="descendant", arm="main"))
    sentences = [*_over_all(estimates), *_pairs(estimates, mains), *_contrast(estimates)]
    refused = [_refused(one) for one in of(estimates, REFUSED)]
    # beside every result, on the first page too
    if sentences:
        sentences += [Sentence(text, topic=NAME) for text in BESIDE]
        sentences.append(Sentence(" ".join(BESIDE)))
    return Findings(sentences, tables(estimates, mains), charts(estimates), refused)


def _name(one: Estimate) -> dict[str, Claim | str]:
    return {name: one.subject[name] for name in ("base", "descendant", "events")}


def _refused(one: Estimate) -> str:
    return (
        f"{one.subject['base']} → {one.subject['descendant']} on {one.subject['events']}: refused: {one.note}"
    )


def _limits(name: str, one: Estimate, form: str) -> dict[str, Claim | str]:
    return {
        name: Claim(one.id, "value", form),
        f"{name}_lo": Claim(one.id, "lo", form),
        f"{name}_hi": Claim(one.id, "hi", form),
    }


def _pairs(estimates: Estimates, mains: Sequence[Estimate]) -> list[Sentence]:
    """A sentence a pair; a single one belongs on the first page too."""
    said = [_pair(estimates, one) for one in mains]
    return said + [replace(one, topic="summary") for one in said if len(said) == 1]


def _pair(estimates: Estimates, one: Estimate) -> Sentence:
    places = _name(one)
    if DEGENERATE in one.note:
        text = (
            "{descendant} and {base} have the same earlier states on {events}: nothing is crossed, and the "
            "interaction is zero by construction."
        )
        return Sentence(text, places, topic=NAME)
    if not known(one.value):
        return Sentence("{descendant} and {base} do not part on {events}: no event.", places, topic=NAME)
    after, share, boundary = (
        main_of(estimates, one, "effect_after_descendant"),
        main_of(estimates, one, "portable_share"),
        like(estimates, one, "boundary"),
    )
    assert after is not None, "made together"
    assert share is not None, "made together"
    assert boundary is not None, "made together"
    places |= {
        **_limits("interaction", one, LOGITS),
        **_limits("after", after, LOGITS),
        "boundary": Claim(boundary.id, "value", COUNT),
        "n": Claim(one.id, "n", "{}"),
    }
    text = (
        "{descendant} against {base} on {events}, cut at layer {boundary}: the late layers add {after} "
        "[{after_lo}, {after_hi}] logits on the descendant's own earlier state, {interaction} "
        "[{interaction_lo}, {interaction_hi}] more than on the base's"
    )
    if known(share.value):
        places |= _limits("share", share, SHARE)
        text += "; the portable share is {share} [{share_lo}, {share_hi}]"
    return Sentence(text + " (n = {n} prompts).", places, topic=NAME)


def _over_all(estimates: Estimates) -> list[Sentence]:
    found = []
    for one in of(estimates, "all.interaction", over="prompts"):
        events = one.subject["events"]
        share = next(of(estimates, "all.portable_share", over="prompts", events=events))
        places: dict[str, Claim | str] = {
            "events": events,
            "over": one.note.rpartition("; ")[2],
            **_limits("value", one, LOGITS),
            **_limits("share", share, SHARE),
        }
        text = (
            "On {events} the late layers add {value} [{value_lo}, {value_hi}] logits more on the "
            "descendant's own earlier state than on the base's ({over})"
        )
        text += "; the portable share is {share} [{share_lo}, {share_hi}]." if known(share.value) else "."
        found.append(Sentence(text, places))
    return found


def _contrast(estimates: Estimates) -> list[Sentence]:
    found = []
    for one in of(estimates, "contrast.difference", noise="seeds"):
        p, smallest = next(of(estimates, "contrast.p")), next(of(estimates, "contrast.smallest_p"))
        text = (
            "The interaction of the second arm is {value} [{value_lo}, {value_hi}] logits above that of the "
            "first (n = {n} seeds, t over seeds; sign-flip p = {p}, the smallest that can be reached is "
            "{smallest})."
        )
        places: dict[str, Claim | str] = {
            **_limits("value", one, LOGITS),
            "n": Claim(one.id, "n", "{}"),
            "p": Claim(p.id, "value", "{:.3f}"),
            "smallest": Claim(smallest.id, "value", "{:.3f}"),
        }
        found.append(Sentence(text, places))
    return found

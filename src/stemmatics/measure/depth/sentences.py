"""Sentences of depth: what the page and the terminal say."""

from __future__ import annotations

from dataclasses import replace

from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.measure.depth.estimate import NAME, PORTABLE_SHARE, SAME
from stemmatics.measure.depth.tables import LOGITS, main_estimates, main_interactions, subject_of
from stemmatics.measure.present import COUNT, SHARE, WHOLE, claim, interval_claims, pair_name

P_VALUE = "{:.3f}"
# printed beside every result, on the first page too
CAVEATS = (
    (
        "Interaction: how many logits more the late layers add on the descendant's earlier state than on the "
        "base's. Near zero, the late change is portable; above zero, it depends on the earlier layers that "
        "were trained with it."
    ),
    "The effects are local to the selected tokens, at the positions where base and descendant disagree.",
    "The crossed cells are constructed states, not natural trajectories: no model was trained on them.",
    "The effects say nothing about free generation.",
)


def sentences(results: Results) -> list[Sentence]:
    """Means over pairs first, then each pair, the contrast, and what these numbers do not say."""
    findings = [*_over_pairs(results), *_pairs(results), *_contrast(results), *_without_floor(results)]
    if not findings:
        return []
    return [*findings, *(Sentence(text, topic=NAME) for text in CAVEATS), Sentence(" ".join(CAVEATS))]


def refusals(results: Results) -> list[str]:
    """Pairs that could not be crossed, with the reason."""
    return [
        f"{pair_name(refusal)} on {refusal.subject['events']}: refused: {refusal.text}"
        for refusal in results.refusals("depth.interaction")
    ]


def _pairs(results: Results) -> list[Sentence]:
    """A sentence for each pair; that of a single pair belongs on the first page too."""
    by_pair = [_pair(results, interaction) for interaction in main_interactions(results)]
    return by_pair + [replace(sentence, topic="summary") for sentence in by_pair if len(by_pair) == 1]


def _pair(results: Results, interaction: Estimate) -> Sentence:
    subject = subject_of(interaction)
    states = results.category("depth.states", **subject)
    if states is None:
        text = "{descendant} and {base} never disagree on {events}: no events."
        return Sentence(text, subject, topic=NAME)
    if states.value == SAME:
        text = (
            "{descendant} and {base} have the same earlier states on {events}: the interaction is zero by "
            "construction."
        )
        return Sentence(text, subject, topic=NAME)
    main = main_estimates(results, interaction)
    share = main[PORTABLE_SHARE]
    values: dict[str, Claim | str] = {
        **subject,
        **interval_claims(interaction, LOGITS, "interaction"),
        **interval_claims(main["effect_after_descendant"], LOGITS, "after"),
        "boundary": claim(results.only("depth.boundary", **subject), COUNT),
        "n": claim(interaction, WHOLE, "n"),
    }
    text = (
        "{descendant} against {base} on {events}, boundary at layer {boundary}: interaction {interaction} "
        "[{interaction_lo}, {interaction_hi}] logits; effect of the late layers on the "
        "descendant's earlier state {after} [{after_lo}, {after_hi}]"
    )
    if share.is_known:
        values |= interval_claims(share, SHARE, "share")
        text += "; portable share {share} [{share_lo}, {share_hi}]"
    return Sentence(text + " (n = {n} prompts).", values, topic=NAME)


def _over_pairs(results: Results) -> list[Sentence]:
    means = []
    for interaction in results.all("depth.all.interaction", over="prompts"):
        events = interaction.subject["events"]
        share = results.only(f"depth.all.{PORTABLE_SHARE}", over="prompts", events=events)
        families = results.only("depth.all.families", events=events)
        values: dict[str, Claim | str] = {
            "events": events,
            "pairs": claim(results.only("depth.all.pairs", events=events), COUNT),
            "families": claim(families, COUNT),
            **interval_claims(interaction, LOGITS, "interaction"),
        }
        noun = "family" if families.value == 1 else "families"
        text = (
            "On {events}, family-balanced mean over {pairs} pairs of {families} "
            + noun
            + ": interaction {interaction} [{interaction_lo}, {interaction_hi}] logits"
        )
        if share.is_known:
            values |= interval_claims(share, SHARE, "share")
            text += "; portable share {share} [{share_lo}, {share_hi}]"
        means.append(Sentence(text + ".", values))
    return means


def _contrast(results: Results) -> list[Sentence]:
    text = (
        "Interaction of the second arm minus that of the first: {value} [{lo}, {hi}] logits (n = {n} seeds, "
        "t interval over seeds; sign-flip p = {p}, smallest attainable p = {smallest})."
    )
    return [
        Sentence(
            text,
            {
                **interval_claims(difference, LOGITS),
                "n": claim(difference, WHOLE, "n"),
                "p": claim(results.only("depth.contrast.p"), P_VALUE),
                "smallest": claim(results.only("depth.contrast.smallest_p"), P_VALUE),
            },
        )
        for difference in results.all("depth.contrast.difference", noise="seeds")
    ]


def _without_floor(results: Results) -> list[Sentence]:
    return [
        Sentence(
            "No damage floor for {descendant} against {base} on {events}: {reason}.",
            {**subject_of(refusal), "reason": refusal.reason},
            topic=NAME,
        )
        for refusal in results.refusals("depth.floor.interaction")
    ]

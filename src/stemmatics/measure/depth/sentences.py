"""Sentences of depth: what the page and the terminal say."""

from __future__ import annotations

from dataclasses import replace

from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.facts.cross import DESCENDANT
from stemmatics.facts.events import FIRST
from stemmatics.facts.paths import THREE_CELLS
from stemmatics.measure.depth.estimate import PORTABLE_SHARE, SAME
from stemmatics.measure.depth.sign import NAME
from stemmatics.measure.depth.tables import (
    LOGITS,
    crossed_pairs,
    main_estimates,
    main_interaction,
    subject_of,
)
from stemmatics.measure.present import COUNT, PLAIN, SHARE, WHOLE, claim, interval_claims, pair_name

P_VALUE = "{:.3f}"
THOUSANDS = "{:,.0f}"
# printed beside every result, on the first page too
CAVEATS = (
    (
        "Interaction: how many logits more the late layers add on the descendant's earlier state than on the "
        "base's. An interval that includes zero does not show that the late change is portable."
    ),
    "The effects are local to the selected tokens, at the selected positions.",
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
    """The sentences of each pair; those of a single pair belong on the first page too."""
    boundaries = crossed_pairs(results)
    by_pair = [sentence for boundary in boundaries for sentence in _pair(results, boundary)]
    return by_pair + [replace(sentence, topic="summary") for sentence in by_pair if len(boundaries) == 1]


def _pair(results: Results, boundary: Estimate) -> list[Sentence]:
    subject = subject_of(boundary)
    states, fit = results.category("depth.states", **subject), results.category("depth.fit", **subject)
    if fit is not None and fit.value == "do not fit":
        return [_unfit(results, subject)]
    if states is None:
        text = "No event for {descendant} against {base} on {events}: the most probable token never changes."
        if fit is None:
            text = "No event is given for {descendant} against {base} on {events}."
        return [Sentence(text, subject, topic=NAME)]
    if states.value == SAME:
        text = (
            "{descendant} and {base} have the same earlier states on {events}: the interaction is zero by "
            "construction."
        )
        return [Sentence(text, subject, topic=NAME)]
    interaction = main_interaction(results, subject)
    if interaction is None:
        return []
    main = _main(results, interaction, boundary)
    if fit is None:
        return [main]
    return [main, *_sign(results, subject), *_temperature(results, subject), *_beside(results, subject)]


def _unfit(results: Results, subject: dict[str, str]) -> Sentence:
    values: dict[str, Claim | str] = {**subject}
    for cell in ("base_base", "desc_desc", "base_desc", "desc_base"):
        loss = results.only("depth.path_loss", **subject, cell=cell)
        values |= interval_claims(loss, PLAIN, cell)
    text = (
        "The halves of {descendant} and {base} do not fit on {events}: the base's own path costs "
        "{base_base} and {desc_desc} nats/token in the natural cells, {base_desc} "
        "[{base_desc_lo}, {base_desc_hi}] with the descendant's late layers on the base's state and "
        "{desc_base} [{desc_base_lo}, {desc_base_hi}] with the base's on the descendant's. The sign of an "
        "interaction would mean nothing, and none is given."
    )
    return Sentence(text, values, topic=NAME)


def _main(results: Results, interaction: Estimate, boundary: Estimate) -> Sentence:
    main = main_estimates(results, interaction)
    share = main[PORTABLE_SHARE]
    values: dict[str, Claim | str] = {
        **subject_of(interaction),
        **interval_claims(interaction, LOGITS, "interaction"),
        **interval_claims(main["effect_after_descendant"], LOGITS, "after"),
        "boundary": claim(boundary, COUNT),
        "n": claim(interaction, WHOLE, "n"),
    }
    chosen = "by three cells" if interaction.subject["support"] == THREE_CELLS else "as given"
    text = (
        "{descendant} against {base} on {events}, boundary at layer {boundary}, events "
        + chosen
        + ": interaction {interaction} [{interaction_lo}, {interaction_hi}] logits; effect of the late "
        "layers on the descendant's earlier state {after} [{after_lo}, {after_hi}]"
    )
    if share.is_known:
        values |= interval_claims(share, SHARE, "share")
        text += "; portable share {share} [{share_lo}, {share_hi}]"
    return Sentence(text + " (n = {n} prompts).", values, topic=NAME)


def _sign(results: Results, subject: dict[str, str]) -> list[Sentence]:
    """The sign that was called; an undetermined one with what is missing."""
    sign = results.category("depth.sign", **subject)
    if sign is None:
        return []
    about = {name: subject[name] for name in ("descendant", "events")}
    if sign.value != "undetermined":
        text = "The interaction of {descendant} on {events} is {sign}."
        return [Sentence(text, {**about, "sign": claim(sign)}, topic=NAME)]
    values: dict[str, Claim | str] = {**about, "reason": claim(sign, WHOLE, "reason")}
    text = "The sign of the interaction of {descendant} on {events} is undetermined: {reason}"
    needed = results.find("depth.prompts_needed", **subject)
    if needed is not None and needed.is_known:
        values["needed"] = claim(needed, THOUSANDS)
        text += "; about {needed} prompts with an event would settle it, if mean and spread stay as they are"
    return [Sentence(text + ".", values, topic=NAME)]


def _temperature(results: Results, subject: dict[str, str]) -> list[Sentence]:
    """Whether one temperature could be all of a positive interaction; below 0 the control says nothing."""
    sign, rescaled = results.category("depth.sign", **subject), results.find("depth.rescaled", **subject)
    if sign is None or sign.value != "positive" or rescaled is None or not rescaled.is_known:
        return []
    values: dict[str, Claim | str] = {
        **interval_claims(rescaled, LOGITS, "left"),
        "factor": claim(results.only("depth.inverse_temperature", **subject), SHARE),
    }
    text = (
        "With the descendant's own cell at one fitted temperature (logits times {factor}) the interaction is "
        "{left} [{left_lo}, {left_hi}] logits: "
    )
    if rescaled.lo > 0:
        text += "a sharper descendant alone does not explain it."
    else:
        text += "a sharper descendant alone may explain it."
    return [Sentence(text, values, topic=NAME)]


def _beside(results: Results, subject: dict[str, str]) -> list[Sentence]:
    """The published support and the floor: descriptions, of which nothing follows."""
    published = results.find("depth.interaction", **subject, support=FIRST, readout=DESCENDANT)
    if published is None or not published.is_known:
        return []
    values: dict[str, Claim | str] = {**interval_claims(published, LOGITS, "first")}
    text = (
        "For comparison, without a test: at first disagreements, which favour a positive interaction, "
        "{first} [{first_lo}, {first_hi}] logits"
    )
    floor = results.find("depth.floor.interaction", **subject, support=THREE_CELLS)
    if floor is not None and floor.is_known:
        lowest, highest = (
            results.only(f"depth.floor.{name}", **subject, support=THREE_CELLS)
            for name in ("lowest", "highest")
        )
        values |= {
            "floor": claim(floor, LOGITS),
            "draws": claim(lowest, WHOLE, "n"),
            "lowest": claim(lowest, LOGITS),
            "highest": claim(highest, LOGITS),
        }
        text += (
            "; a copy of the base damaged until it lost as much, {floor} by three cells "
            "(draws: {draws}, from {lowest} to {highest})"
        )
    return [Sentence(text + ".", values, topic=NAME)]


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

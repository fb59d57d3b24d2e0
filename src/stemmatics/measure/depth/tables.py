"""Tables of depth."""

from __future__ import annotations

from collections.abc import Mapping

from stemmatics.core.content import Table
from stemmatics.core.results import Category, Estimate, Refusal, Results
from stemmatics.facts.cross import DESCENDANT, MAIN_ARM, PERMUTED_ARM
from stemmatics.facts.events import EARLIER, LATER, OUTCOMES
from stemmatics.math.factorial import EFFECTS
from stemmatics.measure.depth.estimate import PORTABLE_SHARE
from stemmatics.measure.present import (
    COUNT,
    SHARE,
    SIGNED,
    WHOLE,
    claim,
    claim_if,
    pair_name,
    pair_of,
    table,
    with_rows,
)

LOGITS = "{:+.3f}"
P_VALUE = "{:.4f}"
_CONTROLS = {
    LATER: "a random later disagreement",
    EARLIER: "the same two tokens at an earlier prefix",
    PERMUTED_ARM: "the change of state, its axes permuted and signed at random",
}
_OUTCOMES = {
    "event": "disagree",
    "agreed": "agree",
    "ended": "both end",
    "too_long": "too long",
    "empty": "empty",
    "duplicate": "duplicate",
}


def tables(results: Results) -> list[Table]:
    """Those that have rows."""
    return with_rows(
        _effects(results),
        _readouts(results),
        _controls(results),
        _floor(results),
        _decisions(results),
        _events(results),
        _contrast(results),
    )


def subject_of(result: Estimate | Category | Refusal) -> dict[str, str]:
    """Base, descendant and events of a result, as a subject."""
    return {**pair_of(result), "events": result.subject["events"]}


def main_interactions(results: Results) -> list[Estimate]:
    """The interaction of each pair, under the descendant's readout."""
    return results.all("depth.interaction", readout=DESCENDANT, arm=MAIN_ARM)


def main_estimates(results: Results, interaction: Estimate) -> Mapping[str, Estimate]:
    """Effects, p-value and share that were made together with an interaction, by name."""
    names = (*EFFECTS, "interaction_p", PORTABLE_SHARE)
    return {name: results.only(f"depth.{name}", **interaction.subject) for name in names}


def _pair_cells(result: Estimate) -> tuple[str, str]:
    return pair_name(result), result.subject["events"]


def _effects(results: Results) -> Table:
    rows = []
    for interaction in main_interactions(results):
        subject, main = subject_of(interaction), main_estimates(results, interaction)
        rows.append(
            [
                *_pair_cells(interaction),
                claim_if(results.find("depth.boundary", **subject), COUNT),
                claim_if(results.category("depth.states", **subject)),
                *(claim(main[name], LOGITS) for name in EFFECTS),
                claim(main[PORTABLE_SHARE], SHARE),
                claim(main["interaction_p"], P_VALUE),
                claim(interaction, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", "boundary", "states", "after base", "after descendant", "interaction"]
    note = (
        "In logits, the descendant's token minus the base's, read by the descendant's final norm and head. "
        "After base, after descendant: effect of the late layers on that model's earlier state; interaction "
        "is the second minus the first. Boundary: the first late layer. States: whether the two earlier "
        "states differ. p: sign-flip by prompt."
    )
    title = "Effect of the late layers on either earlier state"
    return table("depth/effects", title, [*columns, "portable share", "p", "prompts"], rows, note)


def _readouts(results: Results) -> Table:
    rows = []
    for interaction in results.all("depth.interaction", arm=MAIN_ARM):
        readout = interaction.subject["readout"]
        if readout == DESCENDANT:
            continue
        main = main_estimates(results, interaction)
        rows.append([*_pair_cells(interaction), readout, *(claim(main[name], LOGITS) for name in EFFECTS)])
    columns = ["pair", "events", "readout", "after base", "after descendant", "interaction"]
    note = (
        "The same cells read by the base's norm and head (base), and by those of the model that the late "
        "layers come from (own)."
    )
    return table("depth/readouts", "Effects under other readouts", columns, rows, note)


def _controls(results: Results) -> Table:
    rows = []
    for interaction in results.all("depth.control.interaction"):
        control = interaction.subject["control"]
        share = results.find("depth.control.share", **subject_of(interaction), control=control)
        rows.append(
            [
                *_pair_cells(interaction),
                _CONTROLS.get(control, control),
                claim(interaction, LOGITS),
                claim_if(share, SHARE),
                claim(interaction, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", "control", "interaction", "share of main", "prompts"]
    note = "Other positions, and other states in place of the descendant's."
    return table("depth/controls", "Controls", columns, rows, note)


def _floor(results: Results) -> Table:
    rows = []
    for loss in results.all("depth.floor.loss"):
        subject = subject_of(loss)
        interaction = results.find("depth.floor.interaction", **subject)
        rows.append(
            [
                *_pair_cells(loss),
                claim(loss, SIGNED),
                claim_if(results.find("depth.floor.scale", **subject), SHARE),
                claim_if(results.find("depth.floor.effect_after_descendant", **subject), LOGITS),
                claim_if(interaction, LOGITS),
                claim_if(results.find(f"depth.floor.{PORTABLE_SHARE}", **subject), SHARE),
                claim_if(interaction, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", "loss increase", "noise", "after damaged copy", "interaction"]
    note = (
        "The base crossed with a copy of itself, damaged by noise on every matrix until it lost as much as "
        "the descendant. Loss increase in nats/byte; noise in standard deviations of each matrix. Not "
        "available if the descendant lost nothing."
    )
    title = "Floor: damage of the same size"
    return table("depth/floor", title, [*columns, "portable share", "prompts"], rows, note)


def _decisions(results: Results) -> Table:
    rows = []
    for changed in results.all("depth.top_1_changed", earlier_state="descendant"):
        subject = subject_of(changed)
        rows.append(
            [
                *_pair_cells(changed),
                claim_if(results.find("depth.top_1_changed", **subject, earlier_state="base"), SHARE),
                claim(changed, SHARE),
                claim_if(results.find("depth.forced.valid", **subject, after="base"), SHARE),
                claim_if(results.find("depth.forced.valid", **subject, after="descendant"), SHARE),
                claim_if(results.find("depth.forced", **subject), LOGITS),
            ]
        )
    columns = [
        "pair",
        "events",
        "changed after base",
        "changed after descendant",
        "valid after base's token",
        "valid after descendant's token",
        "difference",
    ]
    note = (
        "Changed: share of events whose most probable token changes when the late layers are swapped on that "
        "earlier state. Valid: share of replies that pass their item's rule when the token is forced and the "
        "unmodified descendant continues."
    )
    return table("depth/decisions", "Decisions", columns, rows, note)


def _events(results: Results) -> Table:
    rows = []
    for events in results.all("depth.prompts", outcome="event"):
        subject = subject_of(events)
        rows.append(
            [
                *_pair_cells(events),
                claim(events, WHOLE, "n"),
                *(
                    claim_if(results.find("depth.prompts", **subject, outcome=outcome), COUNT)
                    for outcome in OUTCOMES
                    if outcome in _OUTCOMES
                ),
                claim_if(results.find("depth.distance", **subject), SHARE),
                claim_if(results.find("depth.identity_error", **subject), "{:.0e}"),
            ]
        )
    outcomes = [_OUTCOMES[outcome] for outcome in OUTCOMES if outcome in _OUTCOMES]
    columns = ["pair", "events", "prompts", *outcomes, "distance", "identity error"]
    note = (
        "Distance of the two earlier states at the event, as a share of the base's length. Identity error: "
        "difference of a model crossed with itself from itself, as a share of its largest value."
    )
    return table("depth/events", "Prompts by outcome", columns, rows, note)


def _contrast(results: Results) -> Table:
    rows = []
    for difference in results.all("depth.contrast.by_seed"):
        seed = difference.subject["seed"]
        arms = [results.only("depth.contrast.interaction", arm=arm, seed=seed) for arm in ("first", "second")]
        rows.append([f"seed {seed}", *(claim(arm, LOGITS) for arm in arms), claim(difference, LOGITS)])
    rows += [
        [f"all, noise of {difference.subject['noise']}", None, None, claim(difference, LOGITS)]
        for difference in results.all("depth.contrast.difference")
    ]
    columns = ["seed", "first arm", "second arm", "second minus first"]
    return table("depth/contrast", "Controlled experiment: interaction by arm", columns, rows)

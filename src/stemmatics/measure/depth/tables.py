"""Tables of depth."""

from __future__ import annotations

from collections.abc import Mapping

from stemmatics.core.content import Table
from stemmatics.core.results import Category, Estimate, Refusal, Results
from stemmatics.facts.cross import CELLS, DESCENDANT, MAIN_ARM, PERMUTED_ARM
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST, OUTCOMES
from stemmatics.facts.paths import THREE_CELLS
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
    PERMUTED_ARM: "the change of state, its axes permuted and signed at random, mean of the draws",
}
_SUPPORTS = {
    THREE_CELLS: "chosen by three cells",
    FIRST: "first disagreement",
    MANIFEST: "given",
}
_OUTCOMES = {
    "event": "event",
    "agreed": "none",
    "ended": "both end",
    "too_long": "too long",
    "empty": "empty",
    "duplicate": "duplicate",
}


def tables(results: Results) -> list[Table]:
    """Those that have rows."""
    return with_rows(
        _effects(results),
        _fit(results),
        _beside(results),
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


def crossed_pairs(results: Results) -> list[Estimate]:
    """The boundary of each pair that was crossed."""
    return results.all("depth.boundary")


def main_interaction(results: Results, subject: Mapping[str, str]) -> Estimate | None:
    """The interaction of a pair at its main events; None where the halves do not fit."""
    interactions = results.all("depth.interaction", **subject, readout=DESCENDANT, arm=MAIN_ARM)
    return next((each for each in interactions if each.subject["support"] != FIRST), None)


def main_estimates(results: Results, interaction: Estimate) -> Mapping[str, Estimate]:
    """Effects and share that were made together with an interaction, by name."""
    names = (*EFFECTS, PORTABLE_SHARE)
    return {name: results.only(f"depth.{name}", **interaction.subject) for name in names}


def _pair_cells(result: Estimate) -> tuple[str, str]:
    return pair_name(result), result.subject["events"]


def _effects(results: Results) -> Table:
    rows = []
    for boundary in crossed_pairs(results):
        subject = subject_of(boundary)
        interaction = main_interaction(results, subject)
        main = {} if interaction is None else main_estimates(results, interaction)
        p_value = None if interaction is None else results.find("depth.interaction_p", **interaction.subject)
        rows.append(
            [
                *_pair_cells(boundary),
                claim(boundary, COUNT),
                claim_if(results.category("depth.states", **subject)),
                claim_if(results.category("depth.fit", **subject)),
                *(claim_if(main.get(name), LOGITS) for name in EFFECTS),
                claim_if(results.category("depth.sign", **subject)),
                claim_if(main.get(PORTABLE_SHARE), SHARE),
                claim_if(p_value, P_VALUE),
                claim_if(interaction, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", "boundary", "states", "halves", "after base", "after descendant"]
    columns += ["interaction", "sign", "portable share", "p", "prompts"]
    note = (
        "In logits, the second token minus the first, read by the descendant's final norm and head. "
        "After base, after descendant: effect of the late layers on that model's earlier state; interaction "
        "is the second minus the first. Boundary: the first late layer. States: whether the two earlier "
        "states differ. Halves: whether the hybrids can read the base's own path; if they do not fit, no "
        "interaction is given. Sign: positive if the interval lies above zero, negative if it and that of "
        "first disagreements lie below. p: sign-flip by prompt; n/a for a mean that is not above zero, since "
        "events chosen by three cells lean below zero where the cells carry noise of their own."
    )
    title = "Effect of the late layers on either earlier state"
    return table("depth/effects", title, columns, rows, note)


def _fit(results: Results) -> Table:
    rows = []
    for fit in results.categories("depth.fit"):
        subject = subject_of(fit)
        cells = (results.find("depth.path_loss", **subject, cell=cell) for cell in CELLS)
        excesses = (
            results.find(f"depth.{prefix}excess", **subject, cell=cell)
            for prefix in ("", "floor.")
            for cell in CELLS[1:3]
        )
        rows.append(
            [
                pair_name(fit),
                fit.subject["events"],
                *(claim_if(loss, SHARE) for loss in cells),
                *(claim_if(excess, LOGITS) for excess in excesses),
                claim(fit),
                claim(fit, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", *(cell.replace("_", ", ") for cell in CELLS), "base, desc: more"]
    columns += ["desc, base: more", "floor, base, desc: more", "floor, desc, base: more", "halves", "prompts"]
    note = (
        "Loss of the base's own greedy path in nats/token: earlier state first, late layers with their own "
        "norm and head second. More: than the worse of the two natural cells. The halves do not fit if a "
        "hybrid is worse than both natural cells by more than a nat a token, with the whole interval."
    )
    return table("depth/fit", "Do the halves fit?", columns, rows, note)


def _beside(results: Results) -> Table:
    rows = []
    for boundary in crossed_pairs(results):
        subject = subject_of(boundary)
        supports: list[tuple[str, Estimate | None, Estimate | None, Estimate | None]] = []
        for support in (THREE_CELLS, FIRST):
            words = _SUPPORTS[support]
            where = {**subject, "support": support}
            interaction = results.find("depth.interaction", **where, readout=DESCENDANT)
            supports.append((words, interaction, None, None))
            if support == THREE_CELLS:
                supports.append(
                    (f"{words}, at one temperature", results.find("depth.rescaled", **subject), None, None)
                )
            floor = [
                results.find(f"depth.floor.{name}", **where) for name in ("interaction", "lowest", "highest")
            ]
            supports.append((f"floor, {words}", floor[0], floor[1], floor[2]))
        if not any(
            interaction.subject.get("support") == FIRST for _, interaction, _, _ in supports if interaction
        ):
            continue
        rows += [
            [
                *_pair_cells(boundary),
                words,
                claim(interaction, LOGITS),
                claim(interaction, LOGITS, "lo"),
                claim(interaction, LOGITS, "hi"),
                claim_if(lowest, LOGITS),
                claim_if(highest, LOGITS),
                claim(interaction, WHOLE, "n"),
            ]
            for words, interaction, lowest, highest in supports
            if interaction is not None
        ]
    columns = ["pair", "events", "selection", "interaction", "low", "high", "lowest draw", "highest draw"]
    note = (
        "The interaction by how its events were selected. First disagreements are selected by the two "
        "natural cells and favour a positive interaction; they are a description, as is the floor. At one "
        "temperature: the descendant's own cell rescaled by one fitted factor; below zero that control says "
        "nothing."
    )
    return table("depth/beside", "The interaction beside other selections", [*columns, "prompts"], rows, note)


def _readouts(results: Results) -> Table:
    rows = []
    for interaction in results.all("depth.interaction", arm=MAIN_ARM):
        readout = interaction.subject["readout"]
        if readout == DESCENDANT or interaction.subject["support"] == FIRST:
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
                claim_if(
                    results.find("depth.control.lowest", **subject_of(interaction), control=control), LOGITS
                ),
                claim_if(
                    results.find("depth.control.highest", **subject_of(interaction), control=control), LOGITS
                ),
                claim(interaction, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", "control", "interaction", "share", "lowest draw", "highest draw", "prompts"]
    note = (
        "Other positions, as a share of the interaction at first disagreements, and other states in place of "
        "the descendant's, as a share of that at the main events."
    )
    return table("depth/controls", "Controls", columns, rows, note)


def _floor(results: Results) -> Table:
    rows = []
    for loss in results.all("depth.floor.loss"):
        of_pair = subject_of(loss)
        subject = {**of_pair, "support": THREE_CELLS}
        interaction = results.find("depth.floor.interaction", **subject)
        rows.append(
            [
                *_pair_cells(loss),
                claim(loss, SIGNED),
                claim_if(results.find("depth.floor.scale", **of_pair), SHARE),
                claim_if(results.find("depth.floor.effect_after_descendant", **subject), LOGITS),
                claim_if(interaction, LOGITS),
                claim_if(results.find(f"depth.floor.{PORTABLE_SHARE}", **subject), SHARE),
                claim_if(interaction, WHOLE, "n"),
            ]
        )
    columns = ["pair", "events", "loss increase", "noise", "after damaged copy", "interaction"]
    note = (
        "The base crossed with copies of itself, damaged by noise on every matrix until they lost as much as "
        "the descendant; events chosen by three cells, mean of the draws. Loss increase in nats/byte; noise "
        "of the first draw in standard deviations of each matrix. Not available if the descendant lost "
        "nothing."
    )
    title = "Floor: damage of the same size"
    return table("depth/floor", title, [*columns, "portable share", "prompts"], rows, note)


def _decisions(results: Results) -> Table:
    rows = []
    for changed in results.all("depth.top_1_changed", earlier_state="descendant"):
        subject, support = subject_of(changed), changed.subject["support"]
        after_base = results.find("depth.top_1_changed", **subject, earlier_state="base", support=support)
        if support == THREE_CELLS:
            rows.append(
                [
                    *_pair_cells(changed),
                    _SUPPORTS[support],
                    claim_if(after_base, SHARE),
                    claim(changed, SHARE),
                ]
                + [None] * 3
            )
            continue
        rows.append(
            [
                *_pair_cells(changed),
                _SUPPORTS[support],
                claim_if(after_base, SHARE),
                claim(changed, SHARE),
                claim_if(results.find("depth.forced.valid", **subject, after="base"), SHARE),
                claim_if(results.find("depth.forced.valid", **subject, after="descendant"), SHARE),
                claim_if(results.find("depth.forced", **subject), LOGITS),
            ]
        )
    columns = [
        "pair",
        "events",
        "selection",
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
        subject, support = subject_of(events), events.subject["support"]
        rows.append(
            [
                *_pair_cells(events),
                _SUPPORTS[support],
                claim(events, WHOLE, "n"),
                *(
                    claim_if(
                        results.find("depth.prompts", **subject, outcome=outcome, support=support), COUNT
                    )
                    for outcome in OUTCOMES
                    if outcome in _OUTCOMES
                ),
                claim_if(results.find("depth.distance", **subject), SHARE),
                claim_if(results.find("depth.identity_error", **subject), "{:.0e}"),
            ]
        )
    outcomes = [_OUTCOMES[outcome] for outcome in OUTCOMES if outcome in _OUTCOMES]
    columns = ["pair", "events", "selection", "prompts", *outcomes, "distance", "identity error"]
    note = (
        "Event: the tokens differ. "
        "Distance of the two earlier states at the main events, as a share of the base's length. Identity "
        "error: difference of a model crossed with itself from itself, as a share of its largest value."
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

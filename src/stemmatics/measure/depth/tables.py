"""Tables of depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stemmatics.core.content import Table
from stemmatics.core.results import Claim, Estimate
from stemmatics.measure.depth.estimate import NAME, flat

LOGITS = "{:+.3f}"
SHARE = "{:.3f}"
COUNT = "{:.0f}"
_CONTROLS = {
    "later": "a random later disagreement",
    "earlier": "the same two tokens at an earlier prefix",
    "permuted": "the change of state, its axes permuted and signed at random",
}
ABOUT = ("pair", "events")
Estimates = Mapping[str, Estimate]


def tables(estimates: Estimates, mains: Sequence[Estimate]) -> list[Table]:
    """Those that have rows."""
    found = [
        _main_table(estimates, mains),
        _readout_table(estimates),
        _control_table(estimates),
        _floor_table(estimates),
        _decision_table(estimates),
        _event_table(estimates),
        _contrast_table(estimates),
    ]
    return [table for table in found if table.rows]


def of(estimates: Estimates, quantity: str, **subject: str) -> Iterator[Estimate]:
    """Estimates of one quantity whose subject has these values."""
    return (
        one
        for one in estimates.values()
        if one.quantity == f"{NAME}.{quantity}" and flat(one.subject, **subject)
    )


def like(estimates: Estimates, one: Estimate, quantity: str, **more: str) -> Estimate | None:
    """The estimate of another quantity about the same pair and events."""
    pair = {name: one.subject[name] for name in ("base", "descendant", "events")}
    return next(of(estimates, quantity, **pair, **more), None)


def pair_name(one: Estimate) -> str:
    """Base and descendant in one cell."""
    return f"{one.subject['base']} → {one.subject['descendant']}"


def about(one: Estimate) -> tuple[str, str]:
    """What a row is about."""
    return pair_name(one), one.subject["events"]


def cell(one: Estimate | None, form: str = LOGITS, field: str = "value") -> Claim | None:
    """A table's cell; empty where there is no such estimate."""
    return None if one is None else Claim(one.id, field, form)


def main_of(estimates: Estimates, one: Estimate, quantity: str) -> Estimate | None:
    """Of the main arm under the main readout."""
    return like(estimates, one, quantity, readout="descendant", arm="main")


def _main_table(estimates: Estimates, mains: Sequence[Estimate]) -> Table:
    columns = [
        *ABOUT,
        "cut at",
        "after base",
        "after descendant",
        "interaction",
        "portable share",
        "p",
        "prompts",
    ]
    rows = [
        [
            *about(one),
            cell(like(estimates, one, "boundary"), COUNT),
            cell(main_of(estimates, one, "effect_after_base")),
            cell(main_of(estimates, one, "effect_after_descendant")),
            Claim(one.id, "value", LOGITS),
            cell(main_of(estimates, one, "portable_share"), SHARE),
            cell(main_of(estimates, one, "interaction_p"), "{:.4f}"),
            Claim(one.id, "n", "{}"),
        ]
        for one in mains
    ]
    note = (
        "In logits, the descendant's token less the base's, read by the descendant's final norm and head. "
        "An effect is what the late layers change; interaction is the second effect less the first. p: "
        "sign-flip by prompt."
    )
    return Table("effects", "What the late layers do on either earlier state", columns, rows, note=note)


def _readout_table(estimates: Estimates) -> Table:
    rows = [
        [
            *about(one),
            one.subject["readout"],
            cell(like(estimates, one, "effect_after_base", readout=one.subject["readout"])),
            cell(like(estimates, one, "effect_after_descendant", readout=one.subject["readout"])),
            Claim(one.id, "value", LOGITS),
        ]
        for one in of(estimates, "interaction", arm="main")
        if one.subject["readout"] != "descendant"
    ]
    columns = [*ABOUT, "readout", "after base", "after descendant", "interaction"]
    note = (
        "The same cells read by the base's norm and head, and by those of the model that owns the late "
        "layers."
    )
    return Table("readouts", "The same under other readouts", columns, rows, note=note)


def _control_table(estimates: Estimates) -> Table:
    rows = [
        [
            *about(one),
            _CONTROLS.get(one.subject["control"], one.subject["control"]),
            Claim(one.id, "value", LOGITS),
            cell(like(estimates, one, "control.share", control=one.subject["control"]), SHARE),
            Claim(one.id, "n", "{}"),
        ]
        for one in of(estimates, "control.interaction")
    ]
    columns = [*ABOUT, "control", "interaction", "of the main one", "prompts"]
    note = "Other positions, and other states in the descendant's place."
    return Table("controls", "Controls", columns, rows, note=note)


def _floor_table(estimates: Estimates) -> Table:
    rows = [
        [
            pair_name(one),
            cell(like(estimates, one, "floor.loss"), "{:+.4f}"),
            cell(like(estimates, one, "floor.scale"), "{:.3f}"),
            cell(like(estimates, one, "floor.effect_after_descendant")),
            Claim(one.id, "value", LOGITS),
            cell(like(estimates, one, "floor.portable_share"), SHARE),
            Claim(one.id, "n", "{}"),
        ]
        for one in of(estimates, "floor.interaction")
    ]
    columns = [
        "pair",
        "nats/byte lost",
        "noise",
        "after damage",
        "interaction",
        "portable share",
        "prompts",
    ]
    note = (
        "The base crossed with a copy of itself that noise on every matrix has cost what the descendant "
        "lost; noise in standard deviations of each matrix. Not available where the descendant lost nothing."
    )
    return Table("floor", "What damage of the same size would report", columns, rows, note=note)


def _decision_table(estimates: Estimates) -> Table:
    rows = [
        [
            *about(one),
            cell(like(estimates, one, "top_1_changed", earlier_state="base"), SHARE),
            Claim(one.id, "value", SHARE),
            cell(like(estimates, one, "forced.valid", after="base"), SHARE),
            cell(like(estimates, one, "forced.valid", after="descendant"), SHARE),
            cell(like(estimates, one, "forced"), "{:+.3f}"),
        ]
        for one in of(estimates, "top_1_changed", earlier_state="descendant")
    ]
    columns = [
        *ABOUT,
        "changed after base",
        "changed after descendant",
        "valid, base's token",
        "valid, descendant's",
        "difference",
    ]
    note = (
        "Share of events whose most probable token changes when the late layers are swapped; share of "
        "replies that are valid when either token is forced and the untouched descendant goes on."
    )
    return Table("decisions", "Decisions", columns, rows, note=note)


def _event_table(estimates: Estimates) -> Table:
    rows = [
        [
            *about(one),
            Claim(one.id, "n", "{}"),
            Claim(one.id, "value", COUNT),
            cell(like(estimates, one, "prompts", outcome="agreed"), COUNT),
            cell(like(estimates, one, "prompts", outcome="ended"), COUNT),
            cell(like(estimates, one, "prompts", outcome="too_long"), COUNT),
            cell(like(estimates, one, "prompts", outcome="empty"), COUNT),
            cell(like(estimates, one, "prompts", outcome="duplicate"), COUNT),
            cell(like(estimates, one, "distance"), SHARE),
            cell(like(estimates, one, "identity_error"), "{:.0e}"),
        ]
        for one in of(estimates, "prompts", outcome="event")
    ]
    columns = [
        *ABOUT,
        "asked",
        "part",
        "agree",
        "end alike",
        "too long",
        "empty",
        "asked before",
        "distance",
        "identity",
    ]
    note = (
        "Distance: of the two earlier states at the event, over the length of the base's. Identity: how far "
        "a model that is crossed with itself is from itself, a share of its largest value."
    )
    return Table("events", "Where the pairs part", columns, rows, note=note)


def _contrast_table(estimates: Estimates) -> Table:
    rows = []
    for one in of(estimates, "contrast.by_seed"):
        arms = [
            next(of(estimates, "contrast.interaction", arm=arm, seed=one.subject["seed"]))
            for arm in ("first", "second")
        ]
        rows.append(
            [f"seed {one.subject['seed']}", *(cell(arm) for arm in arms), Claim(one.id, "value", LOGITS)]
        )
    rows += [
        [f"all, noise of {one.subject['noise']}", None, None, Claim(one.id, "value", LOGITS)]
        for one in of(estimates, "contrast.difference")
    ]
    columns = ["seed", "first arm", "second arm", "second less first"]
    return Table("contrast", "The controlled experiment: interaction by arm", columns, rows)

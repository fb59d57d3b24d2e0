"""Tables and the figure of the measure ``prior``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from stemmatics.core.content import Chart, Table
from stemmatics.core.results import Claim, Estimate

Estimates = Mapping[str, Estimate]
SHARE = "{:+.3f}"
_LOSS = "{:+.4f}"
_PLAIN = "{:.4f}"
ABOVE = {1.0: "above damage", 0.0: "not above damage", -1.0: "below damage"}
# Arms in the order of the page: what is the headline first, references and ceilings last.
_ORDER = (
    "joint",
    "temperature",
    "bias",
    "ipf_top",
    "ipf_full",
    "affine_top",
    "affine_full",
    "cf",
    "in_sample",
)


def of(estimates: Estimates, quantity: str, **subject: str) -> list[Estimate]:
    """Estimates of a quantity whose subject has the given values."""
    return [
        one
        for one in estimates.values()
        if one.quantity == quantity and all(one.subject.get(key) == value for key, value in subject.items())
    ]


def first(estimates: Estimates, quantity: str, **subject: str) -> Estimate | None:
    """The only one of them, if there is one."""
    found = of(estimates, quantity, **subject)
    return found[0] if found else None


def claim(one: Estimate | None, form: str = SHARE) -> Claim | None:
    """A cell that prints a value; None prints n/a."""
    return None if one is None else Claim(one.id, "value", form)


def label_of(arm: str, reading: str, columns: int) -> str:
    """An arm as the page calls it: ``joint_4096, selected``."""
    named = f"{arm.removesuffix('_top')}_top{columns}" if arm.endswith("_top") else arm
    named = f"{arm}_{columns}" if arm in {"bias", "joint"} else named
    return f"{named}, {reading}" if reading else named


def arms_of(estimates: Estimates, pair: Mapping[str, str]) -> list[tuple[str, str]]:
    """Arms and readings of a pair, the selected reading first."""
    found = [(one.subject["arm"], one.subject["reading"]) for one in of(estimates, "prior.sym", **pair)]

    def place(arm: tuple[str, str]) -> tuple[int, int]:
        rank = next((i for i, name in enumerate(_ORDER) if arm[0].startswith(name)), len(_ORDER))
        return rank, int(arm[1] == "optimum")

    return sorted(found, key=place)


def summary_table(corpus: str, estimates: Estimates, pairs: Sequence[Mapping[str, str]]) -> Table:
    """One row a pair: the loss increase and the selected shares, fits redrawn, with the label."""
    rows: list[list[Any]] = []
    for pair in pairs:
        cells = []
        for arm in ("joint", "temperature", "bias"):
            name = {**pair, "arm": arm, "reading": "selected"}
            cells.append(
                claim(first(estimates, "prior.sym_redrawn", **name) or first(estimates, "prior.sym", **name))
            )
        verdict = first(estimates, "prior.above_floor", **pair, arm="joint", reading="selected")
        delta = first(estimates, "prior.delta", **pair)
        rows.append([pair["base"], pair["descendant"], claim(delta, _LOSS), *cells, said_of(verdict)])
    return Table(
        f"summary-{corpus}",
        f"What a correction takes back on {corpus}",
        ["base", "descendant", "nats/token", "joint", "temperature", "bias", "joint share is"],
        rows,
        note="The loss increase on the shared support, and the part of it (as a share) that each selected "
        "correction takes back from the descendant beyond what its like takes back from the base.",
    )


def said_of(verdict: Estimate | None) -> str:
    """A label in words."""
    return "n/a" if verdict is None or math.isnan(verdict.value) else ABOVE[verdict.value]


def arms_table(corpus: str, estimates: Estimates, pair: Mapping[str, str], columns: int) -> Table:
    """Every arm of a pair, each share beside its floor."""
    rows: list[list[Any]] = []
    for arm, reading in arms_of(estimates, pair):
        name = {**pair, "arm": arm, "reading": reading}
        sym, redrawn = (first(estimates, f"prior.{kind}", **name) for kind in ("sym", "sym_redrawn"))
        rows.append(
            [
                label_of(arm, reading, columns),
                claim(first(estimates, "prior.card", **name)),
                claim(first(estimates, "prior.floor.card", **name, kind="centred")),
                claim(sym),
                claim(redrawn),
                claim(first(estimates, "prior.floor.sym", **name, kind="centred")),
                claim(first(estimates, "prior.floor.sym", **name, kind="raw")),
                said_of(first(estimates, "prior.above_floor", **name)),
                claim(first(estimates, "prior.fit.temperature", **name, side="base"), "{:.3f}"),
                claim(first(estimates, "prior.fit.temperature", **name, side="descendant"), "{:.3f}"),
                _flags(redrawn or sym),
            ]
        )
    return Table(
        f"arms-{pair['descendant']}-{corpus}",
        f"Corrections of {pair['descendant']} on {corpus}",
        [
            "arm",
            "S_card",
            "floor of S_card",
            "S_sym",
            "S_sym, fits redrawn",
            "floor of S_sym",
            "raw floor",
            "S_sym is",
            "T of base",
            "T of descendant",
            "flags",
        ],
        rows,
        note="Shares of the loss increase. S_card is what the descendant's own correction takes back; S_sym "
        "takes off what the base's takes back. The floor is what the same fits report on the base with "
        "noise on its head (centred, and raw) that costs the same. For the in-sample arms S_card is a "
        "ceiling, and S_sym, a difference of two ceilings, bounds nothing.",
    )


def _flags(share: Estimate | None) -> str:
    """What is odd about a share; what its interval's size follows from is said by the table of losses."""
    notes = [] if share is None else share.note.split("; ")
    return "; ".join(part for part in notes if "coverage" not in part)


def parts_table(corpus: str, estimates: Estimates, pairs: Sequence[Mapping[str, str]]) -> Table:
    """The loss increase in three parts."""
    rows = [
        [
            pair["descendant"],
            *(
                claim(first(estimates, "prior.part", **pair, part=part))
                for part in ("temperature", "bias", "rest")
            ),
        ]
        for pair in pairs
        if of(estimates, "prior.part", **pair)
    ]
    return Table(
        f"parts-{corpus}",
        f"The loss increase on {corpus} in three parts",
        ["descendant", "temperature", "bias", "what depends on context"],
        rows,
        note="Shares that add up to one: the joint share split between temperature and bias (Shapley), and "
        "what the joint correction leaves.",
    )


def support_table(corpus: str, estimates: Estimates, pairs: Sequence[Mapping[str, str]]) -> Table:
    """The loss increase on all ids, split at the support; the mean-energy share; the noise."""
    rows: list[list[Any]] = []
    for pair in pairs:
        cells = [
            claim(first(estimates, f"prior.{name}", **pair), _LOSS)
            for name in ("delta", "excluded", "delta_full")
        ]
        rows.append(
            [pair["descendant"], *cells, claim(first(estimates, "prior.mean_energy", **pair), "{:.3f}")]
        )
    return Table(
        f"support-{corpus}",
        f"The support on {corpus}, and the mean of the base's final state",
        ["descendant", "nats/token", "by excluded tokens", "on all tokens", "mean-energy share"],
        rows,
        note="The increase on all tokens is that on the shared support plus the change in what the excluded "
        "tokens take. Noise on the head acts as a bias as far as the final state is its mean.",
    )


def fits_table(corpus: str, estimates: Estimates, pair: Mapping[str, str], columns: int) -> Table:
    """What was fitted for either model, and how near to the optimum it is."""
    rows: list[list[Any]] = []
    for one in of(estimates, "prior.fit.fit_loss", **pair):
        name = {key: one.subject[key] for key in (*pair, "side", "arm", "reading")}
        forms = (
            ("fit_loss", "{:.5f}"),
            ("held_loss", "{:.5f}"),
            ("penalty", "{:.2g}"),
            ("gap", "{:.1e}"),
            ("gradient", "{:.1e}"),
        )
        rows.append(
            [
                pair[one.subject["side"]],
                label_of(one.subject["arm"], one.subject["reading"], columns),
                *(claim(first(estimates, f"prior.fit.{what}", **name), form) for what, form in forms),
            ]
        )
    return Table(
        f"fits-{pair['descendant']}-{corpus}",
        f"Fits for {pair['descendant']} on {corpus}",
        [
            "checkpoint",
            "arm",
            "loss on the fit part",
            "on the held-out part",
            "penalty",
            "gap",
            "gradient norm",
        ],
        rows,
        note="Nats a token. The gap is what a full Newton step still promises; the penalty is the one that "
        "the held-out part chose, n/a where no bias is fitted.",
    )


def checks_table(corpus: str, estimates: Estimates, pairs: Sequence[Mapping[str, str]]) -> Table:
    """One Newton step against full refits."""
    rows: list[list[Any]] = []
    for pair in pairs:
        for one in of(estimates, "prior.refit.rms", **pair):
            name = {**pair, "arm": one.subject["arm"]}
            sd, r = (first(estimates, f"prior.refit.{what}", **name) for what in ("sd", "r"))
            cells = [claim(one, _PLAIN), claim(sd, _PLAIN), claim(r, "{:.3f}"), Claim(one.id, "n", "{}")]
            rows.append([pair["descendant"], one.subject["arm"], *cells])
    return Table(
        f"refits-{corpus}",
        f"Redrawn fits on {corpus} against full refits",
        ["descendant", "arm", "rms difference", "sd of refits", "correlation", "refits"],
        rows,
        note="Of the share S_sym. One Newton step serves where the first number is small beside the second.",
    )


def chart(corpus: str, estimates: Estimates, pair: Mapping[str, str], columns: int) -> Chart | None:
    """S_sym by arm with its interval, the floor behind it, the temperatures beside it."""
    points = [
        point
        for arm, reading in arms_of(estimates, pair)
        if not arm.startswith("in_sample") and (point := _point(estimates, pair, arm, reading, columns))
    ]
    if not points:
        return None
    base = alt.Chart({"values": points}).encode(y=alt.Y("arm:N", title=None, sort=None))
    title = "share of the loss increase taken back (S_sym)"
    band = base.mark_bar(opacity=0.3, height=14, color="#7A7A7A").encode(
        x=alt.X("floor_lo:Q", title=title), x2="floor_hi:Q", tooltip=["floor_lo:Q", "floor_hi:Q"]
    )
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("lo:Q", title=title), x2="hi:Q")
    dots = base.mark_point(filled=True, size=55).encode(
        x=alt.X("value:Q", title=title), tooltip=["arm:N", "value:Q", "lo:Q", "hi:Q"]
    )
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    drawn = (zero + band + bars + dots).properties(height=alt.Step(22))
    return Chart(
        f"shares-{pair['descendant']}-{corpus}",
        f"What each correction takes back from {pair['descendant']} on {corpus}",
        "Points are shares with their intervals; the grey band is what the same fit reports on random damage "
        "of the same size, over its seeds. T: the temperatures that were fitted for base and descendant.",
        dict(drawn.to_dict()),
    )


def _point(
    estimates: Estimates, pair: Mapping[str, str], arm: str, reading: str, columns: int
) -> dict[str, Any] | None:
    name = {**pair, "arm": arm, "reading": reading}
    sym = first(estimates, "prior.sym_redrawn", **name) or first(estimates, "prior.sym", **name)
    if sym is None or math.isnan(sym.value):
        return None
    floor = first(estimates, "prior.floor.sym", **name, kind="centred")
    temperatures = [
        first(estimates, "prior.fit.temperature", **name, side=side) for side in ("base", "descendant")
    ]
    known = [f"{one.value:.2f}" for one in temperatures if one is not None]
    said = f" (T {', '.join(known)})" if known and known != ["1.00"] * len(known) else ""
    return {
        "arm": label_of(arm, reading, columns) + said,
        "value": sym.value,
        "lo": None if math.isnan(sym.lo) else sym.lo,
        "hi": None if math.isnan(sym.hi) else sym.hi,
        "floor_lo": None if floor is None else floor.lo,
        "floor_hi": None if floor is None else floor.hi,
    }

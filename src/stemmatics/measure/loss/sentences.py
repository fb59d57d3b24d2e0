"""What the loss measure says: sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from stemmatics.core.content import Chart, Table
from stemmatics.core.results import Claim, Estimate, Sentence
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings

ALL = "all"
_SIGNED = "{:+.4f}"
_PLAIN = "{:.4f}"
_COUNT = "{:.0f}"
Estimates = Mapping[str, Estimate]


def findings(pinned: Pinned, corpora: Sequence[str], estimates: Estimates) -> Findings:
    """One set of sentences, tables and charts a corpus."""
    sentences: list[Sentence] = []
    tables: list[Table] = []
    charts: list[Chart] = []
    failures: list[str] = []
    for corpus in corpora:
        mine = {name: one for name, one in estimates.items() if one.subject.get("corpus") == corpus}
        deltas = _of(mine, "loss.delta.byte", register=ALL)
        sentences += _summary(corpus, mine, deltas)
        sentences += [_pair_sentence(delta) for delta in deltas]
        tables += [_summary_table(corpus, deltas), _delta_table(corpus, mine)]
        tables += [_native_table(pinned, corpus, mine)]
        tables += [_where_table(corpus, mine), _movers_table(corpus, mine), _control_table(corpus, mine)]
        charts += _charts(corpus, mine)
        failures += [f"{_name(delta)}: {delta.note}" for delta in deltas if delta.value != delta.value]
    return Findings(sentences, [table for table in tables if table.rows], charts, failures)


def _of(estimates: Estimates, quantity: str, **subject: str) -> list[Estimate]:
    return [
        one
        for one in estimates.values()
        if one.quantity == quantity and all(one.subject.get(key) == value for key, value in subject.items())
    ]


def _name(delta: Estimate) -> str:
    return f"{delta.subject['base']} → {delta.subject['descendant']}"


def _claims(one: Estimate, form: str) -> dict[str, Claim]:
    return {field: Claim(one.id, field, form) for field in ("value", "lo", "hi")}


def _summary(corpus: str, estimates: Estimates, deltas: Sequence[Estimate]) -> list[Sentence]:
    counts = {one.subject["verdict"]: Claim(one.id, "value", _COUNT) for one in _of(estimates, "loss.count")}
    known = [delta for delta in deltas if delta.value == delta.value]
    if not known or not counts:
        return []
    worst = max(known, key=lambda delta: delta.value)
    total = Claim(_of(estimates, "loss.count")[0].id, "n", "{}")
    return [
        Sentence(
            "On {corpus}, of {total} descendants {lost} lost against their base, {improved} improved and "
            "{undecided} can't be told from it.",
            {
                "corpus": corpus,
                "total": total,
                **{name: counts[name] for name in ("lost", "improved", "undecided")},
            },
        ),
        Sentence(
            ("The largest loss is" if worst.value > 0 else "The smallest gain is")
            + " {descendant}: {value} nats/byte [{lo}, {hi}] against {base}.",
            {
                **_claims(worst, _SIGNED),
                "descendant": worst.subject["descendant"],
                "base": worst.subject["base"],
            },
        ),
    ]


def _pair_sentence(delta: Estimate) -> Sentence:
    places: dict[str, Claim | str] = {
        **_claims(delta, _SIGNED),
        "base": delta.subject["base"],
        "descendant": delta.subject["descendant"],
        "corpus": delta.subject["corpus"],
        "n": Claim(delta.id, "n", "{}"),
        "least": Claim(delta.id, "smallest_effect", _PLAIN),
        "unit": delta.unit,
    }
    if delta.lo > 0:
        text = "{descendant} lost {value} nats/byte [{lo}, {hi}] against {base} on {corpus}"
    elif delta.hi < 0:
        text = "{descendant} gained on {base}: its loss on {corpus} changed by {value} nats/byte [{lo}, {hi}]"
    elif delta.value == delta.value:
        text = (
            "{descendant} can't be told from {base} on {corpus}: {value} nats/byte [{lo}, {hi}]; "
            "a change of {least} would have been seen"
        )
    else:
        text = "{descendant} could not be compared with {base} on {corpus}: the difference is {value}"
        return Sentence(text + ".", places, topic="loss")
    return Sentence(text + " (n = {n}, by {unit}).", places, topic="loss")


def _native_table(pinned: Pinned, corpus: str, estimates: Estimates) -> Table:
    rows = []
    for name in pinned.stemma.names:
        for one in _of(estimates, "loss.native.byte", checkpoint=name):
            register = one.subject["register"]
            token = _of(estimates, "loss.native.token", checkpoint=name, register=register)[0]
            rows.append(
                [
                    name,
                    register,
                    Claim(one.id, "value", _PLAIN),
                    Claim(token.id, "value", _PLAIN),
                    Claim(one.id, "n", "{}"),
                ]
            )
    columns = ["checkpoint", "register", "nats/byte", "nats/token", "n"]
    return Table(f"native-{corpus}", f"Native loss on {corpus}", columns, rows)


def _summary_table(corpus: str, deltas: Sequence[Estimate]) -> Table:
    rows = [
        [
            one.subject["base"],
            one.subject["descendant"],
            Claim(one.id, "value", _SIGNED),
            Claim(one.id, "smallest_effect", _PLAIN),
            Claim(one.id, "n", "{}"),
        ]
        for one in deltas
    ]
    return Table(
        f"summary-{corpus}",
        f"Descendant less base on {corpus}",
        ["base", "descendant", "nats/byte", "least seen", "n"],
        rows,
        note="Above zero the descendant lost. Intervals are paired, over documents, near-duplicates "
        "together; the least seen is the effect found in four of five repeats.",
    )


def _delta_table(corpus: str, estimates: Estimates) -> Table:
    rows = [
        [
            one.subject["base"],
            one.subject["descendant"],
            one.subject["register"],
            Claim(one.id, "value", _SIGNED),
            Claim(one.id, "smallest_effect", _PLAIN),
            Claim(one.id, "n", "{}"),
        ]
        for one in _of(estimates, "loss.delta.byte")
        if one.subject["register"] != ALL
    ]
    columns = ["base", "descendant", "register", "nats/byte", "least seen", "n"]
    return Table(f"delta-{corpus}", f"Descendant less base on {corpus}, by register", columns, rows)


def _where_table(corpus: str, estimates: Estimates) -> Table:
    rows = [
        [
            one.subject["base"],
            one.subject["descendant"],
            one.subject["axis"].replace("_", " "),
            one.subject["bin"].replace("_", " "),
            Claim(one.id, "value", _SIGNED),
        ]
        for one in _of(estimates, "loss.where")
    ]
    columns = ["base", "descendant", "axis", "bin", "nats/byte"]
    return Table(
        f"where-{corpus}",
        f"Where the loss on {corpus} went",
        columns,
        rows,
        note="What each bin adds to the difference; on every axis the bins add up to it.",
    )


def _movers_table(corpus: str, estimates: Estimates) -> Table:
    rows = [
        [
            one.subject["base"],
            one.subject["descendant"],
            one.subject["direction"],
            one.subject["document"],
            one.subject["doc_id"],
            one.subject["register"],
            Claim(one.id, "value", _SIGNED),
        ]
        for one in _of(estimates, "loss.mover")
    ]
    columns = ["base", "descendant", "direction", "document", "id", "register", "nats/byte"]
    return Table(
        f"movers-{corpus}",
        f"Documents of {corpus} that moved most",
        columns,
        rows,
        note="The text is not stored; `stemma show RUN movers --text FILE` joins it back.",
    )


def _control_table(corpus: str, estimates: Estimates) -> Table:
    rows = [
        [one.subject["checkpoint"], Claim(one.id, "value", "{:.2e}"), Claim(one.id, "n", "{}")]
        for one in _of(estimates, "loss.control")
    ]
    return Table(
        f"control-{corpus}",
        f"Control of the scoring on {corpus}",
        ["checkpoint", "nats/byte", "n"],
        rows,
        note="Our sums against a plain loop over the model's own logits, absolute differences over bytes.",
    )


def _charts(corpus: str, estimates: Estimates) -> list[Chart]:
    deltas = _points(_of(estimates, "loss.delta.byte"))
    where = _points(_of(estimates, "loss.where", axis="token_class"))
    found = []
    if deltas:
        found.append(
            Chart(
                f"delta-{corpus}",
                f"What each descendant lost on {corpus}, by register",
                "Points are paired differences in nats/byte with their intervals; right of zero the "
                "descendant lost. Registers can be picked in the legend.",
                _interval_chart(deltas, "register"),
            )
        )
    if where:
        found.append(
            Chart(
                f"where-{corpus}",
                f"On which tokens the loss on {corpus} went",
                "Each class of token adds its part to the difference in nats/byte.",
                _bar_chart(where),
            )
        )
    return found


def _points(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    return [
        {
            "descendant": one.subject["descendant"],
            "base": one.subject["base"],
            "register": one.subject.get("register", ""),
            "bin": one.subject.get("bin", "").replace("_", " "),
            "value": one.value,
            "lo": one.lo if one.lo == one.lo else None,
            "hi": one.hi if one.hi == one.hi else None,
        }
        for one in estimates
        if one.value == one.value
    ]


def _interval_chart(points: list[dict[str, Any]], colour: str) -> dict[str, Any]:
    pick = alt.selection_point(fields=[colour], bind="legend")
    base = alt.Chart({"values": points}).encode(
        y=alt.Y("descendant:N", title=None, sort=None),
        yOffset=alt.YOffset(f"{colour}:N"),
        color=alt.Color(f"{colour}:N", title=colour),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.1)),
        tooltip=["base:N", "descendant:N", f"{colour}:N", "value:Q", "lo:Q", "hi:Q"],
    )
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("lo:Q", title="nats/byte, descendant less base"), x2="hi:Q"
    )
    dots = base.mark_point(filled=True, size=45).encode(
        x=alt.X("value:Q", title="nats/byte, descendant less base")
    )
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    chart = (zero + bars + dots).add_params(pick).properties(height=alt.Step(11))
    return dict(chart.to_dict())


def _bar_chart(points: list[dict[str, Any]]) -> dict[str, Any]:
    chart = (
        alt.Chart({"values": points})
        .mark_bar()
        .encode(
            y=alt.Y("descendant:N", title=None, sort=None),
            x=alt.X("value:Q", title="nats/byte added to the difference"),
            color=alt.Color("bin:N", title="token class"),
            tooltip=["base:N", "descendant:N", "bin:N", "value:Q", "lo:Q", "hi:Q"],
        )
    )
    return dict(chart.to_dict())

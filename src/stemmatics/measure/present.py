"""What every measure needs to speak: results from numbers, claims in sentences, tables, forest plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stemmatics.core.content import Table
from stemmatics.core.facts import Fact, Tag
from stemmatics.core.results import Category, Claim, Estimate, Refusal, Results
from stemmatics.math.intervals import Interval

SIGNED, PLAIN, SHARE, COUNT = "{:+.4f}", "{:.4f}", "{:.3f}", "{:.0f}"
WHOLE = "{}"
Claims = dict[str, Claim | str]
"""The values of a sentence by name."""
_NAMED_BY_THE_USER = frozenset({"base", "descendant", "checkpoint", "family", "corpus", "register"})


@dataclass(frozen=True)
class ResultBuilder:
    """Builds results of one measure that share a subject and the facts behind them.

    ``quantity`` is given without the measure's name in front. ``n`` and ``unit`` are those of plain
    numbers; an interval brings its own.
    """

    measure: str
    subject: Mapping[str, str]
    facts: Sequence[Fact] = ()
    units: str = ""
    n: int = 0
    unit: str = "document"
    tag: Tag = "main"

    def about(self, **subject: str) -> ResultBuilder:
        """The same with more, or other, values in the subject."""
        return replace(self, subject={**self.subject, **subject})

    def with_facts(self, *facts: Fact) -> ResultBuilder:
        """The same with other facts."""
        return replace(self, facts=facts)

    def interval(
        self,
        quantity: str,
        interval: Interval,
        *,
        units: str | None = None,
        tag: Tag | None = None,
        note: str = "",
        **subject: str,
    ) -> Estimate:
        """A number with its interval."""
        return Estimate(
            measure=self.measure,
            quantity=f"{self.measure}.{quantity}",
            subject={**self.subject, **subject},
            value=interval.value,
            lo=interval.lo,
            hi=interval.hi,
            level=interval.level,
            method=interval.method,
            n=interval.n,
            unit=interval.unit,
            units=self.units if units is None else units,
            smallest_effect=interval.smallest_effect,
            tag=self.tag if tag is None else tag,
            facts=tuple(fact.key for fact in self.facts),
            note="; ".join(part for part in (interval.note, note) if part),
        )

    def number(
        self,
        quantity: str,
        value: float,
        *,
        n: int | None = None,
        unit: str | None = None,
        units: str | None = None,
        tag: Tag | None = None,
        note: str = "",
        **subject: str,
    ) -> Estimate:
        """A number without an interval: exact, or a count."""
        return Estimate(
            measure=self.measure,
            quantity=f"{self.measure}.{quantity}",
            subject={**self.subject, **subject},
            value=value,
            n=self.n if n is None else n,
            unit=self.unit if unit is None else unit,
            units=self.units if units is None else units,
            tag=self.tag if tag is None else tag,
            facts=tuple(fact.key for fact in self.facts),
            note=note,
        )

    def category(
        self,
        quantity: str,
        value: str,
        reason: str = "",
        *,
        n: int | None = None,
        unit: str | None = None,
        tag: Tag | None = None,
        **subject: str,
    ) -> Category:
        """A word from a fixed set, with what decided it."""
        return Category(
            measure=self.measure,
            quantity=f"{self.measure}.{quantity}",
            subject={**self.subject, **subject},
            value=value,
            reason=reason,
            n=self.n if n is None else n,
            unit=self.unit if unit is None else unit,
            tag=self.tag if tag is None else tag,
            facts=tuple(fact.key for fact in self.facts),
        )

    def refusal(
        self, quantity: str, reason: str, fix: str = "", *, tag: Tag | None = None, **subject: str
    ) -> Refusal:
        """A number that is not given, with the reason."""
        return Refusal(
            measure=self.measure,
            quantity=f"{self.measure}.{quantity}",
            subject={**self.subject, **subject},
            reason=reason,
            fix=fix,
            tag=self.tag if tag is None else tag,
            facts=tuple(fact.key for fact in self.facts),
        )


def estimate_from(
    interval: Interval,
    *,
    measure: str,
    quantity: str,
    subject: Mapping[str, str],
    units: str,
    facts: Sequence[Fact] = (),
    tag: Tag = "main",
    note: str = "",
) -> Estimate:
    """An interval with its full quantity (measure in front) and origin."""
    builder = ResultBuilder(measure, subject, facts, units, tag=tag)
    return builder.interval(quantity.removeprefix(f"{measure}."), interval, note=note)


def known(value: float) -> bool:
    """Whether a number is there."""
    return not math.isnan(value)


def claim(result: Estimate | Category, form: str = WHOLE, field: str = "value") -> Claim:
    """A printed number or word."""
    return Claim(result.id, field, form)


def claim_if(result: Estimate | Category | None, form: str = WHOLE, field: str = "value") -> Claim | None:
    """A table's cell: empty where there is no such result."""
    return None if result is None else Claim(result.id, field, form)


def interval_claims(
    estimate: Estimate, form: str = SIGNED, prefix: str = "", scale: float = 1.0
) -> dict[str, Claim]:
    """Claims named ``value``, ``lo`` and ``hi``; with a prefix ``PREFIX``, ``PREFIX_lo``, ``PREFIX_hi``."""
    low, high = ("lo", "hi") if scale >= 0 else ("hi", "lo")
    names = (prefix, f"{prefix}_lo", f"{prefix}_hi") if prefix else ("value", "lo", "hi")
    return {
        name: Claim(estimate.id, field, form, scale)
        for name, field in zip(names, ("value", low, high), strict=True)
    }


def pair_of(result: Estimate | Category | Refusal) -> dict[str, str]:
    """Base and descendant of a result, as a subject."""
    return {side: result.subject[side] for side in ("base", "descendant")}


def pair_name(result: Estimate | Category | Refusal) -> str:
    """Base and descendant in one cell."""
    return f"{result.subject['base']} → {result.subject['descendant']}"


def table(
    name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = ""
) -> Table:
    """A table of the report; ``name`` is ``measure/table`` or ``measure/table/corpus``."""
    return Table(name, title, columns, rows, note)


def with_rows(*tables: Table) -> list[Table]:
    """Those that have rows."""
    return [each for each in tables if each.rows]


def interval_points(estimates: Sequence[Estimate], *subject: str, **shown: str) -> list[dict[str, Any]]:
    """Known estimates as data of a chart: value, interval, and the named values of the subject.

    Our own words lose their underscores; names that the user gave stay as they are.
    """
    return [
        {
            **{name: _shown(name, estimate.subject.get(name, "")) for name in subject},
            **shown,
            "value": estimate.value,
            "lo": estimate.lo if known(estimate.lo) else None,
            "hi": estimate.hi if known(estimate.hi) else None,
        }
        for estimate in estimates
        if estimate.is_known
    ]


def _shown(name: str, value: str) -> str:
    return value if name in _NAMED_BY_THE_USER else value.replace("_", " ")


def forest(
    points: Sequence[Mapping[str, Any]], *, title: str, row: str, colour: str, tooltip: Sequence[str] = ()
) -> dict[str, Any]:
    """A forest plot: a row a name, a point and its interval a colour, a dashed line at zero."""
    import altair as alt

    pick = alt.selection_point(fields=[colour], bind="legend")
    base = alt.Chart({"values": list(points)}).encode(
        y=alt.Y(f"{row}:N", title=None, sort=None),
        yOffset=alt.YOffset(f"{colour}:N"),
        color=alt.Color(f"{colour}:N", title=colour),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.1)),
        tooltip=[*(f"{name}:N" for name in (*tooltip, row, colour)), "value:Q", "lo:Q", "hi:Q"],
    )
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("lo:Q", title=title), x2="hi:Q")
    dots = base.mark_point(filled=True, size=45).encode(x=alt.X("value:Q", title=title))
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    chart = (zero + bars + dots).add_params(pick).properties(height=alt.Step(11))
    return dict(chart.to_dict())


def cell(results: Results, quantity: str, form: str = WHOLE, /, **subject: str) -> Claim | None:
    """A table's cell for the first result of a quantity, of whatever kind; ``n/a`` where it was refused."""
    result = (
        results.find(quantity, **subject)
        or results.category(quantity, **subject)
        or results.refusal(quantity, **subject)
    )
    return None if result is None else Claim(result.id, "value", form)

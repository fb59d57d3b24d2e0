"""The first screen: a row a descendant, a column a question; for the page, the terminal and Markdown.

Axes: R rows (pairs in declared order), C columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from rich.table import Table as RichTable
from rich.text import Text

from stemmatics.core.content import CLEAR, NOT_MEASURED, UNCLEAR, Answer, Column, Content
from stemmatics.core.results import NOT_AVAILABLE, Claim, Estimate, Result
from stemmatics.report.printed import interval_of, plain_interval

MARKS = {CLEAR: "●", UNCLEAR: "○", NOT_MEASURED: "–"}
# pixels of the axis that the bars of a column share
BAR_WIDTH, BAR_HEIGHT = 56, 16
_PADDING = 5
# where one value is this many times the rest, it would flatten all others
_LONGEST_BAR = 4.0


@dataclass(frozen=True)
class Row:
    """A descendant with its answers in the order of the columns; None where a measure did not ask."""

    base: str
    descendant: str
    regime: str
    answers: Sequence[Answer | None]


def rows_of(content: Content) -> list[Row]:
    """A row a pair in declared order; pairs without any answer are left out."""
    regimes = {node.name: node.regime for node in content.nodes}
    answers = [
        {(answer.base, answer.descendant): answer for answer in column.answers} for column in content.columns
    ]
    pairs = content.pairs or list(dict.fromkeys(pair for by_pair in answers for pair in by_pair))
    rows = [
        Row(base, name, regimes.get(name, ""), [by_pair.get((base, name)) for by_pair in answers])
        for base, name in pairs
    ]
    return [row for row in rows if any(row.answers)]


def why_not(answer: Answer | None, column: Column) -> str:
    """Why there is no number, or what would give it."""
    if answer is not None and answer.reason:
        return answer.reason
    return column.how


def value_of(claim: Claim | None, results: Mapping[str, Result]) -> float:
    """The number of a claim in printed units; NaN where there is none."""
    if claim is None:
        return math.nan
    result = results[claim.result]
    value = getattr(result, claim.field) if isinstance(result, Estimate) else math.nan
    return float(value) * claim.scale


@dataclass(frozen=True)
class Bar:
    """A value on its column's axis, in pixels: bar from the null to the value, interval, damage band."""

    null: float
    value: float
    lo: float
    hi: float
    floor: tuple[float, float] | None
    is_cut: bool

    @property
    def left(self) -> float:
        """Where the bar begins."""
        return min(self.null, self.value)

    @property
    def length(self) -> float:
        """How long the bar is."""
        return abs(self.value - self.null)


def bars_of(column: Column, results: Mapping[str, Result]) -> dict[tuple[str, str], Bar]:
    """A bar for each answer of a column with a number, on one axis that holds the null and every value."""
    if not column.bars:
        return {}
    limits = {
        (answer.base, answer.descendant): _Limits.of(answer, answer.number, results)
        for answer in column.answers
        if answer.number is not None and not math.isnan(value_of(answer.number, results))
    }
    if not limits:
        return {}
    low, high = _axis(column.null, [point for each in limits.values() for point in each.points()])
    scale = (BAR_WIDTH - 2 * _PADDING) / (high - low)

    def at(value: float) -> float:
        return round(_PADDING + (min(max(value, low), high) - low) * scale, 1)

    return {
        key: Bar(
            null=at(column.null),
            value=at(each.value),
            lo=at(each.lo),
            hi=at(each.hi),
            floor=None if each.floor is None else (at(each.floor[0]), at(each.floor[1])),
            is_cut=not low <= each.value <= high,
        )
        for key, each in limits.items()
    }


@dataclass(frozen=True)
class _Limits:
    """What a bar shows, in printed units; without an interval its ends are the value."""

    value: float
    lo: float
    hi: float
    floor: tuple[float, float] | None

    @classmethod
    def of(cls, answer: Answer, number: Claim, results: Mapping[str, Result]) -> _Limits:
        value = value_of(number, results)
        lo, hi = (_end(number, field, results) for field in ("lo", "hi"))
        floor_lo, floor_hi = (
            math.nan if answer.floor is None else _end(answer.floor, field, results) for field in ("lo", "hi")
        )
        return cls(
            value,
            value if math.isnan(lo) else lo,
            value if math.isnan(hi) else hi,
            None if math.isnan(floor_lo) or math.isnan(floor_hi) else (floor_lo, floor_hi),
        )

    def points(self) -> list[float]:
        return [self.value, self.lo, self.hi, *(self.floor or ())]


def _end(claim: Claim, field: str, results: Mapping[str, Result]) -> float:
    return value_of(Claim(claim.result, field, claim.form, claim.scale), results)


def _axis(null: float, points: Sequence[float]) -> tuple[float, float]:
    """Ends of the axis. Ends that lie far beyond the others are cut: bars there are marked."""
    far = sorted(abs(point - null) for point in points)
    limit = _LONGEST_BAR * max(far[int(0.75 * (len(far) - 1))], 1e-12)
    low, high = (min([null, *points]), max([null, *points]))
    low, high = max(low, null - limit), min(high, null + limit)
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def printed_claims(answer: Answer, results: Mapping[str, Result]) -> Iterator[Claim]:
    """Every claim that a cell prints, in order."""
    for number in (answer.number, answer.before):
        if number is None:
            continue
        yield number
        interval = interval_of(number, [number], results)
        if interval is not None:
            yield from (interval.lo, interval.hi)
    if has_effect(answer, results):
        assert answer.effect is not None
        yield answer.effect


def has_effect(answer: Answer, results: Mapping[str, Result]) -> bool:
    """Whether a cell gives the minimum detectable effect."""
    return answer.effect is not None and answer.effect.text(results) != NOT_AVAILABLE


def plain_answer(answer: Answer | None, results: Mapping[str, Result]) -> tuple[str, str]:
    """A cell as text: number with mark and word, then the interval, and the number of an earlier run."""
    if answer is None or answer.number is None:
        return NOT_MEASURED, ""
    interval = interval_of(answer.number, [answer.number], results)
    first = f"{answer.number.text(results)} {MARKS[answer.mark]} {answer.word}"
    second = "" if interval is None else plain_interval(interval, results)
    if answer.before is not None:
        second = f"{second} was {answer.before.text(results)}".strip()
    return first, second


def rich_first_screen(content: Content, width: int = 100) -> list[RichTable]:
    """The first screen for a terminal: questions side by side as long as they fit, then below each other."""
    rows, results = rows_of(content), content.results
    if not rows:
        return []
    names = [row.descendant for row in rows]
    name_width = min(max(map(len, [*names, "descendant"])), 24)
    texts = [
        [plain_answer(row.answers[index], results) for row in rows] for index in range(len(content.columns))
    ]
    widths = [
        max([len(line) for pair in column_texts for line in pair] + [_title_width(column)])
        for column, column_texts in zip(content.columns, texts, strict=True)
    ]
    tables: list[RichTable] = []
    start = 0
    while start < len(widths):
        end, used = start + 1, name_width + 2 + widths[start]
        while end < len(widths) and used + 2 + widths[end] <= width:
            used += 2 + widths[end]
            end += 1
        table = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, width=min(width, used))
        table.add_column(Text("descendant", style="bold"), width=name_width, overflow="fold")
        for column, column_width in zip(content.columns[start:end], widths[start:end], strict=True):
            heading = Text(column.title, style="bold")
            heading.append(f"\n{column.caption}", style="dim not bold")
            table.add_column(heading, width=min(column_width, width - name_width - 2), overflow="fold")
        for number, row in enumerate(rows):
            cells = [_rich_cell(row.answers[index], *texts[index][number]) for index in range(start, end)]
            table.add_row(Text(row.descendant), *cells)
        tables.append(table)
        start = end
    return tables


def _title_width(column: Column) -> int:
    """The widest word of the heading, or half of it: a heading may take two lines."""
    words = [*column.title.split(), *column.caption.split()]
    return max(
        [len(word) for word in words] + [math.ceil(len(column.title) / 2), math.ceil(len(column.caption) / 2)]
    )


_STYLES = {"worse": "red", "better": "blue", "neutral": ""}


def _rich_cell(answer: Answer | None, first: str, second: str) -> Text:
    if answer is None or answer.number is None:
        return Text(first, style="dim")
    style = _STYLES[answer.direction] if answer.mark == CLEAR else "yellow"
    cell = Text(first, style=style)
    if second:
        cell.append(f"\n{second}", style="dim")
    return cell


LEGEND = f"{MARKS[CLEAR]} clear   {MARKS[UNCLEAR]} unclear: what was measured does not decide it"


def markdown_first_screen(content: Content, *, provenance: str = "") -> str:
    """The first screen as Markdown for a pull request or a model card."""
    results = content.results
    lines = [f"### {_escaped(content.title)}", ""]
    if provenance:
        lines += [provenance, ""]
    rows = rows_of(content)
    if rows:
        headings = [f"{column.title} ({column.caption})" for column in content.columns]
        lines.append("| " + " | ".join(map(_escaped, ["descendant", *headings])) + " |")
        lines.append("| --- " * (len(headings) + 1) + "|")
        for row in rows:
            cells = [_markdown_cell(answer, results) for answer in row.answers]
            lines.append("| " + " | ".join([f"**{_escaped(row.descendant)}**", *cells]) + " |")
        lines += ["", LEGEND, ""]
    lines += [f"- {_escaped(sentence.plain(results))}" for sentence in content.summary]
    return "\n".join(lines).rstrip() + "\n"


def html_first_screen(content: Content) -> str:
    """The first screen as plain HTML for a notebook: a table and the sentences, without scripts or styles."""
    results = content.results
    headings = [
        Markup("<th>{}<br><small>{}</small></th>").format(column.title, column.caption)
        for column in content.columns
    ]
    lines = []
    for row in rows_of(content):
        cells = [
            Markup("<td>{}<br><small>{}</small></td>").format(*plain_answer(answer, results))
            for answer in row.answers
        ]
        lines.append(Markup("<tr><th>{}</th>{}</tr>").format(row.descendant, Markup("").join(cells)))
    sentences = [Markup("<p>{}</p>").format(sentence.plain(results)) for sentence in content.summary]
    table = Markup("<table><thead><tr><th>descendant</th>{}</tr></thead><tbody>{}</tbody></table>").format(
        Markup("").join(headings), Markup("").join(lines)
    )
    title = Markup("<h4>{}</h4>").format(content.title)
    legend = Markup("<p><small>{}</small></p>").format(LEGEND)
    return str(title + (table + legend if lines else Markup("")) + Markup("").join(sentences))


def _markdown_cell(answer: Answer | None, results: Mapping[str, Result]) -> str:
    if answer is None or answer.number is None:
        return NOT_MEASURED
    first, second = plain_answer(answer, results)
    effect = (
        f"; detectable from {answer.effect.text(results)}"
        if answer.effect is not None and has_effect(answer, results)
        else ""
    )
    return _escaped(f"{first} {second}".rstrip() + effect)


def _escaped(text: str) -> str:
    """Text as one cell of a Markdown table: names may have any sign."""
    text = " ".join(text.split())
    for sign in ("\\", "|", "<", "*", "_", "`", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text

"""The first screen in words: rows, bars, terminal and Markdown."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console
from tests.report.screens import NAMES, demo_like

from stemmatics.core.content import NOT_MEASURED, Answer, Column
from stemmatics.core.results import Claim, Estimate, Results
from stemmatics.report.first_screen import (
    BAR_WIDTH,
    bars_of,
    markdown_first_screen,
    plain_answer,
    rich_first_screen,
    rows_of,
    value_of,
)


def lines_of(content, width):
    console = Console(file=io.StringIO(), width=width)
    for table in rich_first_screen(content, width):
        console.print(table)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_terminal_table_fits_and_has_every_number(width):
    content = demo_like()
    lines = lines_of(content, width)
    assert max(len(line.rstrip()) for line in lines) <= width
    printed = "\n".join(lines)
    for name in NAMES:
        assert name in printed
    for column in content.columns:
        for answer in column.answers:
            for text in plain_answer(answer, content.results):
                assert text in printed


def test_rows_follow_the_pairs_and_leave_out_what_no_measure_asked():
    content = demo_like()
    extra = replace(content, pairs=[("base", "unasked"), *reversed(content.pairs)])
    assert [row.descendant for row in rows_of(extra)] == list(reversed(NAMES))
    assert rows_of(replace(content, columns=[])) == []
    assert rich_first_screen(replace(content, columns=[]), 80) == []


def column(*values, floor=None, scale=1.0):
    results, answers = {}, []
    for index, (value, lo, hi) in enumerate(values):
        estimate = Estimate("m", "q", {"descendant": str(index)}, value, lo, hi, method="bootstrap")
        results[estimate.id] = estimate
        claim = Claim(estimate.id, "value", "{:.1f}", scale)
        answers.append(Answer("b", str(index), "w", claim, floor=claim if floor else None))
    return Column("q", "q", "u", answers, bars=True), Results(results.values())


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_bars_share_one_axis_in_the_order_of_their_values(scale):
    values = [(-0.2, -0.3, -0.1), (0.0, -0.1, 0.1), (0.5, 0.4, 0.6), (0.4, 0.3, 0.5)]
    bars = list(bars_of(*column(*values, scale=scale)).values())
    assert all(0 <= point <= BAR_WIDTH for bar in bars for point in (bar.lo, bar.value, bar.hi, bar.null))
    assert all(bar.lo <= bar.value <= bar.hi for bar in bars)
    assert len({bar.null for bar in bars}) == 1
    order = sorted(range(4), key=lambda index: values[index][0])
    assert order == sorted(range(4), key=lambda index: bars[index].value)
    # equal steps are equally long
    assert bars[2].value - bars[1].value == pytest.approx(2.5 * (bars[1].value - bars[0].value), abs=0.3)


def test_one_huge_value_is_cut_and_does_not_flatten_the_others():
    values = [(0.1, 0.09, 0.11)] * 9 + [(50.0, 49.0, 51.0)]
    bars = list(bars_of(*column(*values)).values())
    assert bars[-1].is_cut
    assert not bars[0].is_cut
    assert bars[0].length > BAR_WIDTH / 8


def test_unknown_values_have_no_bar_and_unknown_ends_no_interval():
    bars = bars_of(*column((math.nan, math.nan, math.nan), (0.2, math.nan, math.nan)))
    assert list(bars) == [("b", "1")]
    bar = bars["b", "1"]
    assert bar.lo == bar.value == bar.hi
    assert math.isnan(value_of(None, {}))


def test_markdown_is_one_table_whose_cells_no_name_can_break():
    content = demo_like()
    odd = "a|b*`<x>_[y]\n"
    columns = [
        replace(each, answers=[replace(answer, descendant=odd) for answer in each.answers[:1]])
        for each in content.columns
    ]
    text = markdown_first_screen(replace(content, columns=columns, pairs=[("base", odd)]), provenance="p")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 3
    cells = [line.replace("\\|", "").count("|") for line in rows]
    assert set(cells) == {len(columns) + 2}
    assert "<x>" not in text.replace("\\<x>", "")
    assert text.count("\n- ") == len(content.summary)
    assert NOT_MEASURED in markdown_first_screen(content)

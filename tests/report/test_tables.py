import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console

from stemmatics.core.content import Table
from stemmatics.core.results import Category, Claim, Results
from stemmatics.report.printed import interval_of, is_number_column, plain_interval
from stemmatics.report.tables import csv_text, plain_summary, rich_table, write_tables


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def shown(table: Table, estimates, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(rich_table(table, estimates, width))
    return console.file.getvalue().splitlines()


def numbers(table: Table, estimates) -> list[str]:
    texts = []
    for row in table.rows:
        for cell in row:
            interval = interval_of(cell, row, estimates)
            texts += [cell.text(estimates)] if isinstance(cell, Claim) else []
            texts += [plain_interval(interval, estimates)] if interval else []
    return texts


def test_csv_has_full_precision_intervals_and_printed_text(content):
    table = content.sections[0].tables[0]
    rows = rows_of(csv_text(table, content.results))
    assert len(rows) == len(table.rows)
    delta = content.results[table.rows[0][5].result]
    assert float(rows[0]["difference"]) == delta.value
    assert float(rows[0]["difference lo"]) == delta.lo
    assert float(rows[0]["difference hi"]) == delta.hi
    assert rows[0]["difference text"] == "+0.0413"
    assert rows[0]["documents"] == "412"
    assert "base lo" not in rows[0]
    assert {rows[5][name] for name in ("difference", "difference lo", "difference text")} == {"n/a"}
    assert rows[8]["documents"] == "n/a"


def test_csv_follows_the_scale_of_a_claim(content):
    estimate = next(name for name in content.results if name.startswith("loss.difference"))
    claim = Claim(estimate, scale=-100.0, form="{:.1f}")
    (row,) = rows_of(csv_text(Table("t", "t", ["gain"], [[claim]]), content.results))
    assert float(row["gain"]) == pytest.approx(-4.127)
    assert float(row["gain lo"]) < float(row["gain"]) < float(row["gain hi"])


def test_tables_are_named_by_measure_table_and_corpus(content, tmp_path):
    section = content.sections[0]
    names = ("loss/differences", "loss/differences/held out", "movers/text", "lossless/text")
    tables = [replace(section.tables[0], name=name) for name in names]
    paths = write_tables(replace(content, sections=[replace(section, tables=tables)]), tmp_path)
    assert [path.name for path in paths] == [
        "loss-differences.csv",
        "loss-differences-held-out.csv",
        "loss-movers-text.csv",
        "loss-lossless-text.csv",
    ]
    assert (tmp_path / "loss-differences.csv").read_bytes().count(b"\r\n") == 10


def test_a_column_of_verdicts_is_one_of_words(content):
    delta = next(name for name in content.results if name.startswith("loss.difference"))
    verdict = Category("loss", "loss.verdict", {"descendant": "a"}, "cannot be distinguished", "why")
    results = Results([*content.results.values(), verdict])
    rows = [[Claim(delta), Claim(verdict.id, form="{}")]]
    assert [is_number_column(rows, column, results) for column in (0, 1)] == [True, False]
    table = Table("loss/summary", "t", ["difference", "verdict"], rows)
    printed = shown(table, results, 40)
    assert max(map(len, printed)) <= 40
    assert "cannot be" in " ".join(printed), "words wrap and are not left out"
    (row,) = rows_of(csv_text(table, results))
    assert row["verdict"] == "cannot be distinguished"


@pytest.mark.parametrize("width", [75, 80, 100, 140])
def test_terminal_table_fits_and_cuts_no_number(content, width):
    table = content.sections[0].tables[0]
    lines = shown(table, content.results, width)
    assert max(len(line.rstrip()) for line in lines) <= width
    printed = "\n".join(lines)
    assert "[low, high]: 95% interval, paired bootstrap, by group." in " ".join(printed.split())
    assert "…" not in printed
    for text in numbers(table, content.results):
        assert text in printed


def test_columns_that_do_not_fit_are_named(content):
    table = content.sections[0].tables[0]
    lines = shown(table, content.results, 55)
    assert max(len(line.rstrip()) for line in lines) <= 55
    assert "Not shown here: base, descendant's loss." in " ".join(" ".join(lines).split())
    assert "[+0.0339, +0.0487]" in "\n".join(lines)


def test_brackets_in_names_are_not_markup(content):
    table = Table("t", "[bold]", ["a [b]"], [["[red]x[/red]"]], note="[i]")
    printed = "\n".join(shown(table, content.results, 80))
    for text in ("[bold]", "a [b]", "[red]x[/red]", "[i]"):
        assert text in printed


def test_interval_is_not_repeated_beside_its_own_columns(estimates):
    claim = Claim(next(iter(estimates)))
    low = replace(claim, field="lo")
    assert interval_of(claim, [claim], estimates) is not None
    assert interval_of(claim, [claim, low], estimates) is None
    assert interval_of(low, [low], estimates) is None


def test_summary_for_a_terminal(content):
    lines = plain_summary(content)
    assert lines[0] == (
        "smollm2-135m-instruct loses +0.041 nats/byte (+0.034 to +0.049) "
        "against its base on encyclopedic text."
    )
    assert lines[2].startswith("failed: olmo2-1b: score failed")
    assert lines[3].startswith("failed: Loss: olmo2-1b-instruct: out of memory")

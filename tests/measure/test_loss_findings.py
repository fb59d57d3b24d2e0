"""How the measure `loss` presents its results: sentences, tables and charts."""

from dataclasses import replace

import pytest
from tests.measure.made_loss import (
    BASE,
    MIXED,
    NUM_BYTES,
    NUM_TOKENS,
    WORSE,
    Made,
    cells,
    parted,
    table_of,
    texts,
)

from stemmatics.core.results import Results


def test_a_sentence_for_each_verdict():
    made = Made({"worse": WORSE, "better": -WORSE, "mixed": MIXED})
    results = made.results()

    def numbers(name):
        delta = results.only("loss.delta.byte", descendant=name, register="all")
        return f"{delta.value:+.4f} nats/byte [{delta.lo:+.4f}, {delta.hi:+.4f}]", delta

    worse, _ = numbers("worse")
    better, _ = numbers("better")
    mixed, delta = numbers("mixed")
    effect = f"minimum detectable effect {delta.smallest_effect:.4f} (80% power)"
    counts, *others = texts(made.findings(results), results)
    assert counts == (
        "On text, 1 of 3 descendants lost against their base, 1 improved and 1 cannot be distinguished "
        "from it."
    )
    assert others == [
        f"Largest increase on text: worse, {worse} against base.",
        f"worse lost {worse} against base on text (n = 6, by document).",
        f"better improved on base on text: {better} (n = 6, by document).",
        f"mixed cannot be distinguished from base on text: {mixed}, {effect} (n = 6, by document).",
    ]
    topics = [sentence.topic for sentence in made.findings(results).sentences]
    assert topics == ["summary"] * 2 + ["loss"] * 3


def test_the_largest_increase_is_called_a_decrease_where_nothing_increased():
    for rates, start in (
        ({"a": -WORSE, "b": -2 * WORSE}, "No loss increased; smallest decrease on text: a, -0.11"),
        ({"a": 0 * WORSE}, "No loss increased; smallest decrease on text: a, +0.0000"),
        ({"a": WORSE, "b": 2 * WORSE}, "Largest increase on text: b, +0.23"),
    ):
        made = Made(rates)
        results = made.results()
        assert texts(made.findings(results), results)[1].startswith(start)


def test_tables_are_named_by_measure_table_and_corpus():
    made = Made({"a": WORSE, "b": -WORSE}, corpora=("one", "two"))
    results = made.results()
    findings = made.findings(results)
    assert [table.name for table in findings.tables] == [
        f"loss/{name}/{corpus}"
        for corpus in ("one", "two")
        for name in ("summary", "by-register", "native", "movers")
    ]
    summary = cells(table_of(findings, "loss/summary/two"), results)
    delta = results.only("loss.delta.byte", descendant="a", corpus="two", register="all")
    effect = f"{delta.smallest_effect:.4f}"
    assert summary[0] == ["base", "a", "lost", f"{delta.value:+.4f}", effect, "6"]
    assert [row[2] for row in summary] == ["lost", "improved"]
    by_register = cells(table_of(findings, "loss/by-register/one"), results)
    assert [row[1:3] for row in by_register] == [["a", "code"], ["a", "prose"], ["b", "code"], ["b", "prose"]]
    native = cells(table_of(findings, "loss/native/one"), results)
    assert [row[:2] for row in native[:3]] == [["base", "all"], ["base", "code"], ["base", "prose"]]
    assert native[0][2:] == [f"{BASE.sum() / 210:.4f}", f"{BASE.sum() / NUM_TOKENS.sum():.4f}", "6"]


def test_findings_follow_the_declared_order_however_results_are_stored():
    made = Made({"b": WORSE, "half": WORSE, "a": WORSE}, metadata={"half": {"dtype": "float16"}})
    results = made.results()
    stored = sorted(results.values(), key=lambda result: type(result).__name__)
    again = made.findings(Results(stored))
    fresh = made.findings(results)
    assert replace(again, charts=again.draw()) == replace(fresh, charts=fresh.draw())
    rows = cells(table_of(fresh, "loss/summary/text"), results)
    assert [row[1] for row in rows] == ["b", "half", "a"]


def test_the_table_of_parts_keeps_the_order_of_the_numbers():
    made, _ = parted()
    results = made.results()
    rows = cells(table_of(made.findings(results), "loss/where/text"), results)
    assert [row[2:4] for row in rows] == [
        ["position", "0-63"],
        ["position", "64-255"],
        ["position", "256-1023"],
        ["position", "1024-4095"],
        ["token class", "number"],
        ["token class", "word start"],
    ]
    assert rows[3][4] == f"{0.75 / NUM_BYTES.sum():+.4f}"


def points(spec, key):
    """Every row of data in a specification that has the key."""
    if isinstance(spec, dict):
        rows = [spec] if key in spec and "value" in spec else []
        return rows + [row for value in spec.values() for row in points(value, key)]
    return [row for value in spec for row in points(value, key)] if isinstance(spec, list) else []


def test_charts_draw_what_is_known():
    made, _ = parted()
    results = made.results()
    charts = made.findings(results).draw()
    assert [chart.name for chart in charts] == ["loss/by-register/text", "loss/where/text"]
    deltas = {row["register"]: row for row in points(charts[0].spec, "register")}
    assert set(deltas) == {"all", "prose", "code"}
    whole = results.only("loss.delta.byte", register="all")
    row = deltas["all"]
    assert (row["value"], row["lo"], row["hi"]) == (whole.value, whole.lo, whole.hi)
    assert (row["base"], row["descendant"]) == ("base", "a")
    classes = {row["bin"]: row["value"] for row in points(charts[1].spec, "bin")}
    assert classes == pytest.approx(
        {"word start": -BASE.sum() / 210, "number": (BASE + WORSE * NUM_BYTES).sum() / 210}
    )


def test_names_that_the_user_gave_are_drawn_as_they_are():
    made = Made({"my_model": WORSE})
    (chart,) = made.findings().draw()
    assert {row["descendant"] for row in points(chart.spec, "register")} == {"my_model"}

"""`stemma analyse recovery` on rows without a base: where it places their bases, and with which bars."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.study.analysed import LN2, strict_json, write_csv

COLUMNS = (
    "corpus", "unit", "family", "base", "descendant", "native_base", "matched_base", "native", "recovered",
    "lab", "generation", "pipeline", "regime",
)  # fmt: skip


def pair(family, residual, *, regime="sft", lab=None, pipeline=None, drop=0.1, descendant="chat", **more):
    """One base a family at a loss of its own."""
    matched = 0.5 + 0.01 * int(family[1:])
    losses = [matched + 0.02, matched, matched + residual + drop, matched + residual]
    names = ["prose", "nats_per_byte", family, f"{family}-base", f"{family}-{descendant}"]
    origin = [lab or f"lab-{family}", "v1", pipeline or "", regime]
    return dict(zip(COLUMNS, [*names, *losses, *origin], strict=True)) | more


def loose(name, recovered, *, native=None, regime="sft", lab="", generation="", pipeline="", **more):
    """A release whose base nobody has."""
    native = recovered + 0.1 if native is None else native
    names = ["prose", "nats_per_byte", "", "", name, "", "", native, recovered]
    return dict(zip(COLUMNS, [*names, lab, generation, pipeline, regime], strict=True)) | more


def analysed(rows, tmp_path, stemma_command):
    ran = stemma_command("analyse", "recovery", write_csv(tmp_path / "t.csv", rows), "--json")
    assert (ran.code, ran.err) == (0, "")
    found = strict_json(ran)
    return found, {each["descendant"]: each for each in found["placements"]}


RESIDUALS = np.linspace(0.008, 0.020, 10)
ORDINARY = [pair(f"f{number}", residual) for number, residual in enumerate(RESIDUALS)]


def bar_by_hand(residuals):
    """One pair a family: the smallest left-out error that nine tenths of F + 1 do not exceed."""
    errors = sorted(abs(own - np.mean(np.delete(residuals, number))) for number, own in enumerate(residuals))
    return errors[math.ceil(0.9 * (len(errors) + 1) - 1e-9) - 1]


def test_a_base_is_placed_by_the_class_with_the_weighted_bar(tmp_path, stemma_command):
    found, placed = analysed([*ORDINARY, loose("mystery", 0.60)], tmp_path, stemma_command)
    assert placed["mystery"]["estimate"] == pytest.approx(0.60 - RESIDUALS.mean())
    assert placed["mystery"]["half_width"] == pytest.approx(bar_by_hand(RESIDUALS))
    keys = {name: placed["mystery"][name] for name in ("corpus", "level", "source", "num_families", "class")}
    assert keys == {
        "corpus": "prose", "level": 0.9, "source": "class", "num_families": 10, "class": "ordinary",
    }  # fmt: skip
    # a table of losses has no documents, so nothing is known of other text
    assert placed["mystery"]["half_width_elsewhere"] is None
    # the rest is as without the row
    alone, _ = analysed(ORDINARY, tmp_path, stemma_command)
    assert alone["placements"] == []
    assert found["corpora"] == alone["corpora"]
    assert found["corpora"]["prose"]["num_pairs"] == 10


def test_the_second_bar_has_the_documents_in_quadrature(tmp_path, stemma_command):
    rows = [row | {"recovered_half_width": ""} for row in ORDINARY]
    rows.append(loose("mystery", 0.60, recovered_half_width=0.02))
    _, placed = analysed(rows, tmp_path, stemma_command)
    assert placed["mystery"]["half_width"] == pytest.approx(bar_by_hand(RESIDUALS))
    expected = math.hypot(bar_by_hand(RESIDUALS), 0.02)
    assert placed["mystery"]["half_width_elsewhere"] == pytest.approx(expected)


def test_bits_become_nats(tmp_path, stemma_command):
    row = loose("mystery", 0.60 / LN2, recovered_half_width=0.02 / LN2) | {"unit": "bits_per_byte"}
    rows = [*(row | {"recovered_half_width": ""} for row in ORDINARY), row]
    _, placed = analysed(rows, tmp_path, stemma_command)
    assert placed["mystery"]["estimate"] == pytest.approx(0.60 - RESIDUALS.mean())
    assert placed["mystery"]["half_width_elsewhere"] == pytest.approx(
        math.hypot(bar_by_hand(RESIDUALS), 0.02)
    )


def test_an_evaluator_s_own_table_of_descendants_alone_is_enough(tmp_path, stemma_command):
    rows = [loose("one", 0.6), loose("two", 0.7, regime="distill"), loose("three", 0.8, regime="")]
    needed = ("corpus", "unit", "descendant", "recovered", "regime")
    few = [{name: row[name] for name in needed} for row in rows]
    found, placed = analysed(few, tmp_path, stemma_command)
    assert found["corpora"] == {}
    sources = {name: (each["source"], each["level"]) for name, each in placed.items()}
    assert sources == dict.fromkeys(placed, ("published default", None))
    limits = {
        name: (each["offset"] - each["half_width"], each["offset"] + each["half_width"])
        for name, each in placed.items()
    }
    assert limits["one"] == pytest.approx((0.0005, 0.03))
    assert limits["two"] == pytest.approx((0.03, 0.06))
    # nobody declared its regime: it may be either
    assert limits["three"] == pytest.approx((0.0005, 0.06))
    assert placed["three"]["class"] == "unknown"


def test_a_lab_s_pipelines_and_classes_are_never_mixed(tmp_path, stemma_command):
    lab = {"lab": "lab", "generation": "v1"}
    rows = [pair(f"f{n}", r, pipeline="instruct", lab="lab") for n, r in enumerate((0.0098, 0.0100, 0.0103))]
    rows += [
        pair(f"f{n}", r, pipeline="reason", lab="lab", regime="distill")
        for n, r in enumerate((0.0500, 0.0502, 0.0503), start=3)
    ]
    rows += [
        loose("instruct", 0.6, pipeline="instruct", **lab),
        loose("reason", 0.6, pipeline="reason", regime="distill", **lab),
        loose("undeclared", 0.6, pipeline="instruct", regime="", **lab),
        loose("newer", 0.6, pipeline="instruct", lab="lab", generation="v2"),
    ]
    _, placed = analysed(rows, tmp_path, stemma_command)
    assert {name: each["source"] for name, each in placed.items()} == {
        "instruct": "own pair", "reason": "own pair", "undeclared": "published default",
        "newer": "published default",
    }  # fmt: skip
    assert placed["instruct"]["offset"] == pytest.approx(np.mean([0.0098, 0.0100, 0.0103]))
    assert placed["reason"]["offset"] == pytest.approx(np.mean([0.0500, 0.0502, 0.0503]))
    assert max(placed[name]["half_width"] for name in ("instruct", "reason")) < 0.001
    assert placed["undeclared"]["half_width"] == pytest.approx(0.02975)
    assert "another generation" in placed["newer"]["not_used"]


def test_coverage_is_by_class_and_by_the_rule_that_was_applied(tmp_path, stemma_command):
    found, _ = analysed(ORDINARY, tmp_path, stemma_command)
    (coverage,) = found["corpora"]["prose"]["coverage"]
    assert (coverage["class"], coverage["source"], coverage["n"]) == ("ordinary", "class", 10)
    held = []
    for number, own in enumerate(RESIDUALS):
        others = np.delete(RESIDUALS, number)
        held.append(abs(own - others.mean()) <= bar_by_hand(others))
    assert coverage["value"] == pytest.approx(np.mean(held))
    assert coverage["lo"] < coverage["value"]


def test_a_drop_flags_a_distilled_release(tmp_path, stemma_command):
    rows = [
        *ORDINARY[:4],
        *(pair(f"f{n}", 0.05, regime="distill", drop=0.5 + 0.01 * n) for n in (5, 6, 7)),
        loose("heavy", 0.6, native=1.2),
        loose("light", 0.6, native=0.65),
        loose("unscored", 0.6, native=""),
    ]
    found, placed = analysed(rows, tmp_path, stemma_command)
    flag = found["corpora"]["prose"]["distillation_flag"]
    assert (flag["sensitivity"], flag["specificity"]) == (1.0, 1.0)
    assert placed["heavy"]["distilled_flag"] == "flagged"
    assert placed["light"]["distilled_flag"] == "not flagged"
    assert "distilled_flag" not in placed["unscored"]


def test_empty_is_empty_in_parquet_too(tmp_path, stemma_command):
    rows = [*ORDINARY, loose("mystery", 0.60)]
    columns = {name: [None if row[name] == "" else row[name] for row in rows] for name in COLUMNS}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    found = strict_json(stemma_command("analyse", "recovery", tmp_path / "t.parquet", "--json"))
    _, placed = analysed(rows, tmp_path, stemma_command)
    assert found["placements"] == list(placed.values())


def test_the_text_names_ranges_as_ranges(tmp_path, stemma_command):
    rows = [*ORDINARY, loose("mystery", 0.60), loose("reasoner", 0.60, regime="distill")]
    ran = stemma_command("analyse", "recovery", write_csv(tmp_path / "t.csv", rows))
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.split()}
    assert "90%" in lines["mystery"]
    assert "range" in lines["reasoner"]
    assert "90%" not in lines["reasoner"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"recovered": ""}, "row 11, column 'recovered' is ''"),
        ({"recovered": "nan"}, "row 11, column 'recovered' is 'nan'"),
        ({"matched_base": 0.5}, "row 11, column 'family' is empty"),
        ({"unit": "nats"}, "row 11 has the unit 'nats'"),
        ({"descendant": ""}, "row 11, column 'descendant' is empty"),
    ],
)
def test_a_fault_is_named_by_its_row_in_the_file(row, says, tmp_path, stemma_command):
    rows = [*ORDINARY, loose("mystery", 0.60) | row]
    ran = stemma_command("analyse", "recovery", write_csv(tmp_path / "t.csv", rows))
    assert (ran.code, ran.out) == (1, "")
    assert says in ran.err

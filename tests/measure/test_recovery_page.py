"""The whole recovery measure on sums written by hand: its sentences, tables and charts."""

import re
import string

import numpy as np
import pytest
from tests.measure import test_recovery_verdict
from tests.measure.recovery_by_hand import TEXT, make_study, pairs_study

from stemmatics.core.results import Claim, Results
from stemmatics.measure.recovery import RecoveryMeasure
from stemmatics.measure.recovery.settings import RecoverySettings
from stemmatics.report.printed import plain_cell

ITEMS = 40


def whole_study():
    """Two families, one of them blind; a loose model; ties, items, a second pool and a trajectory."""
    study = make_study(
        {
            "a": {"regime": "base", "lab": "lab", "generation": "v1"},
            "a-sft": {"base": "a", "regime": "sft", "lab": "lab"},
            "b": {"regime": "base"},
            "b-sft": {"base": "b", "regime": "sft", "blind": True},
            "loose": {"regime": "sft", "lab": "lab", "generation": "v2"},
            "failed": {"regime": "sft"},
        },
        registers=["prose", "code", "prose", "code"],
        base_runs=2,
        second_pool="second-pool",
        again=["a-sft"],
        items="items",
        margin=0.2,
        trajectories={"a run": ["a-sft", "b-sft", "loose"]},
    )
    study.add_arm("a", [0.999, 1.001], native=1.05, second=1.10)
    study.add_arm("a-sft", [1.100], native=1.40, second=1.11)
    study.add_arm("b", [1.299, 1.301], native=1.35)
    study.add_arm("b-sft", [[1.30, 1.32, 1.31, 1.28]], native=1.50)
    study.add_arm("loose", [1.200], native=1.30)
    study.add_scores("failed", 1.2)
    kept, fallen = [1] * ITEMS, [0] * ITEMS
    for name, recovered in {"a": kept, "a-sft": kept, "b": kept, "b-sft": fallen}.items():
        for run in (None, 0, 1):
            study.add_replies(name, recovered, run=run)
    row = {"value": 1.25, "bar": 0.1, "rule": "published default", "num_pairs": 0, "sha256": "ab" * 32}
    study.add("prediction", f"the base of b-sft on {TEXT}", prediction=[row])
    for pool, shared in {"pool": 1, "second-pool": 0}.items():
        counts = {
            "num_pool_documents": 9,
            "num_shared_documents": shared,
            "num_shared_ngrams": 0,
            "num_pool_documents_sharing": shared,
        }
        study.add("overlap", f"{pool} and {TEXT}", overlap=[counts])
    return study


def present(study):
    measure, pinned, settings = RecoveryMeasure(), study.arms.pinned, study.arms.settings
    results = Results(measure.estimate(pinned, settings, study, np.random.default_rng(0)))
    return results, measure.findings(pinned, settings, results)


@pytest.fixture(scope="module")
def presented():
    return present(whole_study())


def rows_of(presented, name):
    results, findings = presented
    (table,) = [table for table in findings.tables if table.name == name]
    return [
        dict(zip(table.columns, (plain_cell(cell, results) for cell in row), strict=True))
        for row in table.rows
    ]


def test_tables_and_charts_are_named_by_measure_and_corpus(presented):
    _, findings = presented
    parts = [
        *("summary", "ladder", "resolution", "uncertainty", "register", "verdicts", "second-pool"),
        "reversals",
        *("agreement", "blind", "pool", "read"),
    ]
    assert [table.name for table in findings.tables] == [
        *(f"recovery/{part}/{TEXT}" for part in parts),
        "recovery/recall",
    ]
    assert [chart.name for chart in findings.draw()] == [
        f"recovery/{part}/{TEXT}" for part in ("ladder", "residual", "agreement")
    ]


def test_a_row_holds_the_differences_the_verdict_and_what_decided_it(presented):
    first, second = rows_of(presented, f"recovery/summary/{TEXT}")
    assert first == {
        "base": "a",
        "descendant": "a-sft",
        "residual": "+0.1000",
        "drop": "+0.3000",
        "rebase shift": "+0.0500",
        "verdict": "undetermined",
        "because": "needs three different runs of base and descendant on the first pool; twenty different "
        "documents",
    }
    assert second["because"].startswith("needs a fine-tune of both on a second pool; three different runs")


def test_the_ladder_says_rank_ties_and_where_an_offset_is_from(presented):
    rows = {row["checkpoint"]: row for row in rows_of(presented, f"recovery/ladder/{TEXT}")}
    assert {name: row["rank"] for name, row in rows.items()} == {
        "a": "1", "a-sft": "2", "loose": "3", "b-sft": "4", "b": "5",
    }  # fmt: skip
    assert rows["loose"]["base, estimated"] == rows["loose"]["on other text"] == "1.1847"
    assert rows["loose"]["offset from"] == "published default"
    assert rows["loose"]["not used"] == "the lab's pairs of v1 are of another generation"
    assert [rows[name]["tied"] for name in ("a", "b-sft", "b")] == ["", "a", "a"]
    assert "base, borrowed" not in rows["a"]


def test_comparisons_say_where_their_half_width_is_from(presented):
    rows = {row["comparison"]: row for row in rows_of(presented, f"recovery/uncertainty/{TEXT}")}
    assert rows["two bases, re-based"]["from"] == "this run"
    other_labs = rows["descendants of different labs, base unknown"]
    assert (other_labs["plus or minus"], other_labs["from"]) == ("0.0100", "published default")
    assert rows["another corpus"]["plus or minus"] == "0.70"


def test_a_blind_base_is_shown_beside_its_prediction(presented):
    (row,) = rows_of(presented, f"recovery/blind/{TEXT}")
    assert (row["predicted"], row["measured less predicted"], row["covered"]) == ("1.2500", "+0.0500", "1")
    assert (row["offset from"], row["SHA-256"]) == ("published default", "ab" * 8)


def test_the_recall_table_holds_the_four_arms(presented):
    rows = {row["descendant"]: row for row in rows_of(presented, "recovery/recall")}
    assert [rows["b-sft"][arm] for arm in ("native base", "matched base", "native", "recovered")] == [
        "1.000", "1.000", "0.000", "0.000",
    ]  # fmt: skip
    assert rows["b-sft"]["change"] == "-1.000"
    assert rows["a-sft"]["lost"] == "0"


def test_sentences_say_what_is_left_and_what_can_be_told(presented):
    results, findings = presented
    said = [sentence.plain(results) for sentence in findings.sentences]
    assert any(
        line.startswith(f"The largest of 2 residuals on {TEXT} is that of a-sft: +0.1000 nats/byte")
        and "the largest of several tends to be too large" in line
        and "The fine-tune lowered its loss by 0.3000" in line
        for line in said
    )
    assert (
        "Whether training changed the register or made a model forget is undetermined for 2 of 2 "
        "descendants; the summary says what is missing." in said
    )
    (above,) = [line for line in said if line.startswith("a-sft is +0.1000 nats/byte [")]
    assert above.endswith("] above a after both were fine-tuned (by document and run).")
    (same,) = [line for line in said if line.startswith("b-sft cannot be distinguished from b")]
    assert "the minimum detectable effect (80% power) is 0.0" in same
    assert same.endswith("(by document and run).")
    # three checkpoints far from any line
    (trend,) = [line for line in said if line.startswith("Along a run")]
    assert trend.startswith("Along a run no trend of the residual is shown: +0.0500 nats/byte")


def test_prose_holds_no_digit_that_is_no_claim(presented):
    _, findings = presented
    prose = [
        literal for sentence in findings.sentences for literal, *_ in string.Formatter().parse(sentence.text)
    ]
    prose += [text for table in findings.tables for text in (table.title, table.note)]
    prose += [text for chart in findings.draw() for text in (chart.title, chart.caption)]
    # what stands in `backticks` is code
    outside = [re.sub(r"`[^`]+`", "", text) for text in prose]
    assert [text for text in outside if any(character.isdigit() for character in text)] == []


def test_what_cannot_be_trusted_is_named(presented):
    _, findings = presented
    assert findings.failures == [
        f"the pool pool shares documents with {TEXT}",
        "failed: one of its arms failed; run the study again with --retry-failed",
    ]


@pytest.mark.parametrize("residual", [0.001, -0.001])
def test_an_interval_that_holds_zero_cannot_be_distinguished(residual):
    study = pairs_study({"a": [residual]}, bases={"a": 1.0})
    study.add_arm("d-a-0", [1.0 + residual + np.array([0.3, -0.3, 0.1, 0.0])])
    results, findings = present(study)
    (line,) = [
        text for text in (each.plain(results) for each in findings.sentences) if text.startswith("d-a-0")
    ]
    assert line.startswith("d-a-0 cannot be distinguished from b-a after one fine-tune of each")


def test_below_its_base_and_without_items_is_said_too():
    results, findings = present(pairs_study({"a": [-0.05]}, bases={"a": 1.0}))
    said = [sentence.plain(results) for sentence in findings.sentences]
    assert (
        "d-a-0 is below b-a after one fine-tune of each: -0.0500 nats/byte [-0.0500, -0.0500] (by document), "
        "and how far other runs scatter is not known." in said
    )
    (row,) = rows_of((results, findings), f"recovery/summary/{TEXT}")
    assert row["verdict"] == "undetermined"
    assert "recall items, of which none were asked" in row["because"]


def said_of(study):
    results, findings = present(study)
    return [sentence.plain(results) for sentence in findings.sentences]


def trend_of(losses, runs=1):
    """What is said of a trajectory a, b, c, ... with these losses."""
    names = "abcdef"[: len(losses)]
    study = make_study(
        {name: {"regime": "base"} for name in names}, trajectories={"a run": list(names)}, runs=runs
    )
    for name, loss in zip(names, losses, strict=True):
        study.add_arm(name, [loss] if runs == 1 else loss)
    (line,) = [line for line in said_of(study) if line.startswith("Along a run")]
    return line


def test_a_trend_is_a_change_only_where_its_whole_interval_is_on_one_side():
    rising = [1.0, 1.101, 1.199, 1.3, 1.401]
    assert trend_of(rising).startswith("Along a run the residual changes by +0.1001 nats/byte per checkpoint")
    assert "the residual changes" not in trend_of([1.0, 1.3, 0.9, 1.2, 1.1])
    assert "no trend of the residual is shown" in trend_of([1.0, 1.3, 0.9, 1.2, 1.1])
    # two checkpoints have no scatter: neither a change nor the lack of one
    assert "its interval is unknown" in trend_of([1.0, 1.3])
    assert "no trend" not in trend_of([1.0, 1.3])


@pytest.mark.parametrize(
    ("residuals", "appears"),
    [
        ({"a": [0.1], "b": [0.05]}, True),
        # one pair has no largest
        ({"a": [0.1]}, False),
        # none is told from nothing
        ({"a": [-0.1], "b": [-0.05]}, False),
    ],
)
def test_the_largest_residual_is_one_of_several_and_above_nothing(residuals, appears):
    said = said_of(pairs_study(residuals, bases=dict.fromkeys(residuals, 1.0)))
    assert any(line.startswith("The largest of") for line in said) == appears


def test_a_fine_tune_that_lowered_nothing_is_not_said_to_have():
    study = pairs_study({"a": [0.1], "b": [0.05]}, bases={"a": 1.0, "b": 1.0})
    study.add_arm("d-a-0", [1.1], native=1.05)
    (line,) = [line for line in said_of(study) if line.startswith("The largest of")]
    assert "lowered" not in line


def test_other_runs_are_unknown_only_where_no_arm_has_two():
    once = pairs_study({"a": [0.1]}, bases={"a": 1.0})
    assert any("how far other runs scatter is not known" in line for line in said_of(once))
    twice = make_study({"b-a": {"regime": "base"}, "d-a-0": {"base": "b-a", "regime": "sft"}}, runs=2)
    twice.add_arm("b-a", [1.0, 1.001])
    twice.add_arm("d-a-0", [1.1, 1.102])
    said = said_of(twice)
    assert not any("how far other runs" in line or "after one fine-tune" in line for line in said)
    assert any(line.startswith("d-a-0 is +0.1005 nats/byte") for line in said)


def test_a_residual_inside_run_noise_is_not_above_its_base():
    """Documents all agree that it is above; the runs of one arm differ by more."""
    study = make_study({"b-a": {"regime": "base"}, "d-a-0": {"base": "b-a", "regime": "sft"}}, runs=2)
    study.add_arm("b-a", [1.0, 1.1])
    study.add_arm("d-a-0", [1.04, 1.14])
    said = said_of(study)
    assert not any("above b-a" in line for line in said)
    assert any(line.startswith("d-a-0 cannot be distinguished from b-a") for line in said)


def test_verdicts_are_counted_in_words_only_where_one_was_given():
    said = said_of(test_recovery_verdict.study_of(test_recovery_verdict.SHIFTED))
    assert (
        "Of 1 descendants, as far as the recall items tell, 0 forgot (recall is lost and the residual "
        "stands), 1 changed in register (recall is kept and a fine-tune takes the gap back), 0 did both, and "
        "0 are undetermined." in said
    )
    assert not any("is undetermined for" in line for line in said)
    assert any(line.endswith("(by document and run): register.") for line in said)


def test_a_model_is_flagged_in_words_only_where_its_whole_drop_is_above():
    def study(drop):
        checkpoints = {"loose": {"regime": "sft"}}
        for number, regime in enumerate(["sft", "sft", "distill", "distill"]):
            checkpoints[f"b{number}"] = {"regime": "base", "family": f"f{number}"}
            checkpoints[f"d{number}"] = {"base": f"b{number}", "regime": regime}
        made = make_study(checkpoints)
        made.add_arm("loose", [1.0], native=1.0 + drop)
        for number, own in enumerate([0.1, 0.12, 0.5, 0.52]):
            made.add_arm(f"b{number}", [1.0])
            made.add_arm(f"d{number}", [1.0], native=1.0 + own)
        return made

    text = "more than the threshold of"
    assert any(text in line for line in said_of(study(0.6)))
    assert not any(text in line for line in said_of(study(0.1)))
    assert not any(text in line for line in said_of(study(np.array([0.9, 0.1, 0.5, -0.1]))))


def test_reversals_that_noise_could_have_made_are_not_counted_as_clear():
    def said(scatter):
        study = make_study({name: {"regime": "base"} for name in "abc"})
        study.add_arm("a", [1.2], native=1.0)
        study.add_arm("b", [1.1 + scatter], native=1.1)
        study.add_arm("c", [1.5], native=1.5)
        (line,) = [line for line in said_of(study) if line.startswith("The order by loss as released")]
        return line

    assert "1 pairs of checkpoints are in the opposite order, 1 of them by more than noise" in said(0.0)
    noisy = np.array([0.5, -0.4, 0.3, -0.2])
    assert "1 pairs of checkpoints are in the opposite order, 0 of them by more than noise" in said(noisy)


def test_every_cell_of_a_table_is_a_name_or_a_claim(presented):
    results, findings = presented
    for table in findings.tables:
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert all(cell is None or isinstance(cell, str | Claim) for cell in row)
            assert all(cell.result in results for cell in row if isinstance(cell, Claim))


def test_charts_hold_the_numbers_of_the_results(presented):
    results, findings = presented
    charts = {chart.name: chart.spec for chart in findings.draw()}
    points = [point for data in _data(charts[f"recovery/ladder/{TEXT}"]) for point in data]
    loose = {point["kind"]: point["value"] for point in points if point["checkpoint"] == "loose"}
    assert loose == pytest.approx({"as released": 1.3, "re-based": 1.2, "base, estimated": 1.2 - 0.01525})
    (rank,) = {point["rank"] for point in points if point["checkpoint"] == "loose"}
    assert rank == 3
    residual = results.only("recovery.residual", descendant="b-sft")
    points = [
        point for data in _data(charts[f"recovery/residual/{TEXT}"]) for point in data if "what" in point
    ]
    (point,) = [point for point in points if (point["descendant"], point["what"]) == ("b-sft", "residual")]
    assert (point["base"], point["value"], point["lo"], point["hi"]) == (
        "b", residual.value, residual.lo, residual.hi,
    )  # fmt: skip


def _data(spec):
    """The rows of data in a chart, wherever they stand in it."""
    if isinstance(spec, dict):
        values = spec.get("values")
        if isinstance(values, list):
            yield values
        for name, value in spec.items():
            if name == "datasets":
                yield from value.values()
            else:
                yield from _data(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from _data(value)


def test_every_setting_is_described():
    assert [name for name, field in RecoverySettings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("scoring", [{"prefix": "auto"}, {"prefix": "always", "support": "shared"}])
def test_scoring_that_does_not_compare_by_byte_is_refused(scoring):
    with pytest.raises(ValueError, match="prefix: always and support: full"):
        RecoverySettings.model_validate({"pool": "pool", "scoring": scoring})

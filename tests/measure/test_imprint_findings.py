"""Sentences, tables and charts of the imprint section, on tables written by hand."""

import pytest
from tests.measure.imprint_tables import declared, fill_refusals, findings_of, results_of

from stemmatics.core.results import Claim
from stemmatics.measure.imprint.charts import imprint_charts, trajectory_points, tree_points

# the control is not the first branch
BRANCHES = ("safety", "generic", "filtered", "last", "first")
# of twenty requests the first so many are refused: after SFT and after DPO, by run
REFUSED = {
    "generic": ((20, 14), (20, 12)),
    "safety": ((20, 18), (20, 19)),
    "filtered": ((10, 5), (11, 3)),
    "last": ((20, 16), (20, 18)),
    "first": ((20, 15), (20, 12)),
}


@pytest.fixture(scope="module")
def study():
    pinned, settings = declared(BRANCHES, order=("last", "first"), margin=0.2)

    def shares(node):
        if node.stage not in {"sft", "dpo"}:
            # DPO alone follows the SFT in this table; the window refuses nothing
            return [0] * 20 if node.stage != "grpo" else None
        num = REFUSED[node.branch][node.run - 1][node.stage == "dpo"]
        return [1] * num + [0] * (20 - num)

    results = results_of(pinned, settings, fill_refusals(pinned, settings, shares))
    return pinned, settings, results, findings_of(pinned, settings, results)


def texts(study):
    return [sentence.plain(study[2]) for sentence in study[3].sentences]


def table_of(study, name):
    (table,) = [table for table in study[3].tables if table.name == f"imprint/{name}"]
    return [
        dict(
            zip(
                table.columns,
                [cell.text(study[2]) if isinstance(cell, Claim) else cell for cell in row],
                strict=True,
            )
        )
        for row in table.rows
    ]


def detectable_effect(study, **subject):
    return study[2].only("imprint.contrast", **subject).smallest_effect


def points(estimate, field):
    return f"{100 * getattr(estimate, field):+.1f}"


def test_the_summary_gives_every_branch_with_interval_and_minimum_detectable_effect(study):
    _, _, results, _ = study
    about = {"tree": "first", "end": "dpo", "metric": "refusal"}
    control = results.only("imprint.deviation", branch="generic", **about)
    parts = []
    for branch, value in (("safety", "+27.5"), ("filtered", "+2.5")):
        imprint = results.only("imprint.contrast", branch=branch, against="generic", **about)
        assert points(imprint, "value") == value
        effect = f"{100 * imprint.smallest_effect:.1f}"
        parts.append(
            f"{branch} {value} [{points(imprint, 'lo')}, {points(imprint, 'hi')}] "
            f"(minimum detectable effect {effect})"
        )
    assert texts(study)[0] == (
        "Imprint on refusal in tree first after dpo, in percentage points: generic changed by -35.0 "
        f"[{points(control, 'lo')}, {points(control, 'hi')}] since SFT; compared with it, {'; '.join(parts)}."
    )


def test_the_verdicts_after_sft_are_claims_on_categories(study):
    _, _, results, findings = study
    (sentence,) = [each for each in findings.sentences if each.text.startswith("Refusal after SFT")]
    assert sentence.plain(results) == (
        "Refusal after SFT in tree first, compared with generic at a margin of 20.0 percentage points, is "
        "equivalent for safety, different for filtered."
    )
    assert sentence.topic == "imprint"
    assert {claim.result for claim in sentence.claims()} == {
        "imprint.margin",
        *(
            f"imprint.after_sft.verdict/against=generic/branch={branch}/metric=refusal/tree=first"
            for branch in ("safety", "filtered")
        ),
    }
    rows = {row["branch"]: row for row in table_of(study, "after-sft") if row["metric"] == "refusal"}
    assert {branch: (row["difference"], row["verdict"]) for branch, row in rows.items()} == {
        "safety": ("+0.0", "equivalent"),
        "filtered": ("-47.5", "different"),
        "last": ("+0.0", "equivalent"),
    }
    assert rows["safety"]["margin"] == "20.0"
    (table,) = [table for table in findings.tables if table.name == "imprint/after-sft"]
    levels = {results[row[table.columns.index("difference")].result].level for row in table.rows}
    assert levels == {0.90}
    assert rows["safety"]["reason"] == "the 90% interval lies inside the margin"


def test_the_order_control_is_the_last_minus_the_first(study):
    (text,) = [text for text in texts(study) if text.startswith("Order control")]
    # last: (16 + 18 - 40) of 40; first: (15 + 12 - 40) of 40
    assert "last and first saw the same windows in opposite order" in text
    assert "differs by +17.5 [" in text
    assert text.endswith("percentage points (last minus first).")


def test_tables_are_named_by_the_measure_and_say_what_they_compare(study):
    assert [table.name for table in study[3].tables] == [
        "imprint/contrasts",
        "imprint/after-sft",
        "imprint/after-sft-runs",
        "imprint/deviations",
        "imprint/nodes",
        "imprint/stages",
    ]
    (row,) = [
        row
        for row in table_of(study, "contrasts")
        if (row["metric"], row["branch"]) == ("refusal", "filtered")
    ]
    assert (row["after"], row["compared with"]) == ("dpo", "generic")
    assert (row["imprint"], row["over runs only"]) == ("+2.5", "+2.5")
    effect = detectable_effect(study, branch="filtered", end="dpo", metric="refusal")
    assert row["minimum detectable effect"] == f"{100 * effect:.1f}"
    # run by run: (5 - 10) - (14 - 20) and (3 - 11) - (12 - 20) of 20, of which one is 0
    assert (row["sign-flip p"], row["smallest possible p"]) == ("1", "0.5")
    assert {
        row["branch"]: row["deviation"]
        for row in table_of(study, "deviations")
        if row["metric"] == "refusal" and row["after"] == "dpo"
    } == {
        "generic": "-35.0",
        "safety": "-7.5",
        "filtered": "-32.5",
        "last": "-15.0",
        "first": "-32.5",
    }


def test_each_run_has_a_row_with_its_test(study):
    rows = {
        row["run"]: row
        for row in table_of(study, "after-sft-runs")
        if (row["metric"], row["branch"]) == ("refusal", "filtered")
    }
    # 10 and 9 of 20 lost, none gained: McNemar's exact p is 2 / 2^10 and 2 / 2^9
    assert {run: (row["difference"], row["prompts"], row["verdict"]) for run, row in rows.items()} == {
        "1": ("-50.0", "20", "different"),
        "2": ("-45.0", "20", "different"),
    }
    for run, row in rows.items():
        difference = study[2].only("imprint.after_sft.run", branch="filtered", run=run, metric="refusal")
        assert row["smallest margin"] == f"{-100 * difference.lo:.1f}"


def test_nodes_say_what_they_were_trained_on_last(study):
    rows = {(row["branch"], row["run"], row["stage"]): row for row in table_of(study, "nodes")}
    assert set(rows["fork", "1", "fork"]) == {
        "tree",
        "branch",
        "run",
        "stage",
        "trained last",
        "refusal, %",
        "over-refusal, %",
    }
    assert rows["fork", "1", "fork"]["trained last"] == "web"
    assert rows["safety", "2", "dpo"]["trained last"] == "safety text"
    assert rows["safety", "2", "dpo"]["refusal, %"] == "95.0"
    assert ("safety", "2", "grpo") not in rows


def test_stages_are_the_same_and_their_hashes_are_shown(study):
    rows = table_of(study, "stages")
    assert {(row["different stages"], row["branches"], row["verdict"]) for row in rows} == {
        ("1", "5", "same")
    }
    assert all(row["hash"].endswith("safety, generic, filtered, last, first") for row in rows)
    assert study[3].failures == []


def values_in(spec):
    """All rows of data in a chart."""
    if isinstance(spec, dict) and isinstance(spec.get("refusal"), float):
        return [spec]
    parts = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else []
    return [row for part in parts for row in values_in(part)]


def test_charts_show_the_refusal_of_every_node(study):
    charts = {chart.name: chart.spec for chart in study[3].charts}
    assert list(charts) == ["imprint/tree/first", "imprint/trajectories/first"]
    drawn = {
        (row["branch"], row["stage"]): (round(row["refusal"], 12), row["text"])
        for row in values_in(charts["imprint/tree/first"])
        if "text" in row
    }
    assert len(drawn) == 1 + len(BRANCHES) * 3
    assert drawn["fork", "fork"] == (0.0, "fork 0%")
    assert drawn["safety", "window"] == (0.0, "safety 0%")
    assert drawn["safety", "dpo"] == (0.925, "dpo 92%")
    assert drawn["filtered", "sft"] == (0.525, "sft 52%")
    runs = {
        (row["branch"], row["end"], row["stage"], row["run"]): row["refusal"]
        for row in values_in(charts["imprint/trajectories/first"])
        if "run" in row
    }
    assert runs["safety", "after dpo", "end", 1] == 0.9
    assert runs["safety", "after dpo", "end", 2] == 0.95


def test_a_run_that_is_missing_leaves_the_others_their_numbers():
    pinned, settings = declared(BRANCHES)

    def shares(node):
        return None if (node.branch, node.run) == ("safety", 1) else [1, 0, 0, 0]

    tables = fill_refusals(pinned, settings, shares)
    charts = findings_of(pinned, settings, results_of(pinned, settings, tables)).charts
    runs = {
        (row["branch"], row["run"], row["refusal"])
        for row in values_in(charts[1].spec)
        if "run" in row and row["branch"] in {"safety", "generic"}
    }
    assert runs == {("generic", 1, 0.25), ("generic", 2, 0.25), ("safety", 2, 0.25)}


def test_a_chart_of_one_tree_shows_no_other():
    pinned, settings = declared(runs=1)
    other = settings.trees["first"].model_copy(
        update={"branches": {"generic": settings.trees["first"].branches["safety"]}}
    )
    both = settings.model_copy(update={"trees": {"first": settings.trees["first"], "second": other}})
    tables = fill_refusals(pinned, settings, lambda node: [int(node.branch == "safety")] * 4)
    charts = {chart.name: chart.spec for chart in imprint_charts(both, results_of(pinned, both, tables))}
    drawn = {
        name: {row["refusal"] for row in values_in(charts[name]) if row.get("stage") == "sft"}
        for name in ("imprint/tree/first", "imprint/tree/second")
    }
    assert drawn == {"imprint/tree/first": {0.0, 1.0}, "imprint/tree/second": {1.0}}


def test_order_branches_are_marked_and_edges_join_parents_to_children(study):
    tree = study[1].trees["first"]
    rates = {("safety", "sft"): {1: 0.5, 2: 1.0}, ("last", "dpo"): {1: 0.0}}
    kinds = {point["branch"]: point["kind"] for point in trajectory_points(tree, rates)}
    assert kinds == {"safety": "source", "last": "order"}
    drawn, edges = tree_points(tree, rates)
    assert {(point["branch"], point["stage"]): point["refusal"] for point in drawn} == {
        ("safety", "sft"): 0.75,
        ("last", "dpo"): 0.0,
    }
    assert len(edges) == len(BRANCHES) * (1 + 1 + 2)
    assert {(edge["x"], edge["x2"]) for edge in edges} == {(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)}

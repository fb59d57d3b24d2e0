"""Tables and charts of the imprint section, on tables written by hand."""

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


def test_tables_are_named_by_the_measure_and_say_what_they_compare(study):
    assert [table.name for table in study[3].tables] == [
        "imprint/contrasts",
        "imprint/after-sft",
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
    assert (row["for requests like these"], row["for these cells"]) == ("+2.5", "+2.5")
    effect = detectable_effect(study, branch="filtered", end="dpo", metric="refusal")
    assert row["minimum detectable effect"] == f"{100 * effect:.1f}"
    assert effect < 1
    p = study[2].only("imprint.contrast.p", branch="filtered", end="dpo", metric="refusal").value
    # two branches at two ends; the ends that were not measured count as tests
    assert (row["p"], row["Holm's p"]) == (f"{p:.3g}", f"{min(1.0, 3 * p):.3g}")
    assert row["verdict"] == "undetermined"
    assert (
        row["reason"]
        == "2 complete runs where 3 are the least and 20 cells of requests where 50 are the least"
    )
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


def test_an_effect_above_the_whole_range_is_in_words(study):
    (row,) = [
        row for row in table_of(study, "contrasts") if (row["metric"], row["branch"]) == ("refusal", "safety")
    ]
    assert detectable_effect(study, branch="safety", end="dpo", metric="refusal") > 1
    assert row["minimum detectable effect"] == "cannot be seen with this design"


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
    charts = {chart.name: chart.spec for chart in study[3].draw()}
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
    charts = findings_of(pinned, settings, results_of(pinned, settings, tables)).draw()
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

"""`stemma analyse elicitation`: tables of answers, of accuracies, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.study.analysed import DATA, strict_json, write_csv

from stemmatics.commands.analyse import analyse
from stemmatics.core.errors import UserError

SHIFTS = {"untrained": (-0.1, 0.2, 0.1, 0.0), "trained": (0.2, 0.2, 0.1, 0.0)}


def answer_rows(num_items=250, num_seeds=1, seed=0):
    """The trained arm gains under p0 only, and only what p1 reaches untrained."""
    rng = np.random.default_rng(seed)
    difficulty = rng.uniform(0.2, 0.7, num_items)
    rows = []
    for arm, shifts in SHIFTS.items():
        for p, shift in enumerate(shifts):
            for s in range(num_seeds):
                for i, base in enumerate(difficulty):
                    row = {"item": f"q{i}", "prompt": f"p{p}", "model": "m", "arm": arm}
                    row |= {"seed": s} if num_seeds > 1 else {}
                    rows.append(row | {"correct": int(rng.random() < base + shift)})
    return rows


def without(rows, column):
    return [{name: value for name, value in row.items() if name != column} for row in rows]


def test_a_lucky_match_is_called_one(tmp_path, stemma_command):
    path = write_csv(tmp_path / "t.csv", answer_rows())
    found = strict_json(stemma_command("analyse", "elicitation", path, "--json"))
    verdicts = {claim["recipe"]: claim["verdict"] for claim in found["claims"]}
    assert verdicts["p0"] == "match"
    assert "ceiling raised" not in verdicts.values()
    assert found["checkpoints"] == ["m (untrained)", "m (trained)"]
    untrained = found["results"][0]
    assert untrained["best"] in untrained["top_group"]
    assert "p0" not in untrained["top_group"]
    assert untrained["ceiling"]["value"] <= untrained["naive_maximum"]
    assert untrained["mean_of_recipes"] == pytest.approx(
        np.mean([recipe["mean"] for recipe in untrained["recipes"].values()])
    )
    assert found["flips"]["across_seeds"]["share"] is None
    assert found["noise"] == []
    assert found["components"]["item"]["lo"] > 0
    single = strict_json(stemma_command("analyse", "elicitation", path, "--recipe", "p0", "--json"))
    assert [claim["recipe"] for claim in single["claims"]] == ["p0"]
    text = stemma_command("analyse", "elicitation", path).out
    assert "MATCH: m (trained) against m (untrained), recipe p0" in text
    assert "not beaten by the best" in text


def test_formats_and_booleans_give_the_same_numbers(tmp_path):
    rows = answer_rows(60)
    csv = analyse("elicitation", write_csv(tmp_path / "a.csv", rows))
    booleans = [row | {"correct": bool(row["correct"])} for row in rows]
    (tmp_path / "a.json").write_text(json.dumps(booleans))
    pq.write_table(pa.Table.from_pylist(booleans), tmp_path / "a.parquet")
    for name in ("a.json", "a.parquet"):
        other = analyse("elicitation", tmp_path / name)
        np.testing.assert_equal(other | {"table": ""}, csv | {"table": ""})


def test_seeds_give_noise_and_their_flips(tmp_path):
    found = analyse("elicitation", write_csv(tmp_path / "t.csv", answer_rows(80, num_seeds=3)))
    assert found["num_seeds"] == 3
    cells = [(noise["recipe"], noise["checkpoint"]) for noise in found["noise"]]
    assert len(cells) == 8 + 4
    assert ("p0", "m (trained) less m (untrained)") in cells
    assert found["flips"]["across_seeds"]["num_compared"] > 0
    assert "item x recipe x checkpoint x seed" in found["components"]
    assert {pair["test"] for pair in found["results"][0]["pairs"]} == {"sign flip"}


def test_without_an_arm_others_are_compared_with_the_first(tmp_path):
    rows = [row | {"model": row["arm"]} for row in answer_rows(60)]
    found = analyse("elicitation", write_csv(tmp_path / "t.csv", without(rows, "arm")))
    assert {(claim["from"], claim["to"]) for claim in found["claims"]} == {("untrained", "trained")}


def test_incomplete_items_are_named_and_groups_stay_together(tmp_path):
    rows = [row | {"group": f"g{int(row['item'][1:]) // 2}"} for row in answer_rows(60)]
    found = analyse("elicitation", write_csv(tmp_path / "t.csv", rows[1:]))
    assert found["left_out"] == {"q0": "no p0, m (untrained)"}
    assert (found["num_items"], found["num_groups"]) == (59, 30)
    assert found["results"][0]["ceiling"]["unit"] == "group"


def test_accuracies_without_items_are_naive(tmp_path, stemma_command):
    rng = np.random.default_rng(0)
    rows = [
        {"task": f"t{t}", "recipe": f"p{p}", "checkpoint": f"m{m}", "accuracy": rng.uniform(0.2, 0.9)}
        for t in range(6) for p in range(3) for m in range(4)
    ]  # fmt: skip
    path = write_csv(tmp_path / "t.csv", rows)
    found = strict_json(stemma_command("analyse", "elicitation", path, "--json"))
    assert (found["naive"], found["claims"], found["num_tasks"]) == (True, [], 6)
    by_hand = [
        max(row["accuracy"] for row in rows if (row["task"], row["checkpoint"]) == (f"t{t}", "m1"))
        for t in range(6)
    ]
    assert found["results"][1]["naive_maximum"] == pytest.approx(np.mean(by_hand))
    assert "naive" in stemma_command("analyse", "elicitation", path).out


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: without(rows, "correct"), "no column 'correct'"),
        (lambda rows: without(rows, "item"), "'task'"),
        (lambda rows: [rows[0] | {"correct": 55}, *rows[1:]], "row 1, column 'correct' is 55"),
        (lambda rows: [rows[0] | {"correct": "yes"}, *rows[1:]], "row 1, column 'correct'"),
        (lambda rows: [rows[0] | {"arm": "after"}, *rows[1:]], "column 'arm' is 'after'"),
        (lambda rows: [*rows, rows[0]], "are both of item q0"),
        (lambda rows: [row for row in rows if row["prompt"] == "p0"], "one recipe"),
        (lambda rows: rows[: len(rows) // 2 + 10], "0 items under every recipe"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused(tmp_path, change, expected):
    path = write_csv(tmp_path / "t.csv", change(answer_rows(20)))
    with pytest.raises(UserError) as caught:
        analyse("elicitation", path)
    assert expected in str(caught.value)


def test_an_unknown_recipe_is_refused(tmp_path):
    with pytest.raises(UserError, match="no recipe 'p9'"):
        analyse("elicitation", write_csv(tmp_path / "t.csv", answer_rows(20)), recipe="p9")


def test_published_accuracies_as_far_as_their_shape_allows():
    path = DATA / "train-before-test.json"
    if not path.is_file():
        pytest.skip("the published table is not at hand")
    found = analyse("elicitation", path)
    assert (found["naive"], len(found["checkpoints"])) == (True, 61)
    assert found["recipes"] == ["train_before_test", "direct_eval"]
    assert found["num_left_out"] == 3
    # how often two models change order between the two settings
    published = json.loads(path.read_text())
    tasks = [task for task in published["direct_eval"] if task not in found["left_out"]]
    flipped = compared = 0
    for task in tasks:
        scores = [published[setting][task] for setting in found["recipes"]]
        for k, first in enumerate(found["checkpoints"]):
            for second in found["checkpoints"][:k]:
                product = np.prod([side[first] - side[second] for side in scores])
                flipped, compared = flipped + (product < 0), compared + (product != 0)
    flips = found["flips"]["of_checkpoints_across_recipes"]
    assert flips["num_flipped"] == pytest.approx(flipped, abs=2)
    assert flips["num_compared"] == pytest.approx(compared, abs=2)

"""`stemma analyse agreement`: what is left out, which setting comes first, the published values."""

import itertools
import json

import numpy as np
import pytest
from tests.study.analysed import DATA, score_rows, strict_json, write_csv


def test_agreement_says_what_it_left_out(tmp_path, stemma_command):
    rows = score_rows()
    rows += [{"task": "loss", "model": f"m{m}", "before": 1.5 + m, "after": 1.4 + m} for m in range(16)]
    rows += [
        {"task": "some", "model": f"m{m}", "before": 0.5 + m / 99, "after": 0.4 + m / 99} for m in range(7)
    ]
    path = write_csv(tmp_path / "t.csv", rows)
    found = strict_json(stemma_command("analyse", "agreement", path, "--json"))
    assert found["tasks"] == ["t0", "t1", "t2", "t3"]
    assert "not in [-1, 1]" in found["left_out"]["loss"]
    assert found["left_out"]["some"] == "9 of 16 models lack it"
    assert found["settings"]["after"]["value"] > found["settings"]["before"]["value"]
    assert found["difference"]["lo"] > 0
    asked = strict_json(stemma_command("analyse", "agreement", path, "--tasks", "t0,loss,some", "--json"))
    assert (asked["num_models"], asked["num_task_pairs"], len(asked["models_left_out"])) == (7, 3, 9)
    turned = strict_json(
        stemma_command(
            "analyse", "agreement", path, "--tasks", "t0,loss", "--lower-is-better", "loss", "--json"
        )
    )
    plain = strict_json(stemma_command("analyse", "agreement", path, "--tasks", "t0,loss", "--json"))
    assert turned["settings"]["before"]["value"] == pytest.approx(-plain["settings"]["before"]["value"])
    assert turned["lower_is_better"] == ["loss"]


def test_agreement_never_guesses_which_setting_comes_first(tmp_path, stemma_command):
    rows = [
        {"one" if k == "before" else "two" if k == "after" else k: v for k, v in row.items()}
        for row in score_rows()
    ]
    path = write_csv(tmp_path / "t.csv", rows)
    ran = stemma_command("analyse", "agreement", path, "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "--before and --after" in ran.err
    named = strict_json(
        stemma_command("analyse", "agreement", path, "--before", "two", "--after", "one", "--json")
    )
    assert named["of"] == "one less two"
    assert named["difference"]["value"] < 0


def test_agreement_resamples_families_where_they_are_named(tmp_path, stemma_command):
    rows = [row | {"family": f"f{int(row['model'][1:]) // 2}", "remark": "none"} for row in score_rows()]
    found = strict_json(stemma_command("analyse", "agreement", write_csv(tmp_path / "t.csv", rows), "--json"))
    assert (found["difference"]["n"], found["difference"]["unit"]) == (8, "family")
    rows[0]["family"] = "other"
    ran = stemma_command("analyse", "agreement", write_csv(tmp_path / "t.csv", rows))
    assert (ran.code, ran.out) == (1, "")
    assert "A model has one family" in ran.err


def nested(rows):
    """{setting: {task: {model: score}}} with standard errors beside it."""
    found = {"train_before_test": {}, "direct_eval": {}, "direct_eval_stderr": {"t0": {"m0": 0.1}}}
    for row in rows:
        for setting, column in (("direct_eval", "before"), ("train_before_test", "after")):
            found[setting].setdefault(row["task"], {})[row["model"]] = row[column]
    return found


def loop_tau(tasks):
    """Mean over pairs of tasks of (agreeing - disagreeing) / pairs of models, without ties."""
    taus = []
    for one, other in itertools.combinations(tasks.values(), 2):
        signs = [
            np.sign((one[a] - one[b]) * (other[a] - other[b]))
            for a, b in itertools.combinations(list(one), 2)
        ]
        taus.append(np.mean(signs))
    return np.mean(taus)


def test_nested_scores_give_their_published_values(tmp_path, stemma_command):
    scores = nested(score_rows())
    path, stated = (
        tmp_path / "t.json",
        [loop_tau(scores[name]) for name in ("direct_eval", "train_before_test")],
    )
    shape = (4, 16, set())
    path.write_text(json.dumps(scores))
    if DATA.is_dir():
        path, stated = DATA / "train-before-test.json", [0.517, 0.755]
        shape = (24, 61, {"wiki_2025", "arxiv_2025", "stackexchange_2025"})
    found = strict_json(stemma_command("analyse", "agreement", path, "--json"))
    values = [found["settings"][name]["value"] for name in ("direct_eval", "train_before_test")]
    assert values == pytest.approx(stated, abs=5e-4)
    assert (len(found["tasks"]), found["num_models"], set(found["left_out"])) == shape

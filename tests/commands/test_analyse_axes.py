"""`stemma analyse axes` on logs that lm-evaluation-harness wrote, on older shapes, and on tables."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stemmatics.commands.analyse import analyse
from stemmatics.core.errors import UserError

LOGS = Path(__file__).parents[1] / "golden" / "logs"


def rows_of(*paths, **settings):
    result = analyse("axes", *paths, **settings)
    return {(row["task"], row["metric"], row["filter"]): row for row in result["axes"]}


def samples(folder, task):
    (path,) = folder.glob(f"samples_{task}_2*.jsonl")
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def copies(tmp_path):
    return [Path(shutil.copytree(LOGS / name, tmp_path / name)) for name in ("base", "tuned")]


def test_values_are_those_of_the_harness():
    rows = rows_of(LOGS / "base", LOGS / "tuned")
    for side, name in (("from_value", "base"), ("to_value", "tuned")):
        (path,) = (LOGS / name).glob("results_*.json")
        results = json.loads(path.read_text())["results"]
        for (task, metric, used), row in rows.items():
            plain = metric.partition(",")[0]
            expected = results[task][f"{plain},{used}"]
            value = row[side]
            if plain == "word_perplexity":
                value = math.exp(value)
            elif plain == "bits_per_byte":
                value /= math.log(2)
            assert value == pytest.approx(expected, rel=1e-9), (task, metric)


def test_a_row_a_filter_does_not_double_the_items():
    rows = rows_of(LOGS / "base", LOGS / "tuned")
    generated = [row for (task, _, _), row in rows.items() if task == "words_generate"]
    assert [row["filter"] for row in generated] == ["strict", "letters"]
    assert [row["n"] for row in generated] == [24, 24]
    assert all(row["from_chars"] > 0 for row in generated)
    # sub-tasks of a group are compared, the group is not counted again
    assert {task for task, _, _ in rows} == {"words_a", "words_b", "words_generate", "words_perplexity"}


def test_a_perplexity_is_a_likelihood_and_lower_is_better():
    row = rows_of(LOGS / "base", LOGS / "tuned")["words_perplexity", "word_perplexity, nats/word", "none"]
    assert row["lower_is_better"]
    assert row["difference"] < 0
    assert row["gained"] > row["lost"]
    nll = [
        [-row["word_perplexity"][0] for row in samples(LOGS / name, "words_perplexity")[1]]
        for name in ("base", "tuned")
    ]
    assert row["gained"] == sum(after < before for before, after in zip(*nll, strict=True))


def test_items_are_joined_by_their_hashes_and_the_others_are_named(copies):
    tuned = copies[1]
    before = rows_of(*copies)["words_a", "acc", "none"]
    path, rows = samples(tuned, "words_a")
    order = np.random.default_rng(0).permutation(len(rows))
    write(path, [{**rows[index], "doc_id": 1000 + place} for place, index in enumerate(order)])
    assert rows_of(*copies)["words_a", "acc", "none"] == before
    write(path, [row for row in rows if row["doc_id"] not in (3, 7)])
    row = rows_of(*copies)["words_a", "acc", "none"]
    assert (row["n"], row["num_unmatched"], row["unmatched"]) == (22, 2, ["3", "7"])


def test_a_question_that_is_asked_twice_is_paired_twice(copies):
    for folder in copies:
        path, rows = samples(folder, "words_a")
        write(path, [*rows, rows[0]])
    row = rows_of(*copies)["words_a", "acc", "none"]
    assert (row["n"], row["num_unmatched"]) == (25, 0)


def test_other_prompts_are_refused(copies):
    path, rows = samples(copies[1], "words_b")
    write(path, [{**row, "prompt_hash": "0" * 64} if row["doc_id"] == 5 else row for row in rows])
    with pytest.raises(UserError, match="other prompts on words_b") as refused:
        rows_of(*copies)
    assert "1 of 24 items differ, the first is 5" in refused.value.why


def test_another_version_of_a_task_is_refused(copies):
    (path,) = copies[1].glob("results_*.json")
    content = json.loads(path.read_text())
    content["versions"]["words_a"] = 2.0
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"words_a has version 1.0 in base and 2.0 in tuned"):
        rows_of(*copies)


def test_of_several_runs_in_a_folder_the_latest_counts(copies):
    path, rows = samples(copies[1], "words_a")
    older = path.with_name("samples_words_a_2020-01-01T00-00-00.000000.jsonl")
    write(older, [{**row, "acc": 0.0} for row in rows])
    assert rows_of(*copies)["words_a", "acc", "none"]["to_value"] > 0


def test_the_older_shape_is_read(copies, tmp_path):
    """Before 0.4.3: a JSON list, without hashes, filter or names of metrics; arguments as lists."""
    files = []
    for folder in copies:
        old = []
        for row in samples(folder, "words_a")[1]:
            arguments = [[part["arg_0"], part["arg_1"]] for part in row["arguments"].values()]
            kept = ("doc_id", "doc", "target", "resps", "filtered_resps", "acc", "acc_norm")
            old.append({**{name: row[name] for name in kept}, "arguments": arguments})
        files.append(tmp_path / f"{folder.name}_words_a.jsonl")
        files[-1].write_text(json.dumps(old, indent=2))
    new = rows_of(*copies)["words_a", "acc", "none"]
    # the task is the file's name there, which two models do not share
    renamed = []
    for file in files:
        folder = tmp_path / "old" / file.stem.partition("_")[0]
        folder.mkdir(parents=True)
        renamed.append(Path(shutil.copy(file, folder / "words_a.jsonl")))
    old = rows_of(*renamed)["words_a", "acc", ""]
    for name in ("n", "from_value", "to_value", "lo", "hi", "p", "gained", "lost"):
        assert old[name] == new[name], name


def table(path, rows):
    names = list(rows[0])
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_of_three_models_and_holm(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        {"model": model, "item": item, "value": int(rng.random() < rate)}
        for model, rate in (("a", 0.5), ("b", 0.55), ("c", 0.9))
        for item in range(200)
    ]
    result = analyse("axes", table(tmp_path / "items.csv", rows))
    assert result["models"] == ["a", "b", "c"]
    first, second = result["axes"]
    assert (first["from"], first["to"], second["to"]) == ("a", "b", "c")
    assert second["p_holm"] == pytest.approx(2 * second["p"])
    assert first["p_holm"] == first["p"]
    assert second["p_holm"] < 0.001


def test_clusters_widen_the_interval(tmp_path):
    rng = np.random.default_rng(0)
    effects = rng.normal(size=30)
    rows = [
        {"model": model, "item": f"{passage}-{item}", "cluster": passage, "value": value}
        for passage in range(30)
        for item in range(8)
        for model, value in (("a", 0.0), ("b", round(effects[passage] + 0.1 * rng.normal(), 6)))
    ]
    path = table(tmp_path / "items.csv", rows)
    (plain,) = analyse("axes", path)["axes"]
    (clustered,) = analyse("axes", path, cluster="cluster")["axes"]
    assert (plain["unit"], clustered["unit"], clustered["num_units"]) == ("item", "group of items", 30)
    assert clustered["hi"] - clustered["lo"] > 2 * (plain["hi"] - plain["lo"])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: [LOGS / "base"], "one log is given"),
        (lambda folder: [LOGS / "base", LOGS / "base"], "two logs are of"),
        (lambda folder: [LOGS / "base", folder / "none"], "does not exist"),
        (lambda folder: [LOGS / "base", folder], "is no evaluation log"),
        (
            lambda folder: [LOGS / "base", table(folder / "t.csv", [{"item": 1, "value": 1}])],
            "no item in common",
        ),
        (lambda folder: [table(folder / "t.csv", [{"question": 1}])] * 2, "has no column"),
    ],
)
def test_what_can_not_be_compared_is_said(tmp_path, make, what):
    with pytest.raises(UserError, match=what):
        analyse("axes", *make(tmp_path))


def test_a_broken_line_is_named(copies):
    path, _ = samples(copies[1], "words_a")
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(UserError, match="line 25 is no JSON"):
        rows_of(*copies)


def test_the_command_prints_a_table_and_json_without_torch(stemma_command):
    ran = stemma_command("analyse", "axes", LOGS / "base", LOGS / "tuned")
    assert ran.code == 0
    assert "base -> tuned" in ran.out
    assert "words_a acc" in ran.out
    ran = stemma_command("analyse", "axes", LOGS / "base", LOGS / "tuned", "--json")
    assert len(ran.json()["axes"]) == 8
    assert stemma_command("analyse", "depth", LOGS / "base", LOGS / "tuned").code == 2
    code = (
        "import sys; from stemmatics.commands.analyse import analyse; "
        f"analyse('axes', {str(LOGS / 'base')!r}, {str(LOGS / 'tuned')!r}); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_logs_of_inspect(tmp_path, monkeypatch):
    pytest.importorskip("inspect_ai", reason="inspect_ai is not installed (extra `inspect`)")
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import match

    # Inspect counts tokens with an encoding that it would download
    words = SimpleNamespace(encode=lambda text, **_settings: text.split())
    monkeypatch.setattr("tiktoken.get_encoding", lambda _name: words)

    def run(name, answers):
        task = Task(
            dataset=[
                Sample(id=number, input=f"What is {number}?", target=str(number)) for number in range(6)
            ],
            scorer=match(),
            name="numbers",
        )
        outputs = [ModelOutput.from_content("mockllm/model", answer) for answer in answers]
        model = get_model("mockllm/model", custom_outputs=outputs)
        evaluate(
            task, model=model, log_dir=str(tmp_path / name), display="none", max_connections=1, max_samples=1
        )
        return tmp_path / name

    first = run("first", ["0", "1", "x", "x", "4", "5"])
    second = run("second", ["0", "1", "2", "3", "x", "5"])
    (row,) = analyse("axes", first, second)["axes"]
    assert (row["n"], row["gained"], row["lost"]) == (6, 2, 1)
    assert row["from_value"] == pytest.approx(4 / 6)
    assert (row["gained_items"], row["lost_items"]) == (["2", "3"], ["4"])

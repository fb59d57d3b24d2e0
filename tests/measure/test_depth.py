"""Depth from a command to the report: its numbers follow from the sums, and the sums hold no text."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.lm.tiny_checkpoints import make_model, make_tokenizer

from stemmatics.commands.show import load_run

WORDS = ["the", "scribe", "copied", "text", "and", "a", "copy", "kept", "faults", "in", "1234", "bottles"]
NUM_PROMPTS, LAYERS = 18, 4


def write_records(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def learn(model, rows):
    """A few updates on the texts, so that noise on the weights costs something."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for ids in rows:
            ids_1L = torch.tensor([ids])
            model(ids_1L, labels=ids_1L).loss.backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A base, a descendant that lost something, and a declared temperature; prompts and a text."""
    root = tmp_path_factory.mktemp("depth")
    model = make_model(num_hidden_layers=LAYERS, max_position_embeddings=96, initializer_range=0.3)
    tokenizer = make_tokenizer()
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 12))) for _ in range(NUM_PROMPTS)]
    learn(model, [tokenizer.encode(text) for text in texts])
    generator = torch.Generator().manual_seed(1)
    for name in ("base", "tuned"):
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.04 * torch.randn(weight.shape, generator=generator))
    rules = [{"accepted": ["the"]}, {"format": ".*"}, {}]
    write_records(
        root / "prompts.jsonl",
        [{"prompt": text, **rules[number % 3]} for number, text in enumerate(texts)],
    )
    write_records(root / "text.jsonl", [{"text": f"{text} {text}"} for text in texts])
    (root / "stemma.yaml").write_text(
        json.dumps(
            {
                "name": "tiny",
                "checkpoints": {
                    "base": {"source": str(root / "base")},
                    "tuned": {"source": str(root / "tuned"), "base": "base"},
                },
                "stages": {
                    "hot": {
                        "kind": "alter",
                        "init": "base",
                        "base": "base",
                        "change": "temperature",
                        "scale": 1.5,
                    },
                    "noisy": {
                        "kind": "alter",
                        "init": "base",
                        "base": "base",
                        "change": "noise",
                        "scale": 0.2,
                    },
                },
                "corpora": {
                    "prompts": {"path": str(root / "prompts.jsonl"), "role": "data"},
                    "text": {"path": str(root / "text.jsonl")},
                },
                "measures": {
                    "depth": {
                        "prompts": "prompts",
                        "boundaries": "profile",
                        "max_new_tokens": 24,
                        "forced_tokens": 6,
                    }
                },
            }
        )
    )
    return root


@pytest.fixture(scope="module")
def run(folder, stemma_command):
    root = folder / "run"
    ran = stemma_command("run", folder / "stemma.yaml", "--out", root, "--json")
    assert ran.code == 0, ran.err
    return root, load_run(root).results


def only(results, quantity, descendant="tuned", **subject):
    """One result; where there is a choice, at the first disagreements."""
    if quantity in {"prompts", "top_1_changed", "floor.interaction"} or "readout" in subject:
        subject = {"support": "first", **subject}
    return results.only(f"depth.{quantity}", descendant=descendant, **subject)


def rows_of(root, table, key):
    return pq.read_table(root / "tables" / table / f"{key}.parquet").to_pylist()


@pytest.mark.parametrize("support", ["first", "three_cells"])
def test_effects_are_means_of_the_stored_margins(run, support):
    root, results = run
    main = only(results, "interaction", readout="descendant", support=support)
    (key,) = main.facts
    rows = [
        row
        for row in rows_of(root, "cells", key)
        if (row["support"], row["readout"], row["arm"], row["boundary"]) == (support, "descendant", "main", 2)
    ]
    assert main.n == len(rows) >= 10
    after_base = np.mean([row["base_desc"] - row["base_base"] for row in rows])
    after_descendant = np.mean([row["desc_desc"] - row["desc_base"] for row in rows])
    assert main.value == pytest.approx(after_descendant - after_base, rel=1e-9)
    effect = only(results, "effect_after_base", readout="descendant", support=support)
    assert effect.value == pytest.approx(after_base)
    if support == "three_cells":
        profile = only(results, "profile.interaction", boundary="002")
        assert profile.value == pytest.approx(main.value, rel=1e-9)
    changed = np.mean([row["changed_after_desc"] for row in rows])
    share = only(results, "top_1_changed", earlier_state="descendant", support=support)
    assert share.value == pytest.approx(changed)


def test_paths_hold_the_margins_of_the_crossing(run):
    root, results = run
    (cross,) = only(results, "interaction", readout="descendant", support="three_cells").facts
    record = json.loads((root / "facts" / f"{cross}.json").read_text())
    wanted = [row for row in rows_of(root, "cells", cross) if (row["arm"], row["boundary"]) == ("main", 2)]
    on_paths = {
        (row["index"], row["readout"]): row
        for row in rows_of(root, "path_cells", record["needs"]["events"])
        if row["support"] == "three_cells"
    }
    assert len(wanted) == len(on_paths) >= 20
    for row in wanted:
        ours = on_paths[row["index"], row["readout"]]
        for cell in ("base_base", "base_desc", "desc_base", "desc_desc", "distance"):
            assert ours[cell] == pytest.approx(row[cell], abs=2e-4)
        if row["readout"] == "descendant":
            # what chose the event: the sum of both effects prefers the second token, the base the first
            assert row["base_base"] <= 0 <= row["base_desc"] + row["desc_base"] - row["base_base"] + 1e-4
    # first disagreements lie on the same paths
    main = only(results, "interaction", readout="descendant")
    first = [
        row["desc_desc"] - row["desc_base"] - row["base_desc"] + row["base_base"]
        for row in rows_of(root, "path_cells", record["needs"]["events"])
        if (row["support"], row["readout"]) == ("first", "descendant")
    ]
    assert (np.mean(first), len(first)) == (pytest.approx(main.value, abs=1e-4), main.n)


def test_losses_of_paths_are_those_of_the_cells(run):
    root, results = run
    losses = {
        cell: only(results, "path_loss", cell=cell)
        for cell in ("base_base", "base_desc", "desc_base", "desc_desc")
    }
    (key,) = losses["base_base"].facts
    rows = [row for row in rows_of(root, "paths", key) if row["num_tokens"]]
    for cell, loss in losses.items():
        rate = sum(row[f"nll_{cell}"] for row in rows) / sum(row["num_tokens"] for row in rows)
        assert loss.value == pytest.approx(rate)
    # greedy: each of the path's tokens has at least an even share of the 320 ids
    assert all(row["nll_base_base"] <= row["num_tokens"] * np.log(320) for row in rows)
    assert results.category("depth.fit", descendant="tuned").n == len(rows)


def test_readouts_are_the_owners(run):
    root, results = run
    (key,) = only(results, "interaction", readout="own", support="three_cells").facts
    rows = [
        row
        for row in rows_of(root, "cells", key)
        if (row["support"], row["arm"], row["boundary"]) == ("three_cells", "main", 2)
    ]
    by = {(row["event"], row["readout"]): row for row in rows}
    events = {row["event"] for row in rows}
    (first,) = only(results, "interaction", readout="descendant").facts
    own_margins = {
        (row["event"], row["readout"]): row
        for row in rows_of(root, "cells", first)
        if (row["support"], row["arm"], row["boundary"]) == ("first", "main", 2)
    }
    # under its own readout a model prefers its own token: that is what makes a first disagreement
    assert own_margins
    assert all(
        row["base_base"] <= 0 if readout == "base" else row["desc_desc"] >= 0
        for (_, readout), row in own_margins.items()
    )
    own = np.mean(
        [
            by[event, "descendant"]["desc_desc"]
            - by[event, "base"]["desc_base"]
            - by[event, "descendant"]["base_desc"]
            + by[event, "base"]["base_base"]
            for event in events
        ]
    )
    assert only(results, "interaction", readout="own", support="three_cells").value == pytest.approx(own)


def test_identity_is_asserted_and_printed(run):
    _, results = run
    for name in ("tuned", "hot", "noisy"):
        assert only(results, "identity_error", name).value <= 1e-5


def test_a_pair_that_always_agrees_has_no_events(run):
    _, results = run
    # a temperature changes the head alone, so greedy replies are the same
    prompts = only(results, "prompts", "hot", outcome="event")
    assert (prompts.value, prompts.n) == (0, NUM_PROMPTS)
    assert only(results, "interaction", "hot", readout="descendant", arm="main").is_known is False
    assert results.category("depth.states", descendant="hot") is None
    assert results.category("depth.states", descendant="tuned").value == "different"
    assert only(results, "distance").value > 0.05


def test_the_floor_costs_as_much_as_the_descendant_lost(run):
    root, results = run
    lost = only(results, "floor.loss", "noisy")
    assert lost.value > 0
    (key,) = lost.facts
    (row,) = rows_of(root, "noise_scale", key)
    target = row["descendant_nll_sum"] - row["base_nll_sum"]
    assert row["noised_nll_sum"] - row["base_nll_sum"] == pytest.approx(target, rel=0.02)
    assert lost.value == pytest.approx(target / row["num_bytes"])
    assert only(results, "floor.interaction", "noisy").tag == "floor"
    assert only(results, "floor.interaction", "noisy").n > 0


def test_forced_tokens_are_judged_where_there_is_a_rule(run):
    root, results = run
    forced = only(results, "forced")
    (key,) = forced.facts
    rows = rows_of(root, "forced", key)
    assert {row["index"] % 3 for row in rows} == {0, 1}
    assert forced.n == len(rows)
    gained = sum(row["valid_after_descendant"] - row["valid_after_base"] for row in rows)
    assert forced.value == pytest.approx(gained / len(rows))
    # any first line fits the format of one prompt in three
    assert all(row["valid_after_base"] for row in rows if row["index"] % 3 == 1)


def test_controls_and_pairs(run):
    _, results = run
    controls = {estimate.subject["control"] for estimate in results.all("depth.control.interaction")}
    assert controls >= {"later", "earlier", "permuted", "interpolated 0.25", "interpolated 0.5"}
    assert {estimate.subject["over"] for estimate in results.all("depth.all.interaction")} == {
        "prompts",
        "families",
    }
    means = [
        only(results, "interaction", name, readout="descendant", support="three_cells").value
        for name in ("tuned", "noisy")
    ]
    # both pairs are of one family, hot has no event: the balanced mean is that of the two
    assert results.only("depth.all.interaction", over="prompts").value == pytest.approx(np.mean(means))
    assert results.only("depth.all.pairs").value == 2
    assert results.only("depth.all.families").value == 1


def test_the_report_holds_and_altered_margins_do_not(run, tmp_path, stemma_command):
    root, results = run
    verified = stemma_command("verify", root)
    assert verified.code == 0, verified.out
    copy = shutil.copytree(root, tmp_path / "copy")
    (key,) = only(results, "interaction", readout="descendant").facts
    path = copy / "tables" / "cells" / f"{key}.parquet"
    table = pq.read_table(path)
    column = table.column_names.index("desc_desc")
    altered = table.set_column(
        column, table.schema.field(column), pa.array([x + 1 for x in table["desc_desc"].to_pylist()])
    )
    pq.write_table(altered.replace_schema_metadata(table.schema.metadata), path, compression="zstd")
    assert stemma_command("verify", copy).code == 1


def test_text_and_ids_stay_private(run, tmp_path, stemma_command):
    root, _ = run
    texts = [json.loads(line)["prompt"] for line in (root.parent / "prompts.jsonl").read_text().splitlines()]
    files = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "private"]
    for path in files:
        if path.suffix == ".parquet":
            assert not {"prefix_ids", "base_id", "descendant_id"} & set(pq.read_schema(path).names)
        raw = path.read_bytes()
        assert not any(len(text) > 15 and text.encode() in raw for text in texts), path
    private = [json.loads(line) for path in (root / "private").iterdir() for line in path.open()]
    assert all({"prefix_ids", "base_id", "descendant_id"} <= row.keys() for row in private)
    exported = stemma_command("export", root, "--out", tmp_path / "out")
    assert exported.code == 0, exported.err
    out = tmp_path / "out"
    assert (out / "cells.csv").is_file()
    assert not [path for path in out.rglob("*") if "private" in path.relative_to(out).as_posix()]


def test_a_manifest_gives_the_events_again(run, folder, tmp_path, stemma_command):
    root, results = run
    main = only(results, "interaction", readout="descendant")
    (key,) = main.facts
    record = json.loads((root / "facts" / f"{key}.json").read_text())
    events = root / "private" / f"events-{record['needs']['events']}.jsonl"
    rows = [json.loads(line) for line in events.open()]
    write_records(tmp_path / "events.jsonl", [row for row in rows if row["support"] == "first"])
    stemma = json.loads((folder / "stemma.yaml").read_text())
    stemma["corpora"] = {"events": {"path": str(tmp_path / "events.jsonl"), "role": "data"}}
    stemma["stages"] = {}
    stemma["measures"] = {"depth": {"manifest": "events", "controls": False}}
    (tmp_path / "stemma.yaml").write_text(json.dumps(stemma))
    ran = stemma_command("run", tmp_path / "stemma.yaml", "--out", tmp_path / "run", "--json")
    assert ran.code == 0, ran.err
    given = only(load_run(tmp_path / "run").results, "interaction", readout="descendant", support="manifest")
    assert (given.value, given.n) == (pytest.approx(main.value, rel=1e-5), main.n)


def test_packaged_instructions_are_read_where_no_prompts_are_named(folder, tmp_path, stemma_command):
    stemma = json.loads((folder / "stemma.yaml").read_text())
    stemma["measures"] = {
        "depth": {"descendants": ["tuned"], "floor": "none", "max_prompts": 6, "max_new_tokens": 4}
    }
    (tmp_path / "stemma.yaml").write_text(json.dumps(stemma))
    ran = stemma_command("run", tmp_path / "stemma.yaml", "--out", tmp_path / "run", "--json")
    assert ran.code == 0, ran.err
    found = load_run(tmp_path / "run").results
    prompts = found.only("depth.prompts", events="instructions", support="three_cells", outcome="event")
    assert prompts.n == 6
    # these checkpoints have no chat template: the plain prompt is read
    assert found.only("depth.rendered", events="instructions").value == 0

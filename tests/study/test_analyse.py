"""`stemma analyse`: estimates from tables that somebody else made, checked against their own loops."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.study.analysed import (
    DATA,
    LN2,
    event_rows,
    pair_rows,
    prior_rows,
    score_rows,
    strict_json,
    write_csv,
)

TABLES = {"recovery": pair_rows, "depth": event_rows, "prior": prior_rows, "agreement": score_rows}


@pytest.mark.parametrize("measure", TABLES)
def test_every_kind_of_file_gives_the_same_numbers(measure, tmp_path, stemma_command):
    rows = TABLES[measure]()
    write_csv(tmp_path / "t.csv", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    (tmp_path / "t.json").write_text(json.dumps(rows))
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    found = {}
    for kind in ("csv", "parquet", "json", "jsonl"):
        ran = stemma_command("analyse", measure, tmp_path / f"t.{kind}", "--json")
        assert (ran.code, ran.err) == (0, "")
        found[kind] = strict_json(ran)
        assert found[kind].pop("table") == f"t.{kind}"
    assert all(one == found["csv"] for one in found.values())


@pytest.mark.parametrize("measure", TABLES)
def test_text_fits_80_columns_and_has_every_interval(measure, tmp_path, monkeypatch, stemma_command):
    monkeypatch.setenv("COLUMNS", "80")
    path = write_csv(tmp_path / "t.csv", TABLES[measure]())
    ran = stemma_command("analyse", measure, path)
    assert (ran.code, ran.err) == (0, "")
    long = [line for line in ran.out.splitlines() if len(line.rstrip()) > 80]
    assert not long
    assert ran.out.count("[") >= 3
    other = stemma_command("analyse", measure, path, "--seed", "1")
    assert other.out != ran.out


def test_recovery_is_the_formulas_in_nats(tmp_path, stemma_command):
    rows = pair_rows() + pair_rows("code", "bits_per_byte", seed=1)
    found = strict_json(stemma_command("analyse", "recovery", write_csv(tmp_path / "t.csv", rows), "--json"))
    assert list(found["corpora"]) == ["prose", "code"]
    for corpus, scale in (("prose", 1.0), ("code", LN2)):
        own = [row for row in rows if row["corpus"] == corpus]
        data = found["corpora"][corpus]
        residual = [scale * (row["recovered"] - row["matched_base"]) for row in own]
        gaps = [abs(a - b) for a, b in itertools.combinations(residual, 2)]
        assert data["num_pairs"] == len(own) == 18
        assert data["mean_residual"]["value"] == pytest.approx(np.mean(residual), abs=1e-12)
        assert data["delta95"]["value"] == pytest.approx(np.quantile(gaps, 0.95), abs=1e-12)
        means = {
            f: np.mean([r for r, o in zip(residual, own, strict=True) if o["family"] == f])
            for f in {o["family"] for o in own}
        }
        errors = [
            abs(r - np.mean([m for f, m in means.items() if f != o["family"]]))
            for r, o in zip(residual, own, strict=True)
        ]
        assert data["lofo90"]["value"] == pytest.approx(np.quantile(errors, 0.9), abs=1e-12)
        assert sum(band["pairs"] for band in data["misorder"]) == 18 * 17 // 2
        assert data["rank_reversals"]["value"] == len(data["rank_reversals"]["pairs"]) > 0
        for name in ("delta95", "lofo90", "spearman_recovered_matched", "kendall_native_rebased"):
            assert data[name]["lo"] <= data[name]["value"] <= data[name]["hi"]
            assert (data[name]["n"], data[name]["unit"], data[name]["level"]) == (9, "family", 0.95)
    assert found["across_corpora"][0]["num_pairs"] == 18
    assert found["corpora"]["code"]["pairs"][0]["drop"] == pytest.approx(
        LN2 * (rows[18]["native"] - rows[18]["recovered"])
    )


def test_sizes_are_read_where_there_is_a_column(tmp_path, stemma_command):
    rows = pair_rows()
    for k, row in enumerate(rows):
        row |= {"parameters": 10 ** (8 + k % 3), "pipeline": "light" if k < 9 else "heavy"}
        row["recovered"] = row["matched_base"] + 0.01 * (k % 3)
    found = strict_json(stemma_command("analyse", "recovery", write_csv(tmp_path / "t.csv", rows), "--json"))
    size = found["corpora"]["prose"]["size"]
    assert size["overall"]["value"] == pytest.approx(0.01)
    assert set(size["pipelines"]) == {"light", "heavy"}
    assert size["pipelines"]["light"]["value"] == pytest.approx(0.01)


def test_depth_chooses_a_readout_and_splits_categories(tmp_path, stemma_command):
    rows = event_rows()
    path = write_csv(tmp_path / "t.csv", rows)
    for words, readout in (([], "common_descendant"), (["--readout", "common-base"], "common_base")):
        found = strict_json(stemma_command("analyse", "depth", path, "--json", *words))
        for name, own in (("overall", rows), ("A", rows[::2])):
            data = found["overall"] if name == "overall" else found["categories"][name]
            first = np.mean([r[f"{readout}_base_desc"] - r[f"{readout}_base_base"] for r in own])
            second = np.mean([r[f"{readout}_desc_desc"] - r[f"{readout}_desc_base"] for r in own])
            assert data["effect_after_base"]["value"] == pytest.approx(first, abs=1e-12)
            assert data["interaction"]["value"] == pytest.approx(second - first, abs=1e-12)
            assert data["portable_share"]["value"] == pytest.approx(first / second, abs=1e-12)
            assert data["interaction"]["n"] == len(own)
            assert 0 < data["interaction"]["sign_flip_p"] < 0.01
    assert found["positive_margin"]["common-base"]["value"] == np.mean(
        [r["common_base_base_base"] > 0 for r in rows]
    )


def test_depth_says_which_support_a_table_has(tmp_path, stemma_command):
    plain = event_rows(30)
    numbers = []
    for support, words in (
        (None, "the table does not say"),
        ("first", "first disagreement (published)"),
        ("three_cells", "measured by the fourth"),
    ):
        rows = [row | ({} if support is None else {"support": support}) for row in plain]
        path = write_csv(tmp_path / "t.csv", rows)
        found = strict_json(stemma_command("analyse", "depth", path, "--json"))
        assert found["support"]["value"] == (support or "not stated")
        assert words in found["support"]["says"]
        assert f"support {support or 'not stated'}: " in stemma_command("analyse", "depth", path).out
        numbers.append(found["overall"])
    # published tables are read as they were
    assert numbers[0] == numbers[1] == numbers[2]
    mixed = [row | {"support": "first" if k % 2 else "three_cells"} for k, row in enumerate(plain)]
    ran = stemma_command("analyse", "depth", write_csv(tmp_path / "t.csv", mixed))
    assert ran.code == 1
    assert "several supports: three_cells, first" in ran.err


def test_depth_balances_families_and_flags_a_state_that_makes_no_difference(tmp_path, stemma_command):
    rows = event_rows(40)
    for k, row in enumerate(rows):
        row |= {"pair": "abc"[k % 3], "family": "xxy"[k % 3]}
        for cell in ("base", "desc"):
            row[f"common_descendant_desc_{cell}"] = row[f"common_descendant_base_{cell}"]
    found = strict_json(stemma_command("analyse", "depth", write_csv(tmp_path / "t.csv", rows), "--json"))
    assert found["degenerate"] is True
    assert found["overall"]["interaction"]["value"] == 0
    assert found["overall"]["num_families"] == 2
    first = [
        np.mean([r["common_descendant_base_desc"] - r["common_descendant_base_base"] for r in rows[k::3]])
        for k in range(3)
    ]
    assert found["overall"]["effect_after_base"]["value"] == pytest.approx(
        (first[0] + first[1]) / 4 + first[2] / 2
    )
    assert found["overall"]["between_families"]["interaction"]["note"].startswith("few families")


def test_prior_is_ratios_of_sums(tmp_path, stemma_command):
    rows = prior_rows()
    found = strict_json(stemma_command("analyse", "prior", write_csv(tmp_path / "t.csv", rows), "--json"))
    total = {name: sum(row[name] for row in rows) for name in rows[0] if name != "doc_id"}
    delta = total["new_none"] - total["old_none"]
    new, old = total["new_none"] - total["new_bias"], total["old_none"] - total["old_bias"]
    arm = found["arms"]["bias"]
    assert found["delta"]["value"] == pytest.approx(delta / total["num_tokens"], abs=1e-12)
    assert arm["S_card"]["value"] == pytest.approx(new / delta, abs=1e-12)
    assert arm["S_sym"]["value"] == pytest.approx((new - old) / delta, abs=1e-12)
    assert arm["R_new"]["value"] == pytest.approx(new / total["num_tokens"], abs=1e-12)
    assert arm["R_old"]["value"] == pytest.approx(old / total["num_tokens"], abs=1e-12)
    assert arm["S_card"]["lo"] < arm["S_card"]["value"] < arm["S_card"]["hi"]
    assert (arm["S_card"]["n"], found["note"]) == (60, "")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (prior_rows(increase=0.0, seed=1), "includes 0"),
        (prior_rows(increase=-0.1), "the descendant improved"),
        (prior_rows(1), "fewer than two units"),
    ],
    ids=["no increase", "improved", "one document"],
)
def test_prior_gives_no_share_without_an_increase(rows, says, tmp_path, stemma_command):
    path = write_csv(tmp_path / "t.csv", rows)
    found = strict_json(stemma_command("analyse", "prior", path, "--json"))
    assert says in found["note"]
    assert found["delta"]["value"] is not None
    for share in ("S_card", "S_sym"):
        data = found["arms"]["bias"][share]
        assert (data["value"], data["lo"], data["hi"]) == (None, None, None)
        assert says in data["note"]
    assert says in " ".join(stemma_command("analyse", "prior", path).out.split())


def test_near_duplicates_are_resampled_together(tmp_path, stemma_command):
    rows = prior_rows()
    doubled = [row | {"doc_id": f"{row['doc_id']}{k}", "group": row["doc_id"]} for row in rows for k in "ab"]
    one = strict_json(stemma_command("analyse", "prior", write_csv(tmp_path / "t.csv", rows), "--json"))
    (tmp_path / "two").mkdir()
    two = strict_json(
        stemma_command("analyse", "prior", write_csv(tmp_path / "two/t.csv", doubled), "--json")
    )
    assert two["arms"]["bias"]["S_card"]["n"] == 60
    assert two["arms"]["bias"]["S_card"]["lo"] == pytest.approx(one["arms"]["bias"]["S_card"]["lo"], abs=1e-9)


def test_events_give_their_published_values(tmp_path, stemma_command):
    rows = event_rows()
    path = write_csv(tmp_path / "t.csv", rows)
    cells = np.array(
        [
            [row[f"common_descendant_{c}"] for c in ("base_base", "base_desc", "desc_base", "desc_desc")]
            for row in rows
        ]
    )
    first, second = (cells[:, 1] - cells[:, 0]).mean(), (cells[:, 3] - cells[:, 2]).mean()
    stated, positive = [first, second, second - first], (cells[:, 0] > 0).mean()
    if DATA.is_dir():
        path = DATA / "qwen2.5-32b-factorial.csv"
        stated, positive = [0.9766, 2.4228, 1.4462], 0.079
    found = strict_json(stemma_command("analyse", "depth", path, "--json"))
    data = found["overall"]
    values = [data[name]["value"] for name in ("effect_after_base", "effect_after_descendant", "interaction")]
    assert values == pytest.approx(stated, abs=5e-5)
    assert found["positive_margin"]["common-descendant"]["value"] == pytest.approx(positive, abs=5e-4)
    if DATA.is_dir():
        assert [data["interaction"]["lo"], data["interaction"]["hi"]] == pytest.approx(
            [1.32, 1.57], abs=0.015
        )
        assert found["positive_margin"]["common-base"]["value"] == pytest.approx(0.005, abs=5e-4)
        # published: about half
        assert 0.4 < found["top1_changes"]["after_base"]["value"] < 0.6

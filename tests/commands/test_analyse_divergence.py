"""`stemma analyse divergence`: the measure's quantities from somebody else's sums."""

import csv
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from stemmatics.commands.analyse import analyse
from stemmatics.core.errors import UserError
from stemmatics.math.divergence import NUM_BINS, bin_of, quantile
from stemmatics.store.ledger import Ledger
from stemmatics.study.read import load_results, open_run


def rows_of(seed=0, num_documents=60):
    """Documents with values by token, so that every sum is one of values."""
    draw = np.random.default_rng(seed)
    rows, tokens = [], []
    for number in range(num_documents):
        kl = draw.gamma(0.5, 0.4, size=draw.integers(20, 60))
        tokens.append(kl)
        bins, counts = np.unique(bin_of(kl), return_counts=True)
        rows.append(
            {
                "doc_id": f"d{number}",
                "register": "code" if number % 3 else "prose",
                "num_tokens": len(kl),
                "kl": kl.sum(),
                "js": (kl / (1 + 2 * kl)).sum() / 2,
                "delta_logp": draw.normal(0, 1, len(kl)).sum(),
                "delta_p_squared": draw.uniform(0, 0.1, len(kl)).sum(),
                "same_top1": int(draw.binomial(len(kl), 0.8)),
                "kl_max": kl.max(),
                "bins": bins.tolist(),
                "counts": counts.tolist(),
            }
        )
    return rows, tokens


def write(path, rows):
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, **{k: json.dumps(row[k]) for k in ("bins", "counts")}} for row in rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_means_are_those_of_the_tokens(tmp_path):
    rows, tokens = rows_of()
    data = analyse("divergence", write(tmp_path / "t.jsonl", rows))
    total = data["registers"]["all"]
    every = np.concatenate(tokens)
    assert total["kl"]["value"] == pytest.approx(every.mean())
    assert total["kl"]["lo"] < every.mean() < total["kl"]["hi"]
    assert total["kl_max"]["value"] == every.max()
    squares = sum(row["delta_p_squared"] for row in rows)
    assert total["rms_delta_p"]["value"] == pytest.approx(math.sqrt(squares / len(every)))
    counts = np.bincount(bin_of(every), minlength=NUM_BINS)
    for name, share in (("kl_p50", 0.5), ("kl_p90", 0.9), ("kl_p99", 0.99)):
        assert total[name]["value"] == quantile(counts, share)
        assert total[name]["value"] == pytest.approx(np.quantile(every, share), rel=0.05)
    assert "kl_reverse" not in total
    code = [values for row, values in zip(rows, tokens, strict=True) if row["register"] == "code"]
    assert data["registers"]["code"]["kl"]["value"] == pytest.approx(np.concatenate(code).mean())


def test_the_same_table_in_another_format_gives_the_same_numbers(tmp_path):
    rows, _ = rows_of()
    lines, table = (analyse("divergence", write(tmp_path / f"t.{kind}", rows)) for kind in ("jsonl", "csv"))
    assert lines["registers"] == table["registers"]


def test_intervals_cover_the_truth(tmp_path):
    """The mean of a gamma distribution is its shape times its scale."""
    covered = 0
    for seed in range(60):
        interval = analyse("divergence", write(tmp_path / "t.jsonl", rows_of(seed)[0]))["registers"]["all"][
            "kl"
        ]
        covered += interval["lo"] <= 0.2 <= interval["hi"]
    # 95% of 60, less three standard errors
    assert covered >= 52


def test_a_run_s_own_table_gives_the_run_s_numbers(finished_run, tmp_path, stemma_command):
    run = open_run(finished_run)
    (fact,) = run.request("divergence").facts
    path = tmp_path / "sums.parquet"
    pq.write_table(run.ledger.read(fact.key, "divergence_sums"), path)
    ledger = Ledger(finished_run)
    results = load_results(ledger, ledger.manifest(), "divergence")
    ran = stemma_command("analyse", "divergence", path, "--json")
    assert ran.code == 0, ran.err
    data = ran.json()
    for name, value in data["registers"]["all"].items():
        expected = results.only(f"divergence.{name}", register="all").value
        assert value["value"] == pytest.approx(expected, rel=1e-12), name
    for name, value in data["controls"].items():
        expected = results.only("divergence.control", control=name).value
        assert value["value"] == pytest.approx(expected, rel=1e-12)
    against = results.find("divergence.against_damage")
    assert ("floor" in data) == (against is not None)
    if against is not None:
        assert data["floor"]["against_damage"]["value"] == pytest.approx(against.value, rel=1e-12)
    assert "the base with itself" in stemma_command("analyse", "divergence", path).out


def test_damage_is_read_with_the_pair_on_its_documents(tmp_path):
    rows, _ = rows_of(num_documents=50)
    plain = [{name: row[name] for name in ("doc_id", "num_tokens", "kl")} for row in rows]
    table = [{**row, "comparison": "pair"} for row in plain]
    table += [{**row, "comparison": "pair_on_floor"} for row in plain[:20]]
    for draw, factor in ((1, 0.25), (2, 0.75)):
        damaged = [{**row, "comparison": f"damage-{draw}", "kl": row["kl"] * factor} for row in plain[:20]]
        table += damaged[::-1]
    floor = analyse("divergence", write(tmp_path / "t.jsonl", table))["floor"]
    assert floor["num_draws"] == 2
    assert floor["against_damage"]["value"] == pytest.approx(2.0)
    with pytest.raises(UserError, match="not measured on the documents"):
        analyse("divergence", write(tmp_path / "t.jsonl", table[:-1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kl": -0.1}, "must not be below 0"),
        ({"js": 1e3}, "column 'js' is more than so many tokens can have"),
        ({"same_top1": 1000}, "column 'same_top1'"),
        ({"num_tokens": 0}, "more than so many tokens can have"),
        ({"kl_max": 1e6}, "column 'kl_max'"),
        ({"counts": [1]}, "does not add up"),
        ({"counts": "many"}, "no list of whole numbers"),
        ({"doc_id": "d1"}, "rows 1 and 2"),
        ({"kl": "much"}, "column 'kl'"),
    ],
)
def test_sums_that_no_pair_can_have_are_refused_by_row(change, message, tmp_path):
    rows, _ = rows_of()
    rows[0] |= change
    with pytest.raises(UserError, match="row") as error:
        analyse("divergence", write(tmp_path / "t.jsonl", rows))
    assert message in str(error.value)


def test_a_table_without_the_sum_or_the_pair_is_refused(tmp_path):
    rows, _ = rows_of()
    without = [{name: value for name, value in row.items() if name != "kl"} for row in rows]
    with pytest.raises(UserError, match="no column 'kl'"):
        analyse("divergence", write(tmp_path / "t.jsonl", without))
    other = [{**row, "comparison": "itself"} for row in rows]
    with pytest.raises(UserError, match="no rows of the pair"):
        analyse("divergence", write(tmp_path / "t.jsonl", other))

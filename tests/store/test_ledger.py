"""The run folder: facts are complete or absent, and never mixed up."""

import json
import math
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.store import ledger as ledger_module
from stemmatics.store.files import write_bytes, write_json
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import connect, stored_tables
from stemmatics.store.schema import schemas

FACT = Fact("train", 1, {"steps": 2}, label="made")
ROWS = pa.Table.from_pylist(
    [{"step": 1, "loss": 0.5, "num_tokens": 8}, {"step": 2, "loss": 0.25, "num_tokens": 8}],
    schema=schemas()["training"],
)
MANIFEST = {
    "stemma": {
        "name": "x",
        "checkpoints": {"a": {"source": "/somewhere/model"}},
        "corpora": {"c": {"path": ["/somewhere/c.txt"]}},
    },
    "pins": {},
    "measures": [],
    "facts": [FACT.key],
    "estimates": {},
    "versions": {},
    "hardware": {},
}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "run")


def test_rows_are_read_back_unchanged(ledger):
    ledger.record(FACT, {"training": ROWS}, note="kept")
    assert ledger.has(FACT.key)
    assert ledger.done() == [FACT.key]
    assert ledger.read(FACT.key, "training").to_pylist() == ROWS.to_pylist()
    assert ledger.tables_of(FACT.key) == ["training"]
    assert ledger.fact_record(FACT.key)["note"] == "kept"
    assert [path.name for path in ledger.files_of(FACT.key)] == [f"{FACT.key}.parquet"]


def test_the_record_is_written_last(ledger, monkeypatch):
    """A crash between the table and the record leaves no fact and no incomplete file."""

    def crash(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger_module, "write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        ledger.record(FACT, {"training": ROWS})
    assert [path.name for path in ledger.table_files()] == [f"{FACT.key}.parquet"]
    assert not ledger.has(FACT.key)
    assert ledger.done() == []


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def crash(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"x": math.nan})
    assert not (tmp_path / "x.json").exists()


def test_a_failure_is_remembered_until_the_fact_is_made(ledger):
    ledger.fail(FACT, "because")
    assert ledger.failures()[FACT.key]["reason"] == "because"
    ledger.record(FACT, {"training": ROWS})
    assert ledger.failures() == {}
    ledger.fail(FACT, "again")
    ledger.forget_failures()
    assert ledger.failures() == {}


def test_rows_are_cast_to_the_schema(ledger):
    loose = pa.table({"num_tokens": pa.array([8], pa.int32()), "loss": [1], "step": [1], "more": ["x"]})
    ledger.record(FACT, {"training": loose})
    kept = ledger.read(FACT.key, "training")
    assert kept.schema.names == schemas()["training"].names
    assert kept.schema.types == schemas()["training"].types


@pytest.mark.parametrize(
    "table",
    [pa.table({"step": [1], "loss": [0.1]}), pa.table({"step": ["x"], "loss": [0.1], "num_tokens": [1]})],
)
def test_rows_that_do_not_fit_the_schema_make_no_fact(ledger, table):
    with pytest.raises((KeyError, pa.ArrowInvalid)):
        ledger.record(FACT, {"training": table})
    assert not ledger.has(FACT.key)


def test_another_facts_file_is_refused(ledger):
    other = Fact("train", 1, {"steps": 3})
    ledger.record(FACT, {"training": ROWS})
    ledger.record(other, {"training": ROWS})
    ours, theirs = (ledger.root / "tables" / "training" / f"{fact.key}.parquet" for fact in (FACT, other))
    shutil.copy(theirs, ours)
    with pytest.raises(UserError, match=f"holds another fact's rows.*{other.key[:12]}"):
        ledger.read(FACT.key, "training")


def test_a_file_that_we_did_not_write_is_refused(ledger):
    ledger.record(FACT, {"training": ROWS})
    pq.write_table(ROWS, ledger.root / "tables" / "training" / f"{FACT.key}.parquet")
    with pytest.raises(UserError, match="holds another fact's rows"):
        ledger.read(FACT.key, "training")


@pytest.mark.parametrize(
    ("damage", "message"), [(None, "is missing"), (b"PAR1", "is corrupt"), (b"", "is corrupt")]
)
def test_a_file_that_is_missing_or_broken_is_named(ledger, damage, message):
    ledger.record(FACT, {"training": ROWS})
    path = ledger.root / "tables" / "training" / f"{FACT.key}.parquet"
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(UserError, match=f"{FACT.key}.parquet {message}"):
        ledger.read(FACT.key, "training")


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "{}"])
def test_a_broken_record_is_named(ledger, text):
    ledger.record(FACT, {"training": ROWS})
    (ledger.root / "facts" / f"{FACT.key}.json").write_text(text)
    with pytest.raises(UserError, match=f"{FACT.key}.json can't be read"):
        ledger.fact_record(FACT.key)


def test_dropping_a_fact_leaves_nothing_of_it(ledger):
    ledger.record(FACT, {"training": ROWS})
    ledger.drop(FACT.key)
    assert not ledger.has(FACT.key)
    assert list(ledger.table_files()) == []


def digest_of(root, manifest=MANIFEST, rows=ROWS):
    ledger = Ledger(root)
    ledger.record(FACT, {"training": rows})
    ledger.write_manifest(manifest)
    return ledger.manifest()["digest"]


def test_the_digest_does_not_depend_on_time_and_locations(tmp_path, monkeypatch):
    first = digest_of(tmp_path / "one")
    monkeypatch.setattr("time.time", lambda: 0.0)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    moved = json.loads(json.dumps(MANIFEST).replace("/somewhere/", "/elsewhere/"))
    moved["stemma"]["numerics"] = {"workers": 4}
    assert digest_of(tmp_path / "elsewhere" / "two", moved) == first


@pytest.mark.parametrize(
    "change",
    [
        {"measures": ["loss"]},
        {"pins": {"corpora": {"c": "x"}}},
        {"stemma": {**MANIFEST["stemma"], "seed": 1}},
        {"stemma": {**MANIFEST["stemma"], "numerics": {"dtype": "bfloat16"}}},
        {"stemma": {**MANIFEST["stemma"], "checkpoints": {"a": {"source": "/somewhere/another"}}}},
        {"facts": []},
    ],
)
def test_the_digest_depends_on_the_request(tmp_path, change):
    assert digest_of(tmp_path / "one") != digest_of(tmp_path / "two", {**MANIFEST, **change})


def test_the_digest_depends_on_the_sums(tmp_path):
    assert digest_of(tmp_path / "one") != digest_of(tmp_path / "two", rows=ROWS.slice(1))


def test_views_hold_current_facts_only(ledger):
    """Neither old settings' rows nor files without a record are in what is shown and exported."""
    old, orphan = Fact("train", 1, {"steps": 1}), Fact("train", 1, {"steps": 9})
    for fact in (FACT, old, orphan):
        ledger.record(fact, {"training": ROWS})
    (ledger.root / "facts" / f"{orphan.key}.json").unlink()
    ledger.write_manifest({**MANIFEST, "facts": [FACT.key, orphan.key]})
    assert stored_tables(ledger) == ["training"]
    rows = connect(ledger).execute("select fact, sum(loss), count(*) from training group by fact").fetchall()
    assert rows == [(FACT.key, 0.75, 2)]


def test_a_folder_that_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"is not a run folder.*stemma run") as caught:
        Ledger(tmp_path).manifest()
    assert caught.value.code == 2


def test_a_path_with_a_quote_is_read(tmp_path):
    ledger = Ledger(tmp_path / "it's a run")
    ledger.record(FACT, {"training": ROWS})
    ledger.write_manifest(MANIFEST)
    assert connect(ledger).execute("select count(*) from training").fetchone() == (2,)

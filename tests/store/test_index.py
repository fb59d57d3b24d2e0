"""The index of records always gives the records' current content, whatever happened to either."""

import json
import multiprocessing
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.store import index as index_module
from stemmatics.store.index import INDEX
from stemmatics.store.ledger import Ledger
from stemmatics.store.query import stored_tables

FACTS = [Fact("train", 1, {"steps": steps}, label=f"fact {steps}") for steps in range(8)]
KEYS = [fact.key for fact in FACTS]


@pytest.fixture(autouse=True)
def _young_files_are_indexed(monkeypatch):
    monkeypatch.setattr(index_module, "_SETTLED_NS", -1)


@pytest.fixture
def root(tmp_path):
    write(tmp_path, FACTS[:5])
    Ledger(tmp_path).fact_records(KEYS)
    return tmp_path


def write(root, facts, **extra):
    for fact in facts:
        Ledger(root).record(fact, {}, **extra)


def record_path(root, fact):
    return root / "facts" / f"{fact.key}.json"


def on_disk(root):
    return {path.stem: json.loads(path.read_text()) for path in (root / "facts").glob("*.json")}


def files_opened(root, monkeypatch):
    """How many records are read from their own files when all are requested."""
    opened = []
    read_text = Path.read_text

    def counted(path, *args, **kwargs):
        opened.append(path.name)
        return read_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", counted)
    assert Ledger(root).fact_records(KEYS) == on_disk(root)
    monkeypatch.setattr(Path, "read_text", read_text)
    # on_disk read each of them once
    return len(opened) - len(on_disk(root))


def test_a_current_index_opens_no_record(root, monkeypatch):
    assert files_opened(root, monkeypatch) == 0
    assert set(pq.read_table(root / INDEX)["key"].to_pylist()) == set(KEYS[:5])


def test_a_missing_index_is_built(root, monkeypatch):
    (root / INDEX).unlink()
    assert files_opened(root, monkeypatch) == 5
    assert files_opened(root, monkeypatch) == 0


def test_a_record_added_behind_the_index_is_there(root, monkeypatch):
    write(root, FACTS[5:6])
    ledger = Ledger(root)
    assert ledger.has(KEYS[5])
    assert KEYS[5] in ledger.done()
    assert files_opened(root, monkeypatch) == 1
    assert files_opened(root, monkeypatch) == 0


def test_a_record_removed_behind_the_index_is_gone(root):
    ledger = Ledger(root)
    assert ledger.fact_record(KEYS[0])["label"] == "fact 0"
    record_path(root, FACTS[0]).unlink()
    for reader in (ledger, Ledger(root)):
        assert not reader.has(KEYS[0])
        assert KEYS[0] not in reader.done()
        assert set(reader.fact_records(KEYS)) == set(KEYS[1:5])
        with pytest.raises(UserError, match="can't be read"):
            reader.fact_record(KEYS[0])
    assert KEYS[0] not in pq.read_table(root / INDEX)["key"].to_pylist()


@pytest.mark.parametrize("how", ["in place", "renamed", "same size and time"])
def test_a_record_changed_behind_the_index_is_read_again(root, how):
    ledger = Ledger(root)
    assert ledger.fact_record(KEYS[2])["label"] == "fact 2"
    path = record_path(root, FACTS[2])
    before = path.stat()
    text = path.read_text().replace("fact 2", "fact X" if how != "in place" else "another fact")
    if how == "renamed":
        (root / "new.json").write_text(text)
        (root / "new.json").replace(path)
    else:
        path.write_text(text)
    if how == "same size and time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for reader in (ledger, Ledger(root)):
        assert reader.fact_record(KEYS[2])["label"] in {"fact X", "another fact"}
        assert reader.fact_records(KEYS) == on_disk(root)
    assert Ledger(root).fact_records(KEYS) == on_disk(root)


def test_every_truncation_of_the_index_is_noticed(root):
    data = (root / INDEX).read_bytes()
    for size in [*range(0, len(data), 37), len(data) - 1]:
        (root / INDEX).write_bytes(data[:size])
        assert Ledger(root).fact_records(KEYS) == on_disk(root)


def test_every_damaged_byte_of_the_index_is_noticed(root):
    data = (root / INDEX).read_bytes()
    for position in range(0, len(data), 11):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        (root / INDEX).write_bytes(damaged)
        assert Ledger(root).fact_records(KEYS) == on_disk(root)


def test_an_index_of_another_kind_is_replaced(root, monkeypatch):
    pq.write_table(pq.read_table(root / INDEX).select(["key", "record"]), root / INDEX)
    assert files_opened(root, monkeypatch) == 5
    assert files_opened(root, monkeypatch) == 0


def test_files_that_may_change_within_their_clocks_tick_are_not_indexed(root, monkeypatch):
    monkeypatch.setattr(index_module, "_SETTLED_NS", 2_000_000_000)
    (root / INDEX).unlink()
    assert Ledger(root).fact_records(KEYS) == on_disk(root)
    assert not (root / INDEX).exists() or not pq.read_table(root / INDEX).num_rows


def test_a_crash_while_the_index_is_written_leaves_the_old_one(root, monkeypatch):
    old = (root / INDEX).read_bytes()
    write(root, FACTS[5:6])

    def crash(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            Ledger(root).fact_records(KEYS)
    assert (root / INDEX).read_bytes() == old
    assert Ledger(root).fact_records(KEYS) == on_disk(root)


def test_a_folder_that_cannot_be_written_is_read_all_the_same(root, monkeypatch):
    (root / INDEX).unlink()

    def refuse(*_args):
        raise PermissionError

    monkeypatch.setattr(index_module, "write_bytes", refuse)
    assert Ledger(root).fact_records(KEYS) == on_disk(root)
    assert not (root / INDEX).exists()


def test_a_ledger_without_index_reads_the_records_and_writes_no_index(root):
    forged = pq.read_table(root / INDEX).to_pylist()
    for row in forged:
        row["record"] = row["record"].replace("fact", "FORGED")
    pq.write_table(pq.read_table(root / INDEX).from_pylist(forged, schema=index_module._SCHEMA), root / INDEX)
    assert "FORGED" in Ledger(root).fact_record(KEYS[0])["label"]
    assert Ledger(root, indexed=False).fact_records(KEYS) == on_disk(root)
    (root / INDEX).unlink()
    Ledger(root, indexed=False).fact_records(KEYS)
    assert not (root / INDEX).exists()


def test_a_callers_changes_do_not_reach_the_index(root):
    ledger = Ledger(root)
    ledger.fact_record(KEYS[0])["files"]["tables/x/y.parquet"] = {}
    assert ledger.fact_records(KEYS) == on_disk(root)


def test_what_a_fact_wrote_is_listed_from_the_index(root):
    ledger = Ledger(root)
    ledger.write_manifest(
        {
            "stemma": {}, "pins": {}, "measures": [], "facts": KEYS, "estimates": {}, "versions": {},
            "hardware": {},
        }
    )  # fmt: skip
    assert stored_tables(Ledger(root)) == []
    assert ledger.tables_of(KEYS[0]) == []


def _write_and_read(root, numbers):
    index_module._SETTLED_NS = -1
    for number in numbers:
        write(root, [Fact("train", 1, {"steps": number})], by=numbers[0])
        ledger = Ledger(root)
        records = ledger.fact_records(ledger.done())
        assert all(record["params"]["steps"] >= 0 for record in records.values())


def test_two_processes_write_records_and_the_index(root):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_write_and_read, args=(root, list(range(start, start + 40))))
        for start in (100, 120)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    ledger = Ledger(root)
    assert len(ledger.done()) == 65
    assert ledger.fact_records(ledger.done()) == on_disk(root)
    assert Ledger(root).fact_records(ledger.done()) == on_disk(root)
    assert not list(root.glob("*.part"))

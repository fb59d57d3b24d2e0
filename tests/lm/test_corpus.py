from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
from importlib.metadata import EntryPoint

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.lm.checkpoints.hub import HashCache
from stemmatics.lm.text import contents as contents_module
from stemmatics.lm.text import corpus as corpus_module
from stemmatics.lm.text.contents import content_hash
from stemmatics.lm.text.corpus import read, records, text_source
from stemmatics.lm.text.doc_ids import document_id, document_key
from stemmatics.lm.text.groups import (
    assign_split,
)
from stemmatics.probe.corpus import documents_table
from stemmatics.store.schema import schemas


def jsonl(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return Corpus(path=[str(path)])


def texts_of(source, **settings):
    return [document.text for document in read(source, **settings)]


def test_crlf_text_is_six_bytes(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\r\n")
    table = documents_table(Corpus(path=[str(tmp_path / "a.txt")]), seed=1)
    assert table["num_bytes"].to_pylist() == [6]


def test_duplicates_and_empty_documents_are_kept_and_distinguished(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", {"text": "x"}, {"text": ""}, {"text": "x"})
    documents = list(read(source))
    assert [document.text for document in documents] == ["x", "", "x"]
    assert documents[0].doc_id == documents[2].doc_id
    assert [document.index for document in documents] == [0, 1, 2]


def test_registers_and_limits(tmp_path):
    jsonl(tmp_path / "a.jsonl", *({"body": str(i), "kind": f"k{i}"} for i in range(5)))
    base = {"path": str(tmp_path / "a.jsonl"), "field": "body"}
    assert {d.register for d in read(Corpus(**base))} == {"all"}
    assert {d.register for d in read(Corpus(**base, register="news"))} == {"news"}
    limited = Corpus(**base, register_field="kind", max_documents=2)
    assert [d.register for d in read(limited)] == ["k0", "k1"]
    with pytest.raises(UserError, match="no field 'type'"):
        texts_of(Corpus(**base, register_field="type"))


def test_private_ids_are_keyed(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", {"text": "yes"})
    private = source.model_copy(update={"private": True})
    key = document_key(tmp_path / "config" / "key")
    (document,) = read(private, key=key)
    assert document.doc_id == hmac.new(key, b"yes", hashlib.sha256).hexdigest()[:32]
    assert document.doc_id != document_id("yes")
    assert content_hash(private, key=key) != content_hash(source, hashes=HashCache(tmp_path))
    (plain,) = read(source, key=key)
    assert plain.doc_id == document_id("yes")


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / name))
    key = document_key()
    path = tmp_path / "stemmatics" / "document_ids.key"
    assert len(key) == 32
    assert document_key() == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        document_key()
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(UserError, match="is not a key"):
        document_key()


def test_content_hash_is_of_the_texts_whatever_the_form(tmp_path):
    hashes = HashCache(tmp_path / "cache")
    source = jsonl(tmp_path / "a.jsonl", {"text": "ab"}, {"text": "c"})
    pq.write_table(pa.table({"text": ["ab", "c"]}), tmp_path / "b.parquet")
    split = jsonl(tmp_path / "c.jsonl", {"text": "a"}, {"text": "bc"})
    expected = hashlib.sha256((2).to_bytes(8, "big") + b"ab" + (1).to_bytes(8, "big") + b"c").hexdigest()
    assert content_hash(source, hashes=hashes) == expected
    assert content_hash(Corpus(path=[str(tmp_path / "b.parquet")]), hashes=hashes) == expected
    assert content_hash(split, hashes=hashes) != expected
    assert content_hash(source.model_copy(update={"max_documents": 1}), hashes=hashes) != expected


def test_content_hash_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    hashes = HashCache(tmp_path / "cache")
    source = jsonl(tmp_path / "a.jsonl", {"text": "ab"})
    first = content_hash(source, hashes=hashes)
    status = (tmp_path / "a.jsonl").stat()
    reads = []
    true_read = contents_module.read
    monkeypatch.setattr(contents_module, "read", lambda *a, **k: reads.append(1) or true_read(*a, **k))
    assert content_hash(source, hashes=hashes) == first
    assert reads == []
    (tmp_path / "a.jsonl").write_text('{"text": "xy"}\n')
    os.utime(tmp_path / "a.jsonl", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert content_hash(source, hashes=hashes) != first
    assert reads == [1]


def numbered(part, seed, extra=0):
    yield f"{part} {seed}"
    yield {"text": f"{extra}", "kind": "second"}


def test_generators_are_found_by_entry_point(monkeypatch):
    point = EntryPoint(name="numbered", group="stemmatics.generators", value="ignored")
    monkeypatch.setattr(EntryPoint, "load", lambda self: numbered)
    monkeypatch.setattr(corpus_module, "entry_points", lambda group: [point] if group == point.group else [])
    params = {"part": "p", "seed": 3}
    documents = list(read(Corpus(generator="numbered", params=params)))
    assert [(d.text, d.source, d.row) for d in documents] == [("p 3", "numbered", 0), ("0", "numbered", 1)]
    with pytest.raises(UserError, match=r"can't be called.*seed"):
        texts_of(Corpus(generator="numbered", params={"part": "p"}))
    with pytest.raises(UserError, match=r"unknown generator 'other'. Installed: numbered"):
        texts_of(Corpus(generator="other"))


def test_hub_datasets_are_streamed_as_named(monkeypatch):
    calls = []

    def load_dataset(*args, **settings):
        calls.append((args, settings))
        if settings["split"] == "none":
            message = "Unknown split\nmore"
            raise ValueError(message)
        return iter([{"text": "a"}, {"text": "b"}])

    monkeypatch.setitem(sys.modules, "datasets", type(sys)("datasets"))
    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", load_dataset, raising=False)
    source = text_source("org/name/conf:test@abc")
    assert [(d.text, d.source, d.row) for d in read(source)] == [
        ("a", "org/name:test", 0),
        ("b", "org/name:test", 1),
    ]
    assert calls == [(("org/name", "conf"), {"split": "test", "revision": "abc", "streaming": True})]
    with pytest.raises(UserError, match=r"org/name:none. Unknown split. Check name"):
        texts_of(text_source("org/name:none"))


def test_hub_datasets_need_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'stemmatics\[lm\]'"):
        texts_of(text_source("org/name"))


def test_text_source_tells_paths_from_datasets(tmp_path):
    (tmp_path / "folder").mkdir()
    assert text_source(str(tmp_path / "folder")).path == [str(tmp_path / "folder")]
    assert text_source("org/name.jsonl").path == ["org/name.jsonl"]
    assert text_source("org/name").dataset == "org/name"
    assert text_source("org/name").dataset_split == "train"
    assert text_source("nothing", field="body").path == ["nothing"]


def test_training_records_keep_every_column(tmp_path):
    message = {"role": "user", "content": "hello"}
    pq.write_table(pa.table({"messages": [[message]], "chosen": ["x"]}), tmp_path / "a.parquet")
    (record,) = records(Corpus(path=[str(tmp_path / "a.parquet")], role="data"))
    assert record.values == {"messages": [message], "chosen": "x"}


def test_documents_table(tmp_path):
    words = [f"w{number}" for number in range(200)]
    base, near = " ".join(words), " ".join([*words[:-1], "x"])
    source = jsonl(
        tmp_path / "a.jsonl",
        {"text": base},
        {"text": ""},
        {"text": near},
        {"text": base},
        {"text": "naïve café ☕"},
    ).model_copy(update={"eval_share": 0.5})
    table = documents_table(source, seed=7)
    assert table.schema == schemas()["documents"]
    assert table["index"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["num_bytes"].to_pylist() == [len(base), 0, len(near), len(base), 16]
    group = table["group"].to_pylist()
    assert group[0] == group[2] == group[3]
    assert len(set(group)) == 3
    assert table["split"].to_pylist() == [assign_split(name, 7, 0.5) for name in group]
    assert not any(base in str(column.to_pylist()) for column in table.columns)
    empty = Corpus(path=[str(tmp_path / "a.jsonl")], eval_share=0.5)
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(UserError, match="has no documents"):
        documents_table(empty, seed=7)


def test_corpora_are_read_without_torch():
    code = (
        "import sys, stemmatics.lm.text.corpus; "
        "print(sorted({'torch', 'transformers', 'datasets', 'tokenizers'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"

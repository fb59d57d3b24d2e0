from __future__ import annotations

import hashlib
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.lm.text.corpus import read


def texts_of(source, **settings):
    return [document.text for document in read(source, **settings)]


@pytest.mark.parametrize(
    "text", ["a\r\nb\r\n", "a\u2028b\u2029c\x85d", "a\x0b\x0c\x1c\x1eb", "te\ufeffxt", ""]
)
def test_one_record_is_one_document_in_every_form(tmp_path, text):
    (tmp_path / "a.txt").write_bytes(text.encode())
    line = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\r\n"
    (tmp_path / "b.jsonl").write_bytes(line * 2)
    (tmp_path / "c.jsonl.zst").write_bytes(pa.compress(line * 2, codec="zstd", asbytes=True))
    pq.write_table(pa.table({"text": [text, text]}), tmp_path / "d.parquet")
    for name, count in [("a.txt", 1), ("b.jsonl", 2), ("c.jsonl.zst", 2), ("d.parquet", 2)]:
        documents = list(read(Corpus(path=[str(tmp_path / name)])))
        assert [document.text for document in documents] == [text] * count
        assert [document.index for document in documents] == list(range(count))
        assert [document.row for document in documents] == list(range(count))
        assert {document.source for document in documents} == {name}
        assert {document.doc_id for document in documents} == {hashlib.sha256(text.encode()).hexdigest()[:32]}


def test_a_folder_is_read_sorted_and_relative(tmp_path):
    (tmp_path / "z").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "no.txt").write_text("no")
    (tmp_path / "code.py").write_text("no")
    (tmp_path / "same.jsonl").write_text('{"text": "first"}\n')
    (tmp_path / "z" / "same.jsonl").write_text('{"text": "second"}\n')
    (tmp_path / "z" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    documents = list(read(Corpus(path=[str(tmp_path)])))
    assert [(document.source, document.text) for document in documents] == [
        ("same.jsonl", "first"),
        ("z/a.jsonl", "one"),
        ("z/a.jsonl", "two"),
        ("z/same.jsonl", "second"),
    ]


def test_blank_lines_are_skipped_and_rows_count_lines(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "x"}\n\n  \n{"text": "y"}')
    documents = list(read(Corpus(path=[str(tmp_path / "a.jsonl")])))
    assert [(document.row, document.text) for document in documents] == [(0, "x"), (3, "y")]


WRONG_RECORDS = {
    "other field": ('{"id": 3, "content": "x"}', "no field 'text'.*id, content.*--field content"),
    "odd field": ('{"id": 3, "inhalt": "x"}', "--field inhalt"),
    "no text": ('{"id": 3}', "Its fields: id"),
    "null": ('{"text": null}', "not text.*null"),
    "number": ('{"text": 3}', "not text.*int"),
    "not JSON": ('{"text": ', "is not JSON"),
    "a list": ("[1]", "JSON list"),
    "too deep": ("[" * 100_000, "is not JSON|recursion"),
    "messages": ('{"messages": []}', "--render own --role assistant"),
    "surrogate": ('{"text": "a\\ud800"}', "lone surrogate U\\+D800 at character 1"),
}


@pytest.mark.parametrize("kind", WRONG_RECORDS)
def test_a_wrong_record_is_named_with_the_fix(tmp_path, kind):
    line, message = WRONG_RECORDS[kind]
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(UserError, match=message) as caught:
        texts_of(Corpus(path=[str(tmp_path / "a.jsonl")]))
    assert "a.jsonl line 2" in caught.value.what


def test_missing_parquet_column_is_named(tmp_path):
    pq.write_table(pa.table({"content": ["x"], "id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a.parquet row 1 has no field 'text'.*content, id.*--field content"):
        texts_of(Corpus(path=[str(tmp_path / "a.parquet")]))
    pq.write_table(pa.table({"text": ["x", None]}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"'text' of b.parquet row 2 is not text. It is null"):
        texts_of(Corpus(path=[str(tmp_path / "b.parquet")]))


def test_bytes_that_are_not_utf8(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ok \xff!")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "ok"}\n{"text": "\xff"}\n')
    column = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "c.parquet")
    for name, location in [
        ("a.txt", "a.txt"),
        ("b.jsonl", "b.jsonl line 2"),
        ("c.parquet", "c.parquet row 2"),
    ]:
        source = Corpus(path=[str(tmp_path / name)])
        with pytest.raises(UserError, match=f"{location} is not UTF-8. Byte 0xff"):
            texts_of(source)
        last = list(read(source, errors="replace"))[-1]
        assert "\ufffd" in last.text
        assert last.flags == {"replaced"}


def test_surrogates_are_replaced_on_request_and_pairs_are_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800b"}\n{"text": "\\ud83d\\ude00"}\n')
    documents = list(read(Corpus(path=[str(tmp_path / "a.jsonl")]), errors="replace"))
    assert [(d.text, sorted(d.flags)) for d in documents] == [("a\ufffdb", ["replaced"]), ("😀", [])]


def test_paths_that_hold_no_text(tmp_path):
    (tmp_path / "a.docx").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for name, message in [
        ("a.docx", "can't tell"),
        ("empty", "no text in the folder"),
        ("no.txt", "no text at"),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            texts_of(Corpus(path=[str(tmp_path / name)]))
        assert caught.value.code == 2


def test_damaged_files_are_named(tmp_path):
    whole = pa.compress(b'{"text": "x"}\n' * 10_000, codec="zstd", asbytes=True)
    (tmp_path / "a.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b.jsonl.zst").write_bytes(b"not zstd")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 not parquet")
    for name in ("a.jsonl.zst", "b.jsonl.zst", "c.parquet"):
        with pytest.raises(UserError, match=f"can't read {name}"):
            texts_of(Corpus(path=[str(tmp_path / name)]))


def test_zstd_of_several_frames_is_read_to_the_end(tmp_path):
    frames = [pa.compress(json.dumps({"text": t}).encode() + b"\n", codec="zstd", asbytes=True) for t in "ab"]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(frames))
    assert texts_of(Corpus(path=[str(tmp_path / "a.jsonl.zst")])) == ["a", "b"]


def test_reading_is_a_stream(tmp_path):
    text = "word " * 2_000
    with (tmp_path / "a.jsonl").open("w") as file:
        for _ in range(1_000):
            file.write(json.dumps({"text": text}) + "\n")
        file.write("broken")
    stream = read(Corpus(path=[str(tmp_path / "a.jsonl")]))
    tracemalloc.start()
    for _ in range(1_000):
        assert next(stream).text == text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # the corpus has 10 MB
    with pytest.raises(UserError, match="line 1001"):
        next(stream)

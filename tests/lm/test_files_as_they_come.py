"""Texts as they lie on disks: cards beside data, byte order marks, names twice, registers, damaged files."""

from __future__ import annotations

import datetime as dt
import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemmatics.core.corpora import Corpus, Render
from stemmatics.core.errors import UserError
from stemmatics.lm.checkpoints.hub import HashCache, sha256_of
from stemmatics.lm.text.contents import contents
from stemmatics.lm.text.corpus import read
from stemmatics.lm.text.files import BOM_FLAG

MARK = "\ufeff"
RENDER = Render(
    template="{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def documents(path, **settings):
    return list(read(Corpus(path=[str(path)], **settings)))


def lines(path, *records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def refused(path, **settings):
    """The error, which is one line that names the file."""
    with pytest.raises(UserError) as caught:
        documents(path, **settings)
    assert path.name in caught.value.what
    assert "\n" not in str(caught.value)
    return caught.value


# a folder is its data, or its texts


@pytest.mark.parametrize("data", ["train.parquet", "train.jsonl", "train.jsonl.zst", "TRAIN.JSONL"])
def test_a_datasets_card_is_not_scored_and_that_is_said(data, tmp_path, caplog):
    (tmp_path / "data").mkdir()
    raw = b'{"text": "one"}\n{"text": "two"}\n'
    if data.endswith("parquet"):
        pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "data" / data)
    else:
        (tmp_path / "data" / data).write_bytes(
            pa.compress(raw, codec="zstd", asbytes=True) if data.endswith("zst") else raw
        )
    for name in ("README.md", "LICENSE.txt", "data/notes.txt"):
        (tmp_path / name).write_text("not data")
    with caplog.at_level(logging.WARNING, "stemmatics"):
        assert [document.text for document in documents(tmp_path)] == ["one", "two"]
    (said,) = [record.getMessage() for record in caplog.records]
    for part in ("1 data files are read", "3 other", "LICENSE.txt", "README.md", "data/notes.txt"):
        assert part in said


def test_a_folder_of_texts_alone_is_documents(tmp_path, caplog):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.md").write_text("two")
    assert [document.text for document in documents(tmp_path)] == ["one", "two"]
    assert not caplog.records


@pytest.mark.parametrize("data", ["train.csv", "train.json", "data-00000.arrow", "train.json.gz"])
def test_a_card_beside_data_that_is_not_read_is_not_the_text(data, tmp_path):
    (tmp_path / data).write_text("x")
    (tmp_path / "README.md").write_text("about the data")
    with pytest.raises(UserError, match="no text but its card") as caught:
        documents(tmp_path)
    assert data in caught.value.why
    assert documents(tmp_path / "README.md")[0].text == "about the data"  # the advice
    lines(tmp_path / "train.jsonl", {"text": "one"})
    assert [document.text for document in documents(tmp_path)] == ["one"]


# byte order marks


def test_a_byte_order_mark_is_dropped_everywhere_and_flagged(tmp_path):
    record = json.dumps({"text": "abc"}).encode()
    marked = MARK.encode() + record + b"\n"
    (tmp_path / "a.txt").write_text(MARK + "abc")
    (tmp_path / "b.md").write_text(MARK + "abc")
    (tmp_path / "c.jsonl").write_bytes(marked)
    (tmp_path / "d.jsonl.zst").write_bytes(pa.compress(marked, codec="zstd", asbytes=True))
    (tmp_path / "e.jsonl").write_bytes(MARK.encode() + b"\n" + record)  # on a blank line
    (tmp_path / "f.jsonl").write_text(json.dumps({"text": MARK + "abc"}, ensure_ascii=False))
    pq.write_table(pa.table({"text": [MARK + "abc"]}), tmp_path / "g.parquet")
    for file in sorted(tmp_path.iterdir()):
        (document,) = documents(file)
        assert (document.text, set(document.flags)) == ("abc", {BOM_FLAG}), file.name
    (tmp_path / "two.jsonl").write_bytes(marked + marked + record)  # two files behind one another
    found = documents(tmp_path / "two.jsonl")
    assert [document.text for document in found] == ["abc"] * 3
    assert [BOM_FLAG in document.flags for document in found] == [True, True, False]


def test_a_mark_inside_a_text_is_text(tmp_path):
    (tmp_path / "a.txt").write_text("a" + MARK + "b")
    (document,) = documents(tmp_path / "a.txt")
    assert (document.text, set(document.flags)) == ("a" + MARK + "b", set())


def test_utf_16_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes("abc".encode("utf-16"))
    error = refused(tmp_path / "a.txt")
    assert "UTF-16" in error.why
    (tmp_path / "a.txt").write_text((tmp_path / "a.txt").read_bytes().decode("utf-16"))  # the advice: iconv
    assert documents(tmp_path / "a.txt")[0].text == "abc"


# registers


def test_null_and_blank_are_no_register_and_plain_values_are_written_as_json_does(tmp_path):
    given = [None, "", "web", 2019, 2019.0, 0.5, True, float("nan")]
    path = lines(tmp_path / "a.jsonl", *({"text": "x", "r": value} for value in given))
    found = [document.register for document in documents(path, register_field="r")]
    assert found == ["all", "all", "web", "2019", "2019", "0.5", "true", "all"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("value", "advised", "name"),
    [
        ({"pile_set_name": "Wikipedia"}, "meta.pile_set_name", "Wikipedia"),
        ({"a": {"deep": "x"}, "b": "y"}, "meta.b", "y"),
        (["en", "web"], "meta.0", "en"),
        ({"tags": ["q"]}, "meta.tags.0", "q"),
    ],
)
def test_an_object_is_refused_with_the_path_that_works(kind, value, advised, name, tmp_path):
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        lines(path, {"text": "x", "meta": value}, {"text": "y", "meta": None})
    else:
        pq.write_table(
            pa.Table.from_pylist([{"text": "x", "meta": value}, {"text": "y", "meta": None}]), path
        )
    error = refused(path, register_field="meta")
    assert f"--register {advised}" in error.fix
    assert f"register_field: {advised}" in error.fix
    found = [document.register for document in documents(path, register_field=advised)]
    assert found == [name, "all"]


def test_a_field_that_is_missing_inside_an_object_is_named_with_those_there_are(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"text": "x", "meta": {"lang": "en"}})
    error = refused(path, register_field="meta.source")
    assert "in meta: lang" in error.why


def test_a_name_with_dots_is_found_before_a_path(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"text": "x", "meta.a": "whole", "meta": {"a": "inside"}})
    assert documents(path, register_field="meta.a")[0].register == "whole"
    path = lines(tmp_path / "b.jsonl", {"body": {"en": "inside"}})
    assert documents(path, field="body.en")[0].text == "inside"
    assert "--field body.en" in refused(path, field="body").fix


def test_a_register_called_all_is_not_the_total_and_different_names_stay_different(tmp_path):
    given = ["all", "register all", "register register all", "ALL", "overall"]
    path = lines(tmp_path / "a.jsonl", *({"text": "x", "r": name} for name in given))
    found = [document.register for document in documents(path, register_field="r")]
    assert "all" not in found
    assert len(set(found)) == len(given)
    assert found[0] == "register all"


# a name twice


@pytest.mark.parametrize(
    "line",
    ['{"text": "a", "text": "b"}', '{"text": "a", "meta": {"x": 1, "x": 1}}', '[{"text": 1, "text": 2}]'],
)
def test_a_name_twice_in_a_record_is_refused(line, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    error = refused(tmp_path / "a.jsonl")
    assert "line 2" in error.what
    assert "twice" in error.what
    (tmp_path / "b.parquet").write_bytes(b"")
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(twice, tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet")


# damaged and foreign files


def make(path):
    """40 documents of text that does not compress well."""
    draw = np.random.default_rng(0)
    rows = [{"text": " ".join(map(str, draw.integers(0, 10**6, 60))), "r": "naïve"} for _ in range(40)]
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
    else:
        path.write_bytes(pa.compress(raw, codec="zstd", asbytes=True) if path.suffix == ".zst" else raw)
    return path.read_bytes()


def texts_or_error(path):
    try:
        return [document.text for document in documents(path)], None
    except UserError as error:
        return [], error


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "a.parquet"])
def test_a_file_cut_or_altered_anywhere_is_an_error_or_read_to_the_cut(name, tmp_path):
    path = tmp_path / name
    whole = make(path)
    expected = [document.text for document in documents(path)]
    draw = np.random.default_rng(1)
    num_errors = 0
    for place in np.linspace(0, len(whole) - 1, 20).astype(int):
        damaged = bytearray(whole)
        damaged[place : place + 8] = draw.bytes(8)
        path.write_bytes(bytes(damaged))
        _, altered = texts_or_error(path)  # what is not damaged visibly may be read
        path.write_bytes(whole[:place])
        found, cut = texts_or_error(path)
        if cut is None:  # cut between two lines: nothing tells that more were there
            assert name == "a.jsonl"
            assert found == expected[: len(found)]
        for error in (cut, altered):
            if error is not None:
                num_errors += 1
                assert name in error.what
                assert "\n" not in str(error)
    assert num_errors >= 20


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "a.parquet", "a.txt"])
def test_a_pointer_of_git_lfs_says_how_to_get_the_file(name, tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    (tmp_path / name).write_text(pointer)
    assert "git lfs pull" in refused(tmp_path / name).fix


def test_a_large_zstd_window_says_how_to_decompress(tmp_path):
    raw = b'{"text": "x"}\n'
    # magic, no content size, a window of 2 GB (exponent 21), one last raw block
    frame = (
        b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([21 << 3]) + ((len(raw) << 3) | 1).to_bytes(3, "little") + raw
    )
    (tmp_path / "a.jsonl.zst").write_bytes(frame)
    error = refused(tmp_path / "a.jsonl.zst")
    assert "window" in error.why
    assert "zstd -d --long=31 a.jsonl.zst" in error.fix
    (tmp_path / "a.jsonl").write_bytes(raw)  # the advice
    assert documents(tmp_path / "a.jsonl")[0].text == "x"


@pytest.mark.parametrize("content", ["", "\n\n", MARK])
def test_an_empty_file_of_records_is_an_error(content, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    assert "no documents" in refused(tmp_path / "a.jsonl").what
    (tmp_path / "b.parquet").write_bytes(b"")
    assert "empty" in refused(tmp_path / "b.parquet").why
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "c.parquet")
    assert "no documents" in refused(tmp_path / "c.parquet").what


def test_training_data_that_json_can_not_hold_is_named(tmp_path):
    pq.write_table(pa.table({"text": ["x"], "day": [dt.date(2024, 1, 1)]}), tmp_path / "a.parquet")
    assert "row 1" in refused(tmp_path / "a.parquet", role="data").what
    (tmp_path / "b.jsonl").write_text('{"text": "x", "score": NaN}\n')
    assert "line 1" in refused(tmp_path / "b.jsonl", role="data").what


# conversations


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_sharegpt_conversations_are_messages(kind, tmp_path):
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
    for name, record in (
        ("a", {"conversations": turns}),
        ("b", {"messages": messages}),
        ("c", {"conversations": messages}),
    ):
        if kind == "jsonl":
            lines(tmp_path / f"{name}.jsonl", record)
        else:
            pq.write_table(pa.Table.from_pylist([record]), tmp_path / f"{name}.parquet")
    found = [documents(tmp_path / f"{name}.{kind}", render=RENDER)[0] for name in "abc"]
    assert {(document.text, document.scored) for document in found} == {
        ("<user>Hi<assistant>Yo", ((19, 21),))
    }
    error = refused(tmp_path / f"a.{kind}")
    assert "conversations" in error.what
    assert "--render own --role assistant" in error.fix


def test_conversations_of_another_form_are_shown_the_form(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"conversations": [{"speaker": "x", "text": "y"}]})
    assert '"from"' in refused(path, render=RENDER).fix


# a memo that can't be written


def test_hashes_that_can_not_be_kept_are_a_notice(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    path = lines(tmp_path / "a.jsonl", {"text": "x"})
    hashes = HashCache(tmp_path / "file" / "cache")
    with caplog.at_level(logging.WARNING, "stemmatics"):
        first = contents(Corpus(path=[str(path)]), hashes=hashes)
        assert sha256_of(path, hashes) == sha256_of(path, HashCache(tmp_path / "other"))
    assert first == contents(Corpus(path=[str(path)]), hashes=HashCache(tmp_path / "other"))
    assert len([record for record in caplog.records if "can't be kept" in record.getMessage()]) == 1

    def read_only(*_args, **_settings):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.replace", read_only)
    sha256_of(path, HashCache(tmp_path / "third"))
    monkeypatch.setattr("os.open", read_only)
    sha256_of(path, HashCache(tmp_path / "fourth"))

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from importlib.metadata import EntryPoint

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.lm import corpus as corpus_module
from stemmatics.lm.corpus import content_hash, documents_table, read, records, text_source
from stemmatics.lm.doc_ids import document_id, document_key
from stemmatics.lm.groups import (
    BAND_ROWS,
    NUM_PERMUTATIONS,
    GroupIndex,
    _components,
    assign_split,
    shingles,
)
from stemmatics.lm.hub import Memory
from stemmatics.store.schema import SCHEMAS

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CHAT = [
    {"role": "user", "content": "Où?"},
    {"role": "assistant", "content": "Là."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "☕"},
]


def jsonl(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return Corpus(path=[str(path)])


def texts_of(source, **settings):
    return [document.text for document in read(source, **settings)]


@pytest.mark.parametrize(
    "text", ["a\r\nb\r\n", "a\u2028b\u2029c\x85d", "a\x0b\x0c\x1c\x1eb", "\ufefftext", ""]
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


def test_crlf_text_is_six_bytes(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\r\n")
    table = documents_table(Corpus(path=[str(tmp_path / "a.txt")]), seed=1)
    assert table["num_bytes"].to_pylist() == [6]


def test_a_folder_is_read_sorted_and_relative(tmp_path):
    (tmp_path / "z").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "no.txt").write_text("no")
    (tmp_path / "z" / "same.txt").write_text("second")
    (tmp_path / "same.txt").write_text("first")
    (tmp_path / "code.py").write_text("no")
    jsonl(tmp_path / "z" / "a.jsonl", {"text": "one"}, {"text": "two"})
    documents = list(read(Corpus(path=[str(tmp_path)])))
    assert [(document.source, document.text) for document in documents] == [
        ("same.txt", "first"),
        ("z/a.jsonl", "one"),
        ("z/a.jsonl", "two"),
        ("z/same.txt", "second"),
    ]


def test_duplicates_and_empties_are_kept_and_told_apart(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", {"text": "x"}, {"text": ""}, {"text": "x"})
    documents = list(read(source))
    assert [document.text for document in documents] == ["x", "", "x"]
    assert documents[0].doc_id == documents[2].doc_id
    assert [document.index for document in documents] == [0, 1, 2]


def test_blank_lines_are_no_records_and_rows_count_lines(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "x"}\n\n  \n{"text": "y"}')
    documents = list(read(Corpus(path=[str(tmp_path / "a.jsonl")])))
    assert [(document.row, document.text) for document in documents] == [(0, "x"), (3, "y")]


def test_registers_and_limits(tmp_path):
    jsonl(tmp_path / "a.jsonl", *({"body": str(i), "kind": f"k{i}"} for i in range(5)))
    base = {"path": str(tmp_path / "a.jsonl"), "field": "body"}
    assert {d.register for d in read(Corpus(**base))} == {"all"}
    assert {d.register for d in read(Corpus(**base, register="news"))} == {"news"}
    limited = Corpus(**base, register_field="kind", max_documents=2)
    assert [d.register for d in read(limited)] == ["k0", "k1"]
    with pytest.raises(UserError, match="no field 'type'"):
        texts_of(Corpus(**base, register_field="type"))


WRONG_RECORDS = {
    "other field": ('{"id": 3, "content": "x"}', "no field 'text'.*id, content.*--field content"),
    "odd field": ('{"id": 3, "inhalt": "x"}', "--field inhalt"),
    "no text": ('{"id": 3}', "its fields: id"),
    "null": ('{"text": null}', "not text.*null"),
    "number": ('{"text": 3}', "not text.*int"),
    "not JSON": ('{"text": ', "is not JSON"),
    "a list": ("[1]", "JSON list"),
    "too deep": ("[" * 100_000, "is not JSON|recursion"),
    "messages": ('{"messages": []}', "--render TEMPLATE:ROLE"),
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
    with pytest.raises(UserError, match=r"'text' of b.parquet row 2 is not text. it is null"):
        texts_of(Corpus(path=[str(tmp_path / "b.parquet")]))


def test_bytes_that_are_not_utf8(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ok \xff!")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "ok"}\n{"text": "\xff"}\n')
    column = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "c.parquet")
    for name, place in [("a.txt", "a.txt"), ("b.jsonl", "b.jsonl line 2"), ("c.parquet", "c.parquet row 2")]:
        source = Corpus(path=[str(tmp_path / name)])
        with pytest.raises(UserError, match=f"{place} is not UTF-8. byte 0xff"):
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


def test_rendered_messages_score_the_named_role_only(tmp_path):
    jsonl(tmp_path / "a.jsonl", {"messages": CHAT})
    pq.write_table(pa.table({"messages": [CHAT]}), tmp_path / "b.parquet")
    for name in ("a.jsonl", "b.parquet"):
        render = {"template": TEMPLATE, "role": "assistant"}
        (document,) = read(Corpus(path=[str(tmp_path / name)], render=render))
        assert document.flags == {"rendered"}
        raw = document.text.encode()
        assert raw.startswith("<user>Où?</end>\n<assistant>Là.</end>\n".encode())
        assert [raw[a:b].decode() for a, b in document.scored] == ["Là.</end>\n", "☕</end>\n"]
        (other,) = read(Corpus(path=[str(tmp_path / name)], render={"template": TEMPLATE, "role": "user"}))
        assert [raw[a:b].decode() for a, b in other.scored] == ["Où?</end>\n", "Thanks</end>\n"]


def test_what_can_not_be_rendered_is_refused(tmp_path):
    def rendering(messages, template=TEMPLATE, role="assistant", **settings):
        source = jsonl(tmp_path / "a.jsonl", {"messages": messages})
        source = source.model_copy(
            update={"render": Corpus(path="x", render={"template": template, "role": role}).render}
        )
        return texts_of(source, **settings)

    with pytest.raises(UserError, match="no message of the role 'tool'"):
        rendering(CHAT, role="tool")
    with pytest.raises(UserError, match="'own' means a checkpoint's"):
        rendering(CHAT, template="own")
    assert rendering(
        CHAT[:2], template="own", own_template=lambda m, add: "".join(x["content"] for x in m)
    ) == ["Où?Là."]
    with pytest.raises(UserError, match="changes earlier text"):
        rendering(
            CHAT, template="{{ messages | length }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
        )
    with pytest.raises(UserError, match=r"scored part .* can't be told"):
        rendering(CHAT[:1], template="{% for m in messages %}silence{% endfor %}", role="user")
    with pytest.raises(UserError, match="refuses it: no system"):
        rendering(CHAT, template="{{ raise_exception('no system') }}")
    with pytest.raises(UserError, match="chat template can't be read"):
        rendering(CHAT, template="{% for %}")
    with pytest.raises(UserError, match="must have a role and a content"):
        rendering(["hello"])


def test_private_ids_are_keyed(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", {"text": "yes"})
    private = source.model_copy(update={"private": True})
    key = document_key(tmp_path / "config" / "key")
    (document,) = read(private, key=key)
    assert document.doc_id == hmac.new(key, b"yes", hashlib.sha256).hexdigest()[:32]
    assert document.doc_id != document_id("yes")
    assert content_hash(private, key=key) != content_hash(source, memory=Memory(tmp_path))
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
    with pytest.raises(UserError, match="holds no key"):
        document_key()


def test_content_hash_is_of_the_texts_whatever_the_form(tmp_path):
    memory = Memory(tmp_path / "cache")
    source = jsonl(tmp_path / "a.jsonl", {"text": "ab"}, {"text": "c"})
    pq.write_table(pa.table({"text": ["ab", "c"]}), tmp_path / "b.parquet")
    split = jsonl(tmp_path / "c.jsonl", {"text": "a"}, {"text": "bc"})
    expected = hashlib.sha256((2).to_bytes(8, "big") + b"ab" + (1).to_bytes(8, "big") + b"c").hexdigest()
    assert content_hash(source, memory=memory) == expected
    assert content_hash(Corpus(path=[str(tmp_path / "b.parquet")]), memory=memory) == expected
    assert content_hash(split, memory=memory) != expected
    assert content_hash(source.model_copy(update={"max_documents": 1}), memory=memory) != expected


def test_content_hash_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    memory = Memory(tmp_path / "cache")
    source = jsonl(tmp_path / "a.jsonl", {"text": "ab"})
    first = content_hash(source, memory=memory)
    status = (tmp_path / "a.jsonl").stat()
    reads = []
    true_read = corpus_module.read
    monkeypatch.setattr(corpus_module, "read", lambda *a, **k: reads.append(1) or true_read(*a, **k))
    assert content_hash(source, memory=memory) == first
    assert reads == []
    (tmp_path / "a.jsonl").write_text('{"text": "xy"}\n')
    os.utime(tmp_path / "a.jsonl", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert content_hash(source, memory=memory) != first
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
    with pytest.raises(UserError, match=r"no generator 'other'. installed: numbered"):
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
    with pytest.raises(UserError, match=r"org/name:none. Unknown split. check name"):
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
    pq.write_table(pa.table({"messages": [CHAT[:1]], "chosen": ["x"]}), tmp_path / "a.parquet")
    (record,) = records(Corpus(path=[str(tmp_path / "a.parquet")], role="data"))
    assert record.values == {"messages": CHAT[:1], "chosen": "x"}


def index_of(texts):
    index = GroupIndex()
    for text in texts:
        index.add(document_id(text), text)
    return index.groups()


def sentence(rng, num_words=200):
    return [f"w{word}" for word in rng.integers(0, 5_000, num_words)]


def jaccard(one, other):
    return len(set(shingles(one)) & set(shingles(other))) / len(set(shingles(one)) | set(shingles(other)))


def test_near_duplicates_share_a_group_and_others_do_not():
    rng = np.random.default_rng(0)
    for _ in range(20):
        words = sentence(rng)
        near, far, nearly = list(words), list(words), list(words)
        nearly[12:200:24] = ["changed"] * 8
        near[50] = "changed"  # 5 of 196 shingles
        far[10:200:10] = ["changed"] * 19  # half of them
        base, near_text, far_text = " ".join(words), " ".join(near), " ".join(far)
        assert jaccard(base, near_text) > 0.9
        assert jaccard(base, far_text) < 0.6
        assert 0.6 < jaccard(base, " ".join(nearly)) < 0.7
        groups = index_of([base, near_text, far_text, " ".join(nearly)])
        assert groups[document_id(base)] != groups[document_id(" ".join(nearly))]
        assert groups[document_id(base)] == groups[document_id(near_text)]
        assert groups[document_id(base)] != groups[document_id(far_text)]
        assert groups[document_id(base)] == min(document_id(base), document_id(near_text))


def test_groups_do_not_depend_on_the_order():
    rng = np.random.default_rng(1)
    texts = []
    for _ in range(30):
        words = sentence(rng, 60)
        texts.append(" ".join(words))
        for _ in range(3):  # a chain: each is near the one before it
            words = list(words)
            words[int(rng.integers(0, 60))] = "changed"
            texts.append(" ".join(words))
    first = index_of(texts)
    assert 30 <= len(set(first.values())) < 120
    for _ in range(3):
        assert index_of([texts[place] for place in rng.permutation(len(texts))]) == first


def test_every_pair_of_a_bucket_is_verified():
    rng = np.random.default_rng(3)
    signatures_NP = rng.integers(0, 2**32, (4, NUM_PERMUTATIONS)).astype(np.uint32)
    signatures_NP[1], signatures_NP[3] = signatures_NP[0], signatures_NP[2]
    signatures_NP[:, :BAND_ROWS] = 7  # all four in one bucket
    signatures_NP[3, BAND_ROWS::BAND_ROWS] += 1  # 2 and 3 meet in that bucket only: 107 of 128 agree
    labels = _components(signatures_NP)
    assert labels[0] == labels[1] != labels[2] == labels[3]


def test_text_is_normalised_and_short_texts_are_one_shingle():
    assert shingles("ﬁne  TEXT\n") == shingles("fine text") == [b"fine text"]
    assert shingles("") == [b""]
    assert len(shingles("a b c d e f")) == 2
    groups = index_of(["Hello   There", "hello there", "hello you"])
    assert len(set(groups.values())) == 2
    assert index_of([]) == {}


def test_many_copies_of_one_template_are_one_group():
    words = [f"w{i}" for i in range(100)]
    texts = [" ".join([*words[:i], "x", *words[i + 1 :]]) for i in range(100)]
    assert len(set(index_of(texts).values())) == 1


def test_splits_are_made_by_group_and_seed():
    groups = [f"{i:032x}" for i in range(4_000)]
    split = [assign_split(group, 1, 0.25) for group in groups]
    assert abs(split.count("EVAL") / 4_000 - 0.25) < 0.03
    assert split == [assign_split(group, 1, 0.25) for group in groups]
    assert split != [assign_split(group, 2, 0.25) for group in groups]
    assert {assign_split(group, 1, 1.0) for group in groups} == {"EVAL"}
    assert {assign_split(group, 1, 0.0) for group in groups} == {"FIT"}


def test_documents_table(tmp_path):
    rng = np.random.default_rng(2)
    words = sentence(rng)
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
    assert table.schema == SCHEMAS["documents"]
    assert table["index"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["num_bytes"].to_pylist() == [len(base), 0, len(near), len(base), 16]
    group = table["group"].to_pylist()
    assert group[0] == group[2] == group[3]
    assert len(set(group)) == 3
    assert table["split"].to_pylist() == [assign_split(name, 7, 0.5) for name in group]
    assert not any(base in str(column.to_pylist()) for column in table.columns)
    empty = Corpus(path=[str(tmp_path / "a.jsonl")], eval_share=0.5)
    (tmp_path / "a.jsonl").write_text("")
    assert documents_table(empty, seed=7).num_rows == 0


def test_corpora_are_read_without_torch():
    code = (
        "import sys, stemmatics.lm.corpus; "
        "print(sorted({'torch', 'transformers', 'datasets', 'tokenizers'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

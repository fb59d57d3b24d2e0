"""Tables of others: long cells, semicolons, byte order marks, names twice, damage, checksums of sha256sum."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemmatics.commands.analyse.archive import read_checksums
from stemmatics.commands.analyse.table import read_table
from stemmatics.core.errors import UserError

ROWS = [{"task": f"t{n}", "model": "naïve", "before": n / 7, "after": n / 3} for n in range(30)]
CSV = "task,model,score\na,m,0.5\nb,m,0.25\n"


def refused(path):
    with pytest.raises(UserError) as caught:
        read_table(path)
    assert path.name in caught.value.what
    assert "\n" not in str(caught.value)
    return caught.value


def write(path, text):
    path.write_bytes(text.encode())
    return path


def columns(path):
    table = read_table(path)
    return {name: list(column) for name, column in table.columns.items()}


def test_a_long_cell_in_a_column_that_is_not_used_is_read(tmp_path):
    path = write(tmp_path / "a.csv", f'task,note\na,"{"x" * 150_000}"\n')
    assert columns(path)["task"] == ["a"]


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_other_delimiters_marks_and_line_ends_give_the_same_table(delimiter, mark, end, tmp_path):
    expected = columns(write(tmp_path / "a.csv", CSV))
    other = mark + CSV.replace(",", delimiter).replace("\n", end)
    assert columns(write(tmp_path / "b.CSV", other)) == expected


def test_a_decimal_comma_is_told_apart(tmp_path):
    table = read_table(write(tmp_path / "a.csv", "task;score\na;0,5\n"))
    with pytest.raises(UserError, match="decimal point"):
        table.numbers("score")
    assert read_table(write(tmp_path / "a.csv", "task;score\na;0.5\n")).numbers("score").tolist() == [0.5]


def test_a_row_of_another_length_says_how_cells_are_written(tmp_path):
    error = refused(write(tmp_path / "a.csv", "task\na,b\n"))
    assert "2 cells under 1 column" in error.what
    assert "1 columns" not in error.what
    assert columns(write(tmp_path / "a.csv", 'task\n"a,b"\n')) == {"task": ["a,b"]}  # the advice


def test_a_quote_that_is_never_closed_swallows_nothing(tmp_path):
    assert "line" in refused(write(tmp_path / "a.csv", 'task,score\n"a,1\nb,2\n')).what


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_name_twice_is_refused(name, tmp_path):
    line = '{"task": "a", "task": "b"}'
    error = refused(write(tmp_path / name, f"[{line}]" if name == "a.json" else f"\n{line}\n"))
    assert "twice" in error.what
    if name == "a.jsonl":
        assert "line 2" in error.what
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(twice, tmp_path / "b.parquet")
    assert "two columns 'x'" in refused(tmp_path / "b.parquet").what


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_byte_order_mark_is_dropped(name, tmp_path):
    text = json.dumps([{"task": "a"}] if name == "a.json" else {"task": "a"})
    assert columns(write(tmp_path / name, "\ufeff" + text)) == {"task": ["a"]}


@pytest.mark.parametrize("value", [{"a": 1}, ["x"]])
def test_an_object_is_not_a_name(value, tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"task": value, "score": 10**400}) + "\n")
    with pytest.raises(UserError, match="row 1, column 'task'"):
        read_table(path).labels("task")
    with pytest.raises(UserError, match="row 1, column 'score'"):
        read_table(path).numbers("score")


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl", "a.parquet"])
def test_a_table_cut_or_altered_anywhere_is_one_line_or_a_table(name, tmp_path):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif name == "a.csv":
        write(
            path, "task,model,after\n" + "".join(f'"{r["task"]}",{r["model"]},{r["after"]}\n' for r in ROWS)
        )
    else:
        text = [json.dumps(row, ensure_ascii=False) for row in ROWS]
        write(path, f"[{','.join(text)}]" if name == "a.json" else "\n".join(text))
    whole = path.read_bytes()
    draw = np.random.default_rng(0)
    errors = []
    for place in np.linspace(0, len(whole) - 1, 20).astype(int):
        damaged = bytearray(whole)
        damaged[place : place + 8] = draw.bytes(8)
        for content in (whole[:place], bytes(damaged)):
            path.write_bytes(content)
            with contextlib.suppress(UserError):  # what is not damaged visibly may be read
                errors.append(error_of(path))
    assert len(errors) >= 10
    assert all(name in error.what and "\n" not in str(error) for error in errors)


def error_of(path):
    try:
        read_table(path)
    except UserError as error:
        return error
    raise UserError("none", "it can be read", "nothing")


def test_a_pointer_of_git_lfs_says_how_to_get_the_table(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    for name in ("a.csv", "a.json", "a.jsonl", "a.parquet"):
        assert "git lfs pull" in refused(write(tmp_path / name, pointer)).fix


@pytest.fixture
def archive(tmp_path):
    write(tmp_path / "a.csv", CSV)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "b c.csv", CSV + "c,m,1\n")
    write(tmp_path / "back\\slash.csv", CSV)
    return tmp_path


FORMS = {
    "as sha256sum writes": "{a}  a.csv\n{b}  in/b c.csv\n\\{c}  back\\\\slash.csv\n",
    "dots, upper case, blank lines": "\n{A}  ./a.csv\n\n{B}  ./in//b c.csv\n  \n\\{C}  ./back\\\\slash.csv",
    "binary marks, line ends of Windows": "{a} *a.csv\r\n{b} *in/b c.csv\r\n\\{c} *back\\\\slash.csv\r\n",
    "comments, a file twice": "# x\n{a}  a.csv\n{a}  ./a.csv\n{b}  in/b c.csv\n\\{c}  back\\\\slash.csv\n",
    "BSD": "SHA256 (a.csv) = {a}\nSHA256 (in/b c.csv) = {b}\n\\SHA256 (back\\\\slash.csv) = {c}\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_checksums_are_read_as_sha256sum_does(form, archive):
    names = ("a.csv", "in/b c.csv", "back\\slash.csv")
    digests = [hashlib.sha256((archive / name).read_bytes()).hexdigest() for name in names]
    values = dict(zip("abc", digests, strict=True)) | {
        letter.upper(): digest.upper() for letter, digest in zip("abc", digests, strict=True)
    }
    text = FORMS[form].format(**values)
    write(archive / "SHA256SUMS", text)
    assert read_checksums(archive) == dict(zip(names, digests, strict=True))
    if shutil.which("sha256sum") and "\r" not in text and "//" not in text:
        ran = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=archive, capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("line", ["{0}  /a.csv", "{0}  in/../../a.csv", "{1}  a.csv", "{0} ", "xyz"])
def test_checksums_of_no_file_inside_are_refused(line, archive):
    write(archive / "SHA256SUMS", line.format("0" * 64, "0" * 63) + "\n")
    with pytest.raises(UserError, match="line 1"):
        read_checksums(archive)


def test_two_digests_of_one_file_are_refused(archive):
    write(archive / "SHA256SUMS", f"{'0' * 64}  a.csv\n{'1' * 64}  ./a.csv\n")
    with pytest.raises(UserError, match="line 2"):
        read_checksums(archive)

"""What a table can have wrong, and archives that were tampered with: one line, nothing on stdout."""

import hashlib
import json
import shutil

import pytest

RECOVERY = "corpus,unit,family,base,descendant,native_base,matched_base,native,recovered\n"
ONE_PAIR = "prose,nats_per_byte,f,b,d,0.7,0.6,0.8,0.65\n"
CELLS = [f"common_descendant_{early}_{late}" for early in ("base", "desc") for late in ("base", "desc")]
DEPTH = ",".join(["prompt_id", *CELLS]) + "\n"
PRIOR = "doc_id,num_tokens,old_none,new_none,old_b,new_b\n"
AGREEMENT = "task,model,before,after\n"

FAULTS = {
    "a missing column": ("recovery", RECOVERY.replace("family,", ""), 2, "no column 'family'"),
    "no rows": ("recovery", RECOVERY, 2, "has no rows"),
    "an empty file": ("recovery", "", 2, "is empty"),
    "a wrong unit": (
        "recovery",
        RECOVERY + ONE_PAIR.replace("nats_per_byte", "nats"),
        1,
        "row 1 has the unit 'nats'",
    ),
    "a pair twice": ("recovery", RECOVERY + ONE_PAIR * 2, 1, "rows 1 and 2 are both of corpus prose"),
    "two losses of one base": (
        "recovery",
        RECOVERY + ONE_PAIR + ONE_PAIR.replace(",d,0.7", ",e,0.71"),
        1,
        "corpus prose: b has more than one native_base",
    ),
    "not a number": (
        "recovery",
        RECOVERY + ONE_PAIR.replace("0.65", "high"),
        1,
        "row 1, column 'recovered' is 'high'",
    ),
    "not finite": (
        "recovery",
        RECOVERY + ONE_PAIR.replace("0.65", "nan"),
        1,
        "row 1, column 'recovered' is 'nan'",
    ),
    "infinite": (
        "depth",
        DEPTH + "p,1,2,3,4\nq,1,2,inf,4\n",
        1,
        "row 2, column 'common_descendant_desc_base'",
    ),
    "a loss below 0": ("recovery", RECOVERY + ONE_PAIR.replace("0.65", "-0.65"), 1, "must not be below 0"),
    "an empty name": (
        "recovery",
        RECOVERY + ONE_PAIR.replace(",f,", ",,"),
        1,
        "row 1, column 'family' is empty",
    ),
    "a ragged row": (
        "recovery",
        RECOVERY + ONE_PAIR.replace(",0.65", ""),
        1,
        "row 1 has 8 cells under 9 columns",
    ),
    "a column twice": ("prior", "doc_id,doc_id\n1,2\n", 1, "two columns 'doc_id'"),
    "no readout": ("depth", "prompt_id\np\n", 2, "no readout 'common-descendant'"),
    "an event twice": ("depth", DEPTH + "p,1,2,3,4\n" * 2, 1, "rows 1 and 2"),
    "a document twice": ("prior", PRIOR + "a,9,8,9,8,9\n" * 2, 1, "rows 1 and 2 are both of doc_id a"),
    "an arm of one model": ("prior", PRIOR.replace(",new_b", ",new_c") + "a,9,8,9,8,9\n", 2, "no new_b"),
    "no arm": ("prior", "doc_id,num_tokens,old_none,new_none\na,9,8,9\n", 2, "no arm but none"),
    "no tokens": ("prior", PRIOR + "a,0,0,0,0,0\n", 1, "has no tokens"),
    "a loss without tokens": (
        "prior",
        PRIOR + "a,9,8,9,8,9\nb,0,8,9,8,9\n",
        1,
        "row 2 has a loss but no tokens",
    ),
    "one task": ("agreement", AGREEMENT + "t,m,0.1,0.2\nt,n,0.3,0.4\n", 1, "leaves 1 task"),
    "a score twice": ("agreement", AGREEMENT + "t,m,0.1,0.2\n" * 2, 1, "rows 1 and 2"),
}


def one_line(ran, code, says):
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("error: ")
    assert ran.err.count(". ") >= 2, "WHAT. WHY. FIX"
    assert says in ran.err


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
def test_a_fault_is_named_with_its_row(case, words, tmp_path, stemma_command):
    measure, text, code, says = FAULTS[case]
    (tmp_path / "t.csv").write_text(text)
    one_line(stemma_command("analyse", measure, tmp_path / "t.csv", *words), code, says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["chapters", "t.csv"], "The measures are recovery, agreement, depth, prior, divergence"),
        (["prior", "nowhere.csv"], "nowhere.csv does not exist"),
        (["depth", "."], "is a folder"),
        (["prior", "t.xls"], "unknown file type"),
        (["prior", "t.csv", "--readout", "own"], "--readout is not an option of prior"),
        (["prior", "t.csv", "--write-checksums"], "is only for a folder"),
        (["agreement", "s.csv", "--tasks", "t,u"], "no task 'u'"),
        (["agreement", "s.csv", "--lower-is-better", "u"], "no task 'u'"),
        (["prior", "."], "has no SHA256SUMS"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_status_2(words, says, tmp_path, monkeypatch, stemma_command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(PRIOR + "a,9,8,9,8,9\n")
    (tmp_path / "t.xls").write_text("")
    (tmp_path / "s.csv").write_text(AGREEMENT + "t,m,0.1,0.2\nt,n,0.3,0.4\n")
    one_line(stemma_command("analyse", *words), 2, says)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.json", b'{"a": 1', "is not JSON"),
        ("t.json", b'[{"doc_id": 1, "doc_id": 2}]', "'doc_id' twice"),
        ("t.json", b"[1, 2]", "is not a table"),
        ("t.json", b'{"doc_id": ["a"], "num_tokens": [1, 2]}', "different lengths"),
        ("t.jsonl", b'{"doc_id": "a"}\n{', "is not JSON"),
        ("t.parquet", b"PAR1", "is not Parquet"),
        ("t.csv", b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_files_that_are_not_what_they_are_called(name, data, says, tmp_path, stemma_command):
    (tmp_path / name).write_bytes(data)
    ran = stemma_command("analyse", "prior", tmp_path / name)
    one_line(ran, ran.code, says)
    assert ran.code in {1, 2}


def test_null_and_true_are_no_numbers(tmp_path, stemma_command):
    row = {"doc_id": "a", "num_tokens": 9, "old_none": 8, "new_none": 9, "old_b": 8, "new_b": 9}
    for bad in (None, True):
        (tmp_path / "t.json").write_text(json.dumps([row | {"new_b": bad}]))
        one_line(stemma_command("analyse", "prior", tmp_path / "t.json"), 1, "It must be a number")


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        ("recovery", RECOVERY + ONE_PAIR),
        ("recovery", RECOVERY + "".join(ONE_PAIR.replace(",f,b,d", f",f{k},b{k},d{k}") for k in range(3))),
        ("depth", DEPTH + "p,1,2,3,4\n"),
        ("depth", DEPTH + "".join(f"p{k},1,2,3,4\n" for k in range(30))),
        ("depth", DEPTH + "".join(f"p{k},1,1,1,1\n" for k in range(30))),
        ("prior", PRIOR + "a,9,8,9,8,9\n"),
        ("prior", PRIOR + "".join(f"d{k},9,8,9,8,9\n" for k in range(30))),
        ("prior", PRIOR + "".join(f"d{k},9,8,8,8,8\n" for k in range(30))),
        ("agreement", AGREEMENT + "".join(f"{t},{m},{k},{k}\n" for t in "tu" for k, m in enumerate("mn"))),
    ],
)
def test_one_row_or_constant_values_give_no_limits_and_no_crash(measure, text, tmp_path, stemma_command):
    (tmp_path / "t.csv").write_text(text)
    ran = stemma_command("analyse", measure, tmp_path / "t.csv", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert "NaN" not in ran.out
    shown = stemma_command("analyse", measure, tmp_path / "t.csv")
    assert (shown.code, "nan" in shown.out) == (0, False)


@pytest.fixture
def archive(tmp_path, stemma_command):
    """Two tables of sums and a text beside them, with checksums."""
    folder = tmp_path / "archive"
    (folder / "more").mkdir(parents=True)
    rows = "".join(f"d{k},{90 + k},{80 + k},{99 + 2 * k},{80 + k},{97 + 2 * k}\n" for k in range(30))
    (folder / "one.csv").write_text(PRIOR + rows)
    (folder / "more/two.csv").write_text(PRIOR + rows)
    (folder / "notes.txt").write_text("made by hand\n")
    ran = stemma_command("analyse", "prior", folder, "--write-checksums", "--json")
    assert ran.json()["files"] == ["more/two.csv", "notes.txt", "one.csv"]
    return folder


def test_a_whole_archive_is_estimated(archive, stemma_command):
    ran = stemma_command("analyse", "prior", archive, "--json")
    assert (ran.code, ran.err) == (0, "")
    found = ran.json()
    assert (found["num_files"], found["problems"], set(found["tables"])) == (
        3,
        [],
        {"one.csv", "more/two.csv"},
    )
    alone = stemma_command("analyse", "prior", archive / "one.csv", "--json").json()
    assert found["tables"]["one.csv"]["arms"] == alone["arms"]
    assert "3 files, 0 problems" in stemma_command("analyse", "prior", archive).out
    lines = (archive / "SHA256SUMS").read_text().splitlines()
    assert lines[2] == f"{hashlib.sha256((archive / 'one.csv').read_bytes()).hexdigest()}  one.csv"


TAMPERED = {
    "altered": (lambda folder: (folder / "one.csv").write_text(PRIOR + "a,9,8,9,8,9\n"), "altered: one.csv"),
    "a text altered": (lambda folder: (folder / "notes.txt").write_text("x"), "altered: notes.txt"),
    "missing": (lambda folder: (folder / "more/two.csv").unlink(), "missing: more/two.csv"),
    "extra": (lambda folder: shutil.copy(folder / "one.csv", folder / "three.csv"), "extra: three.csv"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_tampering_is_named_and_the_status_is_1(case, archive, stemma_command):
    change, says = TAMPERED[case]
    change(archive)
    ran = stemma_command("analyse", "prior", archive, "--json")
    assert ran.code == 1
    assert [says in problem for problem in ran.json()["problems"]] == [True]
    assert f"wrong: {says}" in ran.err
    named = says.split(": ")[1]
    assert named not in ran.json()["tables"]


def test_a_table_that_is_not_finite_is_named_though_its_digest_holds(archive, stemma_command):
    (archive / "one.csv").write_text(PRIOR + "a,9,8,nan,8,9\n")
    assert stemma_command("analyse", "prior", archive, "--write-checksums").code == 0
    ran = stemma_command("analyse", "prior", archive, "--json")
    assert ran.code == 1
    assert ran.json()["problems"] == ["not usable: one.csv: row 1, column 'new_none' is 'nan'"]
    assert set(ran.json()["tables"]) == {"more/two.csv"}


@pytest.mark.parametrize(
    "line", ["abc  one.csv", "{digest}  ../one.csv", "{digest}  one.csv\n{other}  ./one.csv"]
)
def test_checksums_that_are_not_right_are_refused(line, archive, stemma_command):
    (archive / "SHA256SUMS").write_text(
        line.replace("{digest}", "0" * 64).replace("{other}", "1" * 64) + "\n"
    )
    one_line(stemma_command("analyse", "prior", archive), 1, "SHA256SUMS, line")


def test_checksums_of_nothing_are_refused(tmp_path, stemma_command):
    (tmp_path / "empty").mkdir()
    one_line(stemma_command("analyse", "prior", tmp_path / "empty", "--write-checksums"), 2, "has no files")

"""A stemma.yaml that can't be used is answered with its line and with what to write instead."""

import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.load import line_of, load, parse

GOOD = """\
name: good
seed: 3
checkpoints:
  base: {source: org/base}
  tuned:
    source: org/tuned
    base: base
stages:
  heavy:
    kind: sft
    init: tuned
    corpus: chats
    recipe: {steps: 5, learning_rate: 1e-4}
corpora:
  news: {path: news.txt, register: news}
  chats:
    path: [a.jsonl, b.jsonl]
    role: data
measures:
  loss: {checks: 2}
"""

BASE = "checkpoints:\n  base: {source: o/b}\n"
CHATS = "corpora:\n  chats: {path: c.txt}\n"
STAGE = "stages:\n  s:\n    kind: sft\n"

# what is written, the line that is at fault, and what the error must say
WRONG = {
    "unknown key at the top": ("name: x\nsede: 3\n", 2, ["unknown key 'sede'", "'seed'"]),
    "unknown key far from any": ("name: x\nzzz: 3\n", 2, ["unknown key 'zzz'", "Known keys are", "corpora"]),
    "unknown key of a checkpoint": (
        "checkpoints:\n  base:\n    source: org/base\n    revison: abc\n",
        4,
        ["unknown key 'revison' in checkpoints.base", "'revision'"],
    ),
    "unknown key of a corpus": (
        "corpora:\n  news:\n    path: n.txt\n    registr: a\n",
        4,
        ["unknown key 'registr' in corpora.news", "'register'"],
    ),
    "unknown key of a stage's recipe": (
        BASE + CHATS + STAGE + "    init: base\n    corpus: chats\n    recipe:\n      learningrate: 1e-3\n",
        11,
        ["unknown key 'learningrate' in stages.s.recipe", "'learning_rate'"],
    ),
    "unknown key of numerics": (
        "name: x\nnumerics:\n  dtyp: float32\n",
        3,
        ["unknown key 'dtyp'", "'dtype'"],
    ),
    "unknown key of windows": (
        "scoring:\n  windows:\n    sise: 3\n",
        3,
        ["unknown key 'sise' in scoring.windows", "'size'"],
    ),
    "missing source": (
        "checkpoints:\n  base:\n    revision: abc\n",
        2,
        ["checkpoints.base.source is missing", "'source'"],
    ),
    "missing init": (
        "corpora:\n  c: {path: c.txt}\nstages:\n  s:\n    kind: sft\n    corpus: c\n",
        4,
        ["stages.s.init is missing", "'init'"],
    ),
    "word for a number": ("name: x\nseed: many\n", 2, ["invalid value of seed", "integer"]),
    "negative seed": ("name: x\nseed: -1\n", 2, ["invalid value of seed", "greater than or equal to 0"]),
    "a list for a mapping": (
        "name: x\ncheckpoints:\n  - a\n  - b\n",
        2,
        ["invalid value of checkpoints", "dict"],
    ),
    "a text for a corpus": ("corpora:\n  news: news.txt\n", 2, ["invalid value of corpora.news", "Corpus"]),
    "unknown dtype": (
        "numerics:\n  dtype: float8\n",
        2,
        ["invalid value of numerics.dtype", "'float32'"],
    ),
    "unknown kind of stage": (
        "checkpoints:\n  b: {source: o/b}\nstages:\n  s:\n    kind: sfft\n    init: b\n",
        4,
        ["invalid value of stages.s", "'sft'"],
    ),
    "a stage without a kind": (
        "checkpoints:\n  b: {source: o/b}\nstages:\n  s:\n    init: b\n",
        4,
        ["invalid value of stages.s", "kind"],
    ),
    "two sources of a corpus": (
        "name: x\ncorpora:\n  ok: {path: a.txt}\n  news:\n    path: n.txt\n    dataset: org/d\n",
        4,
        ["invalid value of corpora.news", "exactly one of path, dataset, generator"],
    ),
    "no source of a corpus": ("corpora:\n  news:\n    field: t\n", 2, ["exactly one of", "found none"]),
    "stride over window": (
        "scoring:\n  windows:\n    size: 8\n    stride: 9\n",
        2,
        ["Stride 9 is larger than the window of 8"],
    ),
    "a corpus that is not declared": (
        BASE + STAGE + "    init: base\n    corpus: nowhere\n",
        7,
        ["'nowhere'", "not declared", "Declared are none"],
    ),
    "a corpus spelled wrong": (
        BASE + CHATS + STAGE + "    corpus: chat\n    init: base\n",
        8,
        ["'chat'", "not declared", "'chats'"],
    ),
    "an init that is not declared": (
        CHATS + BASE + STAGE + "    init: bsae\n    corpus: chats\n",
        8,
        ["'bsae'", "not declared", "'base'"],
    ),
    "a base that is not declared": (
        "checkpoints:\n  a: {source: o/a}\n  b:\n    source: o/b\n    base: c\n",
        5,
        ["'c'", "not declared"],
    ),
    "a cycle of bases": (
        "name: x\ncheckpoints:\n  a: {source: o/a, base: b}\n  b: {source: o/b, base: a}\n",
        3,
        ["cycle", "a -> b -> a"],
    ),
    "its own base": ("checkpoints:\n  a:\n    source: o/a\n    base: a\n", 4, ["cycle", "a -> a"]),
    "a cycle of stages": (
        (
            "corpora:\n  c: {path: c.txt}\nstages:\n"
            "  s: {kind: cpt, init: t, corpus: c}\n  t: {kind: cpt, init: s, corpus: c}\n"
        ),
        4,
        ["cycle", "s -> t -> s"],
    ),
    "a name used twice": (
        "checkpoints:\n  a: {source: o/a}\nstages:\n  a: {kind: alter, init: a, change: bias, scale: 1}\n",
        4,
        ["'a' is both a checkpoint and a stage"],
    ),
    "a key given twice": ("name: x\nseed: 1\nseed: 2\n", 3, ["not valid YAML", "duplicate"]),
    "bad indentation": ("name: x\ncheckpoints:\n  a: {source: o/a}\n b: 3\n", 4, ["not valid YAML"]),
    "a bracket left open": ("name: x\ncorpora: {a: {path: b}\n", 3, ["not valid YAML"]),
    "a tab": ("name: x\ncorpora:\n\ta: 3\n", 3, ["not valid YAML"]),
    "a list": ("- a\n- b\n", 1, ["not a stemma", "stemma init"]),
    "nothing": ("", 1, ["not a stemma", "stemma init"]),
    "a name with a slash": ("seed: 1\nname: a/b\n", 2, ["invalid value of name"]),
    "a version from the future": ("name: x\nstemma: 9\n", 2, ["invalid value of stemma"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_answered_with_line_and_fix(case, tmp_path):
    text, line, says = WRONG[case]
    path = tmp_path / "stemma.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load(path)
    error = caught.value
    assert error.code == 2
    assert f"stemma.yaml, line {line}:" in str(error), str(error)
    for part in says:
        assert part in str(error), str(error)
    assert error.why
    assert error.fix


def test_a_good_file_is_read_with_paths_beside_it(tmp_path):
    path = tmp_path / "stemma.yaml"
    path.write_text(GOOD)
    stemma, tree = load(path)
    assert stemma.corpora["news"].path == [str(tmp_path / "news.txt")]
    assert stemma.corpora["chats"].path == [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert stemma.parent("heavy") == "tuned"
    assert stemma.family("heavy") == "base"
    assert stemma.pairs() == [("base", "tuned")]
    assert line_of(tree, ("stages", "heavy", "sft", "recipe", "steps")) == 13


def test_only_marked_sources_are_paths(tmp_path):
    path = tmp_path / "stemma.yaml"
    path.write_text("checkpoints:\n  a: {source: ./here}\n  b: {source: org/name}\n")
    stemma, _ = load(path)
    assert stemma.checkpoints["a"].source == str(tmp_path / "here")
    assert stemma.checkpoints["b"].source == "org/name"


def test_files_that_are_no_text_and_files_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match=r"does not exist.*stemma init") as caught:
        load(tmp_path / "stemma.yaml")
    assert caught.value.code == 2
    (tmp_path / "stemma.yaml").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(UserError, match=r"can't be read.*UTF-8") as caught:
        load(tmp_path / "stemma.yaml")
    assert caught.value.code == 2
    with pytest.raises(UserError, match="can't be read"):
        load(tmp_path)


def test_lines_count_from_one():
    tree = parse("# first\na:\n  - x\n  - y: 1\n", "f")
    assert line_of(tree, ("a",)) == 2
    assert line_of(tree, ("a", 1, "y")) == 4
    assert line_of(tree, ("nowhere",)) == 1

"""Names are data: whatever a checkpoint, corpus, register or family is called, runs verify and show it."""

from __future__ import annotations

import html
import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.report.digits import stray_digits
from tests.study.hand_made_run import NUM_DOCUMENTS, make_run

from stemmatics.core.errors import UserError
from stemmatics.core.load import parse, validate
from stemmatics.core.results import result_id
from stemmatics.core.stemma import Stemma
from stemmatics.lm.text.corpus import register_label
from stemmatics.report.tables import plain_summary, rich_table, write_tables
from stemmatics.study.read import load_report_content, open_run
from stemmatics.study.verify import verify

# words that are used by the product itself, and texts that look like markup, markdown, paths, formats or ids
WORDS = [
    "all", "register all", "total", "none", "None", "summary", "matched", "base", "descendant", "lost",
    "refused", "improved", "undecided", "auto", "text-2", "c4", "wiki-103", "4", "½", "١٢", "nan", "n/a",
    "<script>alert(1)</script>", "</svg>", "a`b`c", "{name}", "{0}", "%s", "[/red]", "[bold]", "$x$",
    "../../etc", "a/b=c", "a/corpus=b", "~1", "x#value", '"', "'", "&amp;", "=1+1", "-", ".", "…", "a b",
    "CON", "report.html", "__proto__", "true", "é", "e\u0301", "👩‍👩‍👧", "\u202eabc", "x" * 300, " a",
    "a\u00a0b",
]  # fmt: skip
PRINTABLE = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn", "Co")), min_size=1, max_size=40
).filter(lambda text: bool(text.strip()))
NAMES = st.one_of(st.sampled_from(WORDS), PRINTABLE)


def declared(checkpoints, corpora, family):
    base, *descendants = checkpoints
    return {
        "checkpoints": {
            base: {"source": "org/a", "family": family},
            **{name: {"source": f"org/{n}", "base": base} for n, name in enumerate(descendants)},
        },
        "corpora": {name: {"path": f"{n}.jsonl"} for n, name in enumerate(corpora)},
        "measures": {"loss": {"checks": 0, "movers": 1}},
    }


def visible(page):
    """A page's text as a reader sees it with every table opened, white space as one space."""
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', page, re.DOTALL)[1])
    cells = [
        cell for table in data["tables"] for row in table["rows"] for cell in row if isinstance(cell, str)
    ]
    without = re.sub(r"<script.*?</script>|<style.*?</style>", " ", page, flags=re.DOTALL)
    return " ".join([*html.unescape(re.sub(r"<[^>]*>", "", without)).split(), *" ".join(cells).split()])


def check_run(root, checkpoints, corpora, registers, family):
    make_run(root, declared(checkpoints, corpora, family), registers)
    verdict = verify(root)
    assert verdict.problems == []
    assert verdict.holds
    page = (root / "report.html").read_bytes().decode()
    assert stray_digits(page) == []
    text = visible(page)
    shown = [*checkpoints, *corpora, family]
    if len(set(registers)) > 1:
        shown += [register for register in registers if register != "all"]
    for name in shown:
        assert " ".join(name.split()) in text, name
    content = load_report_content(open_run(root))
    assert plain_summary(content)
    for section in content.sections:
        for table in section.tables:
            rich_table(table, content.results)
    files = write_tables(content, root / "export")
    assert len({path.name.casefold() for path in files}) == sum(len(s.tables) for s in content.sections)
    ids = re.findall(r'<[^>]* id="([^"]*)"', re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert len(set(ids)) == len(ids)


DRAWN = (
    st.lists(NAMES, min_size=3, max_size=3, unique=True),
    st.lists(NAMES, min_size=2, max_size=2, unique=True),
    st.lists(NAMES, min_size=NUM_DOCUMENTS, max_size=NUM_DOCUMENTS),
    NAMES,
)
SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def check_names(checkpoints, corpora, registers, family):
    with tempfile.TemporaryDirectory() as folder:
        stored = [register_label(register) for register in registers]
        check_run(Path(folder) / "run", checkpoints, corpora, stored, family)


@settings(max_examples=3, derandomize=True, **SLOW)
@given(*DRAWN)
def test_any_printable_name_leads_to_a_run_that_verifies_and_a_page_that_shows_it(
    checkpoints, corpora, registers, family
):
    check_names(checkpoints, corpora, registers, family)


@pytest.mark.known
@settings(max_examples=25, **SLOW)
@given(*DRAWN)
def test_many_printable_names(checkpoints, corpora, registers, family):
    check_names(checkpoints, corpora, registers, family)


@pytest.mark.parametrize("start", range(0, len(WORDS), 8))
def test_the_products_own_words_and_looks_of_markup_are_names_too(start, tmp_path):
    words = (WORDS[start:] + WORDS)[:8]
    registers = [register_label(word) for word in words[:NUM_DOCUMENTS]]
    check_run(tmp_path / "run", words[:3], words[3:5], registers, words[5])


def test_a_register_called_all_is_beside_the_total(tmp_path):
    registers = [register_label(name) for name in ("all", "all", "all", "web", "web", "web")]
    (evaluation,) = make_run(tmp_path / "run", declared(["a", "b"], ["t"], "f"), registers)
    deltas = evaluation.results.all("loss.delta.byte")
    assert sorted(delta.subject["register"] for delta in deltas) == ["all", "register all", "web"]
    total, own = (
        evaluation.results.only("loss.delta.byte", register=name) for name in ("all", "register all")
    )
    assert (total.n, own.n) == (6, 3)
    assert verify(tmp_path / "run").holds


def test_documents_without_a_register_count_in_the_total_alone(tmp_path):
    (evaluation,) = make_run(tmp_path / "run", declared(["a", "b"], ["t"], "f"), ["all"] * 3 + ["web"] * 3)
    deltas = {delta.subject["register"]: delta.n for delta in evaluation.results.all("loss.delta.byte")}
    assert deltas == {"all": 6, "web": 3}
    assert verify(tmp_path / "run").holds


@example({"corpus": "c/register=r", "register": "s"}, {"corpus": "c", "register": "r/register=s"})
@example({"corpus": "a/b"}, {"corpus": "a~1b"})
@given(
    st.dictionaries(st.sampled_from("abc"), st.text("/=~01ab", max_size=6), min_size=2),
    st.dictionaries(st.sampled_from("abc"), st.text("/=~01ab", max_size=6), min_size=2),
)
def test_two_subjects_never_have_one_id(first, second):
    assert (result_id("q", first) == result_id("q", second)) == (first == second)


REFUSED = {
    "blank": ('"  "', "blank", "at least one letter"),
    "a line break": ('"a\\nb"', "U+000A", "one line"),
    "a line separator": ('"a\\u2028b"', "U+2028", "one line"),
    "a control character": ('"a\\eb"', "U+001B", "without control"),
    "a number": ("4", "the name 4 under checkpoints is not text", 'in quotes: "4"'),
    "null": ("null", "the name null", 'in quotes: "null"'),
    "a truth value": ("true", "not text", "in quotes"),
    "a date": ("2024-01-01", "the name 2024-01-01", 'in quotes: "2024-01-01"'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_name_that_can_not_be_shown_is_refused_before_any_work(case):
    written, why, fix = REFUSED[case]
    text = f"checkpoints:\n  {written}: {{source: org/x}}\n"
    tree = parse(text, "stemma.yaml")
    with pytest.raises(UserError) as caught:
        validate(Stemma, tree, (), "stemma.yaml", tree)
    assert caught.value.code == 2
    assert why in str(caught.value)
    assert fix in caught.value.fix


def test_a_name_in_quotes_is_taken():
    """The advice, followed."""
    for written in ('"4"', '"null"', '"2024-01-01"'):
        tree = parse(f"checkpoints:\n  {written}: {{source: org/x, family: {written}}}\n", "stemma.yaml")
        assert list(validate(Stemma, tree, (), "stemma.yaml", tree).checkpoints) == [written.strip('"')]


def test_a_study_with_digits_in_every_name_verifies(tiny, tmp_path, stemma_command):
    """With every measure that reads models, by a stemma and by ``compare``."""
    yaml = tmp_path / "stemma.yaml"
    yaml.write_text(
        f"""
checkpoints:
  "4": {{source: {tiny / "base"}, family: "7"}}
  gpt-2 [b]: {{source: {tiny / "tuned"}, base: "4"}}
corpora:
  c4: {{path: {tiny / "a.jsonl"}, eval_share: 0.5}}
measures:
  loss: {{checks: 1, movers: 1}}
  prior: {{references: [], draws: 3, refits: 0, floors: 1}}
  depth: {{prompts: c4, opening_tokens: 4, max_prompts: 3, max_new_tokens: 3, controls: false, floor: c4}}
""",
        encoding="utf-8",
    )
    ran = stemma_command("run", yaml, "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    check = stemma_command("verify", tmp_path / "run")
    assert check.code == 0, check.err
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert stray_digits(page) == []

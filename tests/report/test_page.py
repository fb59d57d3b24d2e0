import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from stemmatics.core.content import Content
from stemmatics.core.results import Claim
from stemmatics.report.check import check_page, compare_pages
from stemmatics.report.page import render_page, write_page


@pytest.fixture
def page(content: Content) -> str:
    return render_page(content)[0]


@pytest.fixture
def bare(content: Content) -> str:
    """The page without charts, so that hundreds of alterations are read in a second."""
    section = replace(content.sections[0], charts=[])
    return render_page(replace(content, sections=[section]))[0]


@pytest.fixture
def expected(content: Content) -> dict[str, str]:
    return {claim.id: claim.text(content.results) for claim in render_page(content)[1]}


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    reader = Elements()
    reader.feed(html)
    return reader.found


def test_a_written_page_prints_its_claims(content, tmp_path):
    path = tmp_path / "report" / "index.html"
    claims = write_page(content, path)
    assert check_page(path.read_text(), {claim.id: claim.text(content.results) for claim in claims}) == []
    assert [entry.name for entry in path.parent.iterdir()] == ["index.html"]


def test_claims_of_sentences_tables_and_intervals_are_returned_once(content):
    ids = [claim.id for claim in render_page(content)[1]]
    assert len(ids) == len(set(ids))
    delta = next(name for name in content.results if name.startswith("loss.difference") and "chat" in name)
    for field in ("value", "lo", "hi"):
        assert Claim(delta, field, "{:+.4f}").id in ids
    assert Claim(delta, "n", "{:d}").id in ids
    assert sum("#level#{:g}#100" in name for name in ids) == 1


def test_same_content_same_page(content):
    assert render_page(content)[0] == render_page(content)[0]


def test_every_single_number_is_guarded(bare, expected):
    claims = list(re.finditer(r'(<span data-claim="[^"]*">)([^<]*)(</span>)', bare))
    assert len(claims) > 40
    for claim in claims:
        text = claim[2]
        changed = text.replace(text[-1], "7" if text[-1] != "7" else "8")
        altered = bare[: claim.start(2)] + changed + bare[claim.end(2) :]
        assert check_page(altered, expected), claim[0]
        removed = bare[: claim.start()] + bare[claim.end() :]
        assert check_page(removed, expected), claim[0]


def test_numbers_in_the_data_are_guarded(bare, expected):
    data = block(bare)
    assert len(data["claims"]) == len(expected)
    for index, (result, form, text, times) in enumerate(data["claims"]):
        for changed in ([result, form, "7" + text, times], [result, form, text, times + 1]):
            claims = [*data["claims"][:index], changed, *data["claims"][index + 1 :]]
            assert check_page(with_block(bare, {**data, "claims": claims}), expected)


def test_a_cell_of_the_data_that_shows_another_number_is_found(bare, expected):
    data = block(bare)
    cells = [
        (line, place)
        for line, row in enumerate(data["tables"][0]["rows"])
        for place, cell in enumerate(row)
        if isinstance(cell, int)
    ]
    assert len(cells) > 10
    for line, place in cells:
        altered = json.loads(json.dumps(data))
        row = altered["tables"][0]["rows"][line]
        row[place] = (row[place] + 1) % len(data["claims"])
        assert check_page(with_block(bare, altered), expected)


@pytest.mark.parametrize("broken", ["", "{}", '{"results": 3}', "[1]", "{"])
def test_data_that_cannot_be_read_is_a_problem(bare, expected, broken):
    altered = _BLOCK.sub(lambda _: f'<script type="application/json" id="page-data">{broken}</script>', bare)
    assert any("data can't be read" in problem for problem in check_page(altered, expected))
    assert check_page(_BLOCK.sub("", bare), expected)


_BLOCK = re.compile(r'<script type="application/json" id="page-data">(.*?)</script>', re.DOTALL)


def block(html):
    (text,) = _BLOCK.findall(html)
    return json.loads(text, parse_constant=pytest.fail)


def with_block(html, data):
    return _BLOCK.sub(
        lambda _: f'<script type="application/json" id="page-data">{json.dumps(data)}</script>', html
    )


def test_a_claim_printed_once_more_is_found(bare, expected):
    printed = re.search(r'<span data-claim="[^"]*">[^<]*</span>', bare)
    twice = bare.replace("</main>", f"<p>{printed[0]}</p></main>")
    assert any("the list says" in problem for problem in check_page(twice, expected))


def test_missing_and_unknown_claims_are_named(bare, expected):
    first = next(iter(expected))
    fewer = {name: text for name, text in expected.items() if name != first}
    assert f"unknown claim {first}" in check_page(bare, fewer)
    assert "claim new#value is not printed" in check_page(bare, expected | {"new#value": "1.0"})
    assert any(
        first in problem and "the sums give" in problem
        for problem in check_page(bare, expected | {first: "9"})
    )


def test_a_bare_number_in_a_table_is_refused(content):
    table = replace(content.sections[0].tables[0], columns=["loss"], rows=[[0.5]])
    section = replace(content.sections[0], tables=[table])
    with pytest.raises(TypeError, match=r"not 0\.5"):
        render_page(replace(content, sections=[section]))


ADDITIONS = (
    "<p>It wins by 3 points.</p>",
    "&#49;",
    '<img alt="up by 4" src="data:,">',
    '<p aria-label="wins">wins</p>',
    '<b title="better"></b>',
    "<script type='application/json'>{}</script>",
)


@pytest.mark.parametrize("addition", ADDITIONS)
def test_compare_pages_sees_what_was_added_or_taken_away(bare, addition):
    for anchor in ("</main>", '<section id="verify"', "</footer>"):
        longer = bare.replace(anchor, addition + anchor, 1)
        assert any(line.startswith("+") for line in compare_pages(longer, bare))
        assert any(line.startswith("-") for line in compare_pages(bare, longer))


def test_compare_pages_sees_names_counts_and_chart_data(page):
    assert compare_pages(page, page) == []
    assert compare_pages(page.replace(">412<", ">413<"), page)
    assert compare_pages(page.replace("olmo2-1b-instruct", "olmo2-7b-instruct"), page)
    assert compare_pages(page.replace('"difference": 0.0221', '"difference": 0.5221'), page)
    assert compare_pages(page.replace("--paper: #fdfdfc", "--paper: #ffffff"), page) == []


def test_nothing_is_loaded_from_elsewhere(page):
    loading = {"src", "href", "srcset", "data", "action", "poster", "background"}
    targets = [value for _, attrs in elements(page) for name, value in attrs.items() if name in loading]
    assert targets
    assert all(target.startswith("#") for target in targets)
    assert not [tag for tag, _ in elements(page) if tag in {"link", "iframe", "object", "embed"}]
    policies = [attrs["content"] for tag, attrs in elements(page) if attrs.get("http-equiv")]
    assert policies
    assert policies[0].startswith("default-src 'none'")
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_user_text_is_escaped(page):
    assert "&lt;descendants&gt;" in page
    assert "<descendants>" not in page
    assert "&lt;here&gt;" in page


def test_chart_data_is_json_without_nan(page):
    texts = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert len(texts) == 1
    spec = json.loads(texts[0], parse_constant=pytest.fail)
    assert spec["width"] == "container"


def test_anchors_name_measure_table_and_corpus_once(content):
    section = content.sections[0]
    table = replace(section.tables[0], name="loss/differences/heldout")
    chart = replace(section.charts[0], name="loss/where/heldout")
    html, _ = render_page(replace(content, sections=[replace(section, tables=[table], charts=[chart])]))
    ids = {attrs["id"] for _, attrs in elements(html) if "id" in attrs}
    assert {"section-loss", "table-loss-differences-heldout", "chart-loss-where-heldout"} <= ids


def test_headings_descend_one_level_at_a_time(page):
    levels = [int(tag[1]) for tag, _ in elements(page) if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_ids_are_unique_and_references_resolve(page):
    attributes = [attrs for _, attrs in elements(page)]
    ids = [attrs["id"] for attrs in attributes if "id" in attrs]
    assert len(ids) == len(set(ids))
    referred = {attrs["aria-labelledby"] for attrs in attributes if "aria-labelledby" in attrs}
    referred |= {attrs["href"].removeprefix("#") for attrs in attributes if "href" in attrs}
    assert referred <= set(ids)


def test_a_page_without_charts_has_no_library_and_ships_no_licence(content):
    bare = replace(content.sections[0], charts=[])
    html, _ = render_page(replace(content, sections=[bare]))
    assert len(html) < 60_000
    assert "Interactive Data Lab" not in html


def test_a_page_with_charts_ships_the_library_with_its_licence(page):
    assert "vegaEmbed" in page
    assert "University of Washington Interactive Data Lab" in page
    assert "Redistributions in binary form must reproduce" in page
    assert len(page) < 1_100_000

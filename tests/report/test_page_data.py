"""The page's data: what docs/report.md says of it."""

import json
import re

import pytest
from tests.report.screens import NAMES, demo_like

from stemmatics.core.results import result_id
from stemmatics.report.page import render_page


@pytest.fixture(scope="module")
def page():
    return render_page(demo_like())


@pytest.fixture(scope="module")
def data(page):
    (text,) = re.findall(r'id="page-data">(.*?)</script>', page[0], re.DOTALL)
    return json.loads(text, parse_constant=pytest.fail)


def results_of(data):
    """The results of the block as plain data, in the order that claims count them."""
    names = ("value", "lo", "hi", "n", "smallest_effect")
    for group in data["results"]:
        assert group["kind"] == "estimate"
        for row in group["rows"]:
            subject = dict(zip(group["subject"], row, strict=False))
            numbers = dict(zip(names, row[len(subject) :], strict=True))
            yield result_id(group["quantity"], subject), {**group, **numbers}


def test_claims_are_the_page_s_in_order(page, data):
    results = list(results_of(data))
    ids = []
    for result, form, text, times in data["claims"]:
        field, template, scale = data["forms"][form]
        name, numbers = results[result]
        ids.append(f"{name}#{field}#{template}#{scale:g}")
        assert times > 0
        assert text == template.format(numbers[field] * scale if field != "n" else numbers[field])
    assert ids == [claim.id for claim in page[1]]


def test_results_have_what_a_card_shows(data):
    for name, result in results_of(data):
        assert (result["level"], result["method"], result["unit"]) == (0.95, "bootstrap", "document"), name
        assert result["lo"] < result["value"] < result["hi"]
        assert result["n"] == 360


def test_tables_have_every_row_and_no_row_is_in_the_page_twice(page, data):
    content = demo_like()
    tables = {table.name: table for section in content.sections for table in section.tables}
    assert [table["name"] for table in data["tables"]] == list(tables)
    for encoded in data["tables"]:
        table = tables[encoded["name"]]
        assert [column["title"] for column in encoded["columns"]] == list(table.columns)
        assert len(encoded["rows"]) == len(table.rows)
        for line, row in zip(encoded["rows"], table.rows, strict=True):
            for shown, cell in zip(line, row, strict=True):
                if isinstance(cell, str):
                    assert shown == cell
                else:
                    index = shown[0] if isinstance(shown, list) else shown
                    assert data["claims"][index][2] == cell.text(content.results)
    # a folded table is not in the static part
    assert page[0].count("1024-4095") == page[0].count('"1024-4095"')


def test_the_first_screen_is_there_for_scripts(data):
    content = demo_like()
    cells = data["first_screen"]
    assert len(cells) == len(NAMES) * len(content.columns)
    answers = {
        (answer.descendant, column.name): answer for column in content.columns for answer in column.answers
    }
    for cell in cells:
        answer = answers[cell["descendant"], cell["question"]]
        assert (cell["answer"], cell["mark"]) == (answer.word, answer.mark)
        if answer.number is None:
            assert cell["claim"] is None
        else:
            assert data["claims"][cell["claim"]][2] == answer.number.text(content.results)


def test_no_sign_of_the_data_ends_its_element(data, page):
    assert data["format"] == "stemmatics-page/1"
    start = page[0].index('id="page-data">')
    block = page[0][start + len('id="page-data">') : page[0].index("</script>", start)]
    assert not set("<>&") & set(block)

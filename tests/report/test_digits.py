"""Every number on a page is a claim, so that `verify` can name it."""

from dataclasses import replace

import pytest
from tests.report.digits import stray_digits

from stemmatics.report.page import render_page
from stemmatics.study.read import load_report_content, open_run


@pytest.fixture
def bare(content):
    section = replace(content.sections[0], charts=[])
    return render_page(replace(content, sections=[section]))[0]


def test_the_page_itself_has_no_stray_digit(content):
    assert stray_digits(render_page(content)[0]) == []


def test_a_runs_page_has_no_stray_digit(finished_run):
    page, claims = render_page(load_report_content(open_run(finished_run)))
    assert len(claims) > 20
    assert stray_digits(page) == []


def test_a_measure_that_writes_a_number_into_its_prose_is_found(content):
    section = replace(content.sections[0], question="Which of the 3 is best?")
    html, _ = render_page(replace(content, sections=[section]))
    assert stray_digits(html) == ["Which of the 3 is best?"]


@pytest.mark.parametrize(
    "addition",
    [
        "<p>It wins by 3 points.</p>",
        "<ul><li>0.5</li></ul>",
        "<h2>Loss 2</h2>",
        "<div>½</div>",
        "<dl><dd>٣</dd></dl>",
        "&#49;",
        '<img alt="up by 4" src="data:,">',
        '<p aria-label="9 wins">wins</p>',
    ],
)
def test_a_number_added_anywhere_is_found(bare, addition):
    for anchor in ("</main>", '<section id="verify"', "</footer>"):
        assert len(stray_digits(bare.replace(anchor, addition + anchor, 1))) == 1


def test_names_and_code_may_hold_digits(bare):
    addition = '<p><code>SHA-256</code> of <span class="name">olmo2</span></p>'
    assert stray_digits(bare.replace("</main>", addition + "</main>")) == []


def test_an_open_exempt_element_hides_nothing(bare):
    with pytest.raises(AssertionError, match="closes another"):
        stray_digits(bare.replace("<p>", "<code><p>", 1))
    with pytest.raises(AssertionError, match="never closed"):
        stray_digits(bare + "<code>")

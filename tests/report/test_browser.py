"""The page in headless Chromium: what fits, draws, sorts, copies, and that nothing leaves it.

Skipped where Playwright or Chromium is missing; with ``STEMMATICS_BROWSER=required``, as in CI, that fails.
"""

import csv
import io
import os
import re
import shutil
from pathlib import Path

import pytest
from tests.report.screens import BINS, NAMES, NUM_ROWS, demo_page

AXE = Path(__file__).parent / "axe-core" / "axe.min.js"
REQUIRED = os.environ.get("STEMMATICS_BROWSER") == "required"


def missing():
    """Why there is no browser, or None."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed: pip install 'stemmatics[browser]'"
    if chromium() is None:
        return "Chromium is not installed: apt-get install chromium"
    return None


def chromium():
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser():
    reason = missing()
    if reason is not None:
        (pytest.fail if REQUIRED else pytest.skip)(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(demo_page(), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser):
    """Opens a page from disk; its errors, warnings of the policy and requests are collected."""
    contexts = []

    def opened(path, *, fragment="", **settings):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.problems, page.requests = [], []
        page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(f"file://{path}{fragment}")
        return page

    yield opened
    for context in contexts:
        context.close()


def box(page, selector):
    return page.locator(selector).first.bounding_box()


def scroll_through(page):
    """Brings every part into sight, so that every figure is drawn."""
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 500):
        page.evaluate(f"scrollTo(0, {top})")
        page.wait_for_timeout(60)
    page.wait_for_function("document.querySelectorAll('figure.chart:not(.drawn)').length === 0")


@pytest.mark.parametrize("which", ["demo", "pair"])
def test_first_screen_fits(which, request, open_page):
    path = request.getfixturevalue("demo") if which == "demo" else pair_page(request)
    page = open_page(path)
    last = page.locator("#first p").last.bounding_box()
    assert last["y"] + last["height"] <= 800
    answers = page.locator(".answers-box")
    for size in ("Width", "Height"):
        shown, needed = (answers.evaluate(f"(each) => each.{kind}{size}") for kind in ("client", "scroll"))
        assert needed <= shown, f"the first table is cut: {needed} of {shown} pixels"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    num_rows = page.locator("#answers tbody tr").count()
    assert num_rows == (len(NAMES) if which == "demo" else 1)
    tree = box(page, "svg.stemma")
    assert tree["x"] + tree["width"] <= 1280
    assert tree["y"] + tree["height"] <= 800


def pair_page(request):
    return request.getfixturevalue("finished_run") / "report.html"


def test_figures_are_drawn_without_unsafe_eval_and_nothing_leaves_the_page(request, open_page):
    for path in (request.getfixturevalue("demo"), pair_page(request)):
        page = open_page(path)
        policy = page.locator("meta[http-equiv]").get_attribute("content")
        assert "unsafe-eval" not in policy
        assert "unsafe-inline" not in policy.partition("style-src")[0]
        scroll_through(page)
        num_charts = page.locator("figure.chart").count()
        assert num_charts > 0
        assert page.locator("figure.chart .live svg").count() >= num_charts
        for details in page.locator("details").all():
            details.evaluate("(each) => { each.open = true; }")
        page.wait_for_timeout(300)
        assert page.problems == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_script_that_was_added_does_not_run(demo, tmp_path, open_page):
    altered = tmp_path / "altered.html"
    added = "<script>document.title = 'ran'</script></body>"
    altered.write_text(demo.read_text(encoding="utf-8").replace("</body>", added), encoding="utf-8")
    page = open_page(altered)
    assert page.title() != "ran"
    assert any("Content Security Policy" in problem for problem in page.problems)


def test_first_table_sorts_by_value_and_colours_the_tree(demo, open_page):
    page = open_page(demo)
    for index in (1, 2):
        for rising in (False, True):
            page.locator("#answers thead button").nth(index).click()
            values = page.eval_on_selector_all(
                "#answers tbody tr",
                f"(lines) => lines.map((line) => line.cells[{index}].dataset.value ?? null)",
            )
            known = [float(value) for value in values if value is not None]
            assert known == sorted(known, reverse=not rising)
            assert values[len(known) :] == [None] * (len(values) - len(known)), "unknown ones come last"
    title = page.locator("#answers thead th").nth(2).get_attribute("data-title")
    assert title in page.locator("#coloured").inner_text()
    assert page.locator("circle[data-node].worse").count() > 0


def where(page):
    return page.locator('details[data-table="table-loss-where-text"]')


def column(page, index):
    return where(page).locator(f"tbody tr > :nth-child({index})").all_inner_texts()


def test_folded_tables_are_made_when_opened(demo, open_page):
    page = open_page(demo)
    assert where(page).locator("tr").count() == 0
    where(page).locator("summary").first.click()
    assert where(page).locator("tbody tr").count() == 100
    where(page).get_by_role("button", name=re.compile("Show all")).click()
    assert where(page).locator("tbody tr").count() == NUM_ROWS


def test_tables_sort_by_value_filter_and_search(demo, open_page):
    page = open_page(demo)
    where(page).locator("summary").first.click()
    where(page).get_by_label("Filter by descendant").select_option("dpo")
    assert set(column(page, 1)) == {"dpo#"} or {text.rstrip("#") for text in column(page, 1)} == {"dpo"}
    where(page).get_by_label("Filter by axis").select_option("position")
    where(page).get_by_role("button", name="bin", exact=True).click()
    assert column(page, 3) == list(BINS)
    where(page).get_by_role("button", name="nats/byte", exact=True).click()
    values = [float(text) for text in column(page, 4)]
    assert values == sorted(values, reverse=True)
    assert where(page).get_by_role("status").inner_text() == f"{len(BINS)} of {NUM_ROWS} rows"
    where(page).get_by_label("Search this table").fill("1024 dpo")
    assert column(page, 3) == ["1024-4095"]


def test_a_table_is_saved_as_csv_with_its_intervals(demo, open_page):
    page = open_page(demo)
    where(page).locator("summary").first.click()
    where(page).get_by_label("Search this table").fill("cpt frequency")
    with page.expect_download() as download:
        where(page).get_by_role("button", name="CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert len(rows) == len(BINS)
    for row in rows:
        low, value, high = (float(row[name]) for name in ("nats/byte lo", "nats/byte", "nats/byte hi"))
        assert low < value < high
        assert high - low == pytest.approx(0.04, abs=1e-6)


def test_a_number_says_what_it_is_and_is_copied(demo, open_page):
    page = open_page(demo, permissions=["clipboard-read", "clipboard-write"])
    number = page.locator("#answers .numbers [data-claim]").first
    number.hover()
    card = page.locator(".card")
    card.wait_for(state="visible")
    text = card.inner_text()
    for part in ("95% interval", "bootstrap", "nats/byte", "360, by document", "loss.value"):
        assert part in text
    assert 'load_run("RUN").results["loss.value/descendant=register-shift"]' in text
    number.click()
    interval = re.search(r"\[([+-][\d.]+), ([+-][\d.]+)\]", text)
    for name, pattern in {
        "text": r"loss\.value .* \[{0}, {1}\] nats/byte \(95% interval, bootstrap, n = 360, by document\)",
        "Markdown": r"\*\*.*\*\* \[{0}, {1}\] nats/byte",
        "LaTeX": r"\$.*\\;\[{0},\\,{1}\]\$ nats/byte",
        "CSV": r"quantity,descendant,value,lo,hi,level,method,unit,n\nloss\.value,register-shift,",
    }.items():
        card.get_by_role("button", name=name, exact=True).click()
        copied = page.evaluate("navigator.clipboard.readText()")
        expected = pattern.replace("{0}", re.escape(interval[1])).replace("{1}", re.escape(interval[2]))
        assert re.match(expected, copied), (name, copied)


def test_everything_is_reached_by_keyboard(demo, open_page):
    page = open_page(demo)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#answers thead button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#answers thead th").nth(1).get_attribute("aria-sort") == "descending"
    page.locator("#answers [data-claim][tabindex='0']").first.focus()
    assert page.locator(".card").is_visible()
    first = page.evaluate("document.activeElement.dataset.claim")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.claim") != first
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('.card') !== null")
    page.keyboard.press("Escape")
    assert not page.locator(".card").is_visible()
    assert page.evaluate("document.activeElement.dataset.claim") is not None


def test_a_link_opens_its_row(demo, open_page):
    page = open_page(demo)
    where(page).locator("summary").first.click()
    where(page).get_by_label("Search this table").fill("second-sft frequency 1024")
    link = where(page).locator("tbody a.anchor").get_attribute("href")
    again = open_page(demo, fragment=link)
    row = again.locator("tr.target")
    row.wait_for()
    assert "second-sft" in row.inner_text()
    assert "1024-4095" in row.inner_text()
    top = row.bounding_box()["y"]
    assert 0 <= top <= 800


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(demo, scheme, open_page):
    page = open_page(demo, color_scheme=scheme, bypass_csp=True)
    where(page).locator("summary").first.click()
    scroll_through(page)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    serious = [
        (violation["id"], [node["html"][:160] for node in violation["nodes"][:3]])
        for violation in found
        if violation["impact"] in {"serious", "critical"}
    ]
    assert serious == []


def test_narrow_screens_do_not_scroll_sideways(demo, open_page):
    page = open_page(demo)
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400

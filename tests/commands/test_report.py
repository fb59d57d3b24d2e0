"""stemma report: Markdown, two runs, and what a notebook shows."""

from html.parser import HTMLParser

import stemmatics


def test_the_first_screen_as_markdown(finished_run, stemma_command):
    ran = stemma_command("report", finished_run, "--format", "md")
    assert ran.code == 0, ran.err
    rows = [line for line in ran.out.splitlines() if line.startswith("|")]
    assert "loss on ordinary text" in rows[0]
    assert rows[2].startswith("| **descendant** |")
    number = stemmatics.load_run(finished_run).results.only("loss.delta.byte", register="all")
    assert f"{number.value:+.3f}" in rows[2]
    refused = stemma_command("report", finished_run, "--format", "md", "--json")
    assert refused.code == 2


def test_two_runs_in_one_page_leave_both_as_they_were(run_copy, finished_run, stemma_command, tmp_path):
    page = tmp_path / "changes.html"
    ran = stemma_command("report", run_copy, finished_run, "--out", page)
    assert ran.code == 0, ran.err
    assert "No answer changed" in page.read_text(encoding="utf-8")
    assert stemma_command("verify", run_copy).code == 0
    markdown = stemma_command("report", run_copy, finished_run, "--format", "md")
    assert "● same" in markdown.out
    assert stemma_command("report", run_copy, "--out", page).code == 2


def test_a_run_ends_with_the_first_table_and_the_page(finished_run, tmp_path, stemma_command, tiny):
    ran = stemma_command(
        "compare", tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--out", finished_run
    )
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    heading = next(index for index, line in enumerate(lines) if "loss on ordinary" in line)
    page = next(
        index for index, line in enumerate(lines) if line == f"report: {finished_run / 'report.html'}"
    )
    assert heading < page
    assert max(len(line.rstrip()) for line in lines[heading : heading + 6]) <= 100


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


def test_a_notebook_shows_the_first_screen(finished_run):
    run = stemmatics.load_run(finished_run)
    reader = Tags()
    reader.feed(run._repr_html_())
    assert reader.tags.count("table") == 1
    assert not {"script", "style", "img", "link"} & set(reader.tags)
    delta = run.results.only("loss.delta.byte", register="all")
    assert f"{delta.value:+.3f}" in run._repr_html_()


def test_frames_come_through_arrow(finished_run):
    run = stemmatics.load_run(finished_run)
    frame = run.frame().to_pandas()
    assert len(frame) == len(run.estimates)
    assert set(frame["id"]) == set(run.estimates)

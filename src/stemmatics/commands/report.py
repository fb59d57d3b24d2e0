"""Write a run's report again: the page, its figures and its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stemmatics.core.content import Content
from stemmatics.study.read import PAGE, load_report_content, open_run, write_report


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    page: Path
    figures: list[Path]
    tables: list[Path]


def report(root: str | Path, *, on_step: Callable[[str], None] = lambda _step: None) -> Report:
    """Write the page, the figures (SVG, PNG, PDF) and the tables (CSV) from the stored results."""
    from stemmatics.report.figures import write_figures
    from stemmatics.report.tables import write_tables

    root = Path(root)
    content = write_report(root, on_step=on_step)
    on_step("drawing the figures")
    figures = write_figures(content, root / "figures")
    return Report(root / PAGE, figures, write_tables(content, root / "csv"))


def markdown(root: str | Path) -> str:
    """The first screen of a run as Markdown: its table, and at most five sentences."""
    from stemmatics.report.first_screen import markdown_first_screen

    run = open_run(Path(root))
    digest = str(run.manifest["digest"])[:8]
    provenance = f"digest `{digest}` · check it with `stemma verify RUN`"
    return markdown_first_screen(load_report_content(run), provenance=provenance)


CHANGES = "changes.html"


def changes(first: str | Path, second: str | Path, out: str | Path | None = None) -> Path:
    """Write what changed between two finished runs: by default ``changes.html`` in the folder of the second.

    The stored results are read; neither run is changed.
    """
    from stemmatics.report.page import write_page

    path = Path(second) / CHANGES if out is None else Path(out)
    write_page(_between(Path(first), Path(second)), path)
    return path


def markdown_changes(first: str | Path, second: str | Path) -> str:
    """The first screen of what changed between two runs as Markdown."""
    from stemmatics.report.first_screen import markdown_first_screen

    return markdown_first_screen(_between(Path(first), Path(second)))


def _between(first: Path, second: Path) -> Content:
    from stemmatics.report.between import Side, content_between

    sides = []
    for root in (first, second):
        run = open_run(root)
        sides.append(Side(str(root), load_report_content(run), run.manifest))
    return content_between(*sides)

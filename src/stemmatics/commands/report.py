"""Write a run's report again: the page, its figures and its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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

"""Reading a finished run: its requests, stored results and page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.core.content import Content
from stemmatics.core.errors import UserError
from stemmatics.core.load import validate
from stemmatics.core.results import Results
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger
from stemmatics.study.content import content_of, failures_of, notices_of, provenance_of
from stemmatics.study.estimate import Evaluation, load_evaluation, read_results
from stemmatics.study.request import MeasureRequest, all_facts, resolve_requests

PAGE = "report.html"


@dataclass(frozen=True)
class OpenRun:
    """A run as described by its folder."""

    ledger: Ledger
    manifest: dict[str, Any]
    pinned: Pinned
    requests: list[MeasureRequest]

    def request(self, measure: str) -> MeasureRequest | None:
        """The request of one measure; None if the run was not configured for it."""
        return next((request for request in self.requests if request.name == measure), None)


def open_run(root: Path, *measures: str, indexed: bool = True) -> OpenRun:
    """A run with the requests of its measures (all, or those named).

    With ``indexed=False`` every record is read from its own file.

    Raises UserError where the folder is no run or its manifest is inconsistent.
    """
    ledger = Ledger(root, indexed=indexed)
    manifest = ledger.manifest()
    try:
        declared = manifest["stemma"]
        stemma = validate(Stemma, declared, (), "manifest.json", declared)
        pins = Pins(**manifest["pins"])
        pinned, requests = resolve_requests(
            stemma, pins, only=measures or manifest["measures"], tree=declared, name="manifest.json"
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"the manifest of {root} is incomplete",
            f"{type(error).__name__}: {error}",
            "Run the study again: it rewrites the manifest",
        ) from None
    return OpenRun(ledger, manifest, pinned, requests)


def load_evaluations(run: OpenRun, *measures: str) -> list[Evaluation]:
    """The stored results of a run's measures (all, or those named); nothing is recomputed.

    Raises UserError where they are missing because the study was not finished.
    """
    return [
        load_evaluation(run.pinned, request, run.ledger, _results_key(run.ledger, run.manifest, request.name))
        for request in run.requests
        if not measures or request.name in measures
    ]


def load_results(ledger: Ledger, manifest: Mapping[str, Any], *measures: str) -> Results:
    """The stored results of a run's measures (all, or those named), without loading a measure.

    Raises UserError where they were not stored, since the study was not finished.
    """
    return Results(
        result
        for name in measures or manifest["measures"]
        for result in read_results(ledger, _results_key(ledger, manifest, name)).values()
    )


def _results_key(ledger: Ledger, manifest: Mapping[str, Any], measure: str) -> str:
    key = manifest["estimates"].get(measure)
    if key is None:
        raise UserError(
            f"{ledger.root} has no results of {measure}",
            "the study was not finished",
            "Run it again: it continues where it stopped",
        )
    return str(key)


def load_report_content(run: OpenRun) -> Content:
    """The page's content from the stored results."""
    return build_content(run, load_evaluations(run))


def build_content(run: OpenRun, evaluations: list[Evaluation]) -> Content:
    """The page's content from given evaluations."""
    facts = all_facts(run.requests)
    failures, notices = failures_of(facts, run.ledger), notices_of(facts, run.ledger)
    return content_of(run.pinned, evaluations, provenance_of(run.manifest), failures, notices)


def write_report(root: Path, *, on_step: Callable[[str], None] = lambda _step: None) -> Content:
    """Write a run's page again from its stored results."""
    from stemmatics.report.page import write_page

    run = open_run(root)
    content = load_report_content(run)
    on_step("writing the page")
    write_page(content, root / PAGE)
    run.ledger.write_manifest({**run.manifest, "page_sha256": sha256_of(root / PAGE)})
    return content

"""Reading a finished run: its requests, stored results and page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.core.content import Content
from stemmatics.core.errors import UserError
from stemmatics.core.load import validate
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.report.page import write_page
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger
from stemmatics.study.content import content_of, failures_of, provenance_of
from stemmatics.study.estimate import Evaluation, load_evaluation
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


def open_run(root: Path, *, indexed: bool = True) -> OpenRun:
    """Raises UserError where the folder is not a run or its manifest is inconsistent."""
    ledger = Ledger(root, indexed=indexed)
    manifest = ledger.manifest()
    try:
        declared = manifest["stemma"]
        stemma = validate(Stemma, declared, (), "manifest.json", declared)
        pins = Pins(**manifest["pins"])
        pinned, requests = resolve_requests(
            stemma, pins, only=manifest["measures"], tree=declared, name="manifest.json"
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
    evaluations = []
    for request in run.requests:
        if measures and request.name not in measures:
            continue
        key = run.manifest["estimates"].get(request.name)
        if key is None:
            raise UserError(
                f"{run.ledger.root} has no results of {request.name}",
                "the study was not finished",
                "Run it again: it continues from where it stopped",
            )
        evaluations.append(load_evaluation(run.pinned, request, run.ledger, key))
    return evaluations


def load_report_content(run: OpenRun) -> Content:
    """The page's content from the stored results."""
    return build_content(run, load_evaluations(run))


def build_content(run: OpenRun, evaluations: list[Evaluation]) -> Content:
    """The page's content from given evaluations."""
    failures = failures_of(all_facts(run.requests), run.ledger)
    return content_of(run.pinned, evaluations, provenance_of(run.manifest), failures)


def write_report(root: Path, *, on_step: Callable[[str], None] = lambda _what: None) -> Content:
    """Write a run's page again from its stored results."""
    run = open_run(root)
    content = load_report_content(run)
    on_step("writing the page")
    write_page(content, root / PAGE)
    run.ledger.write_manifest({**run.manifest, "page_sha256": sha256_of(root / PAGE)})
    return content

"""A finished run read back: what was asked, what was found, and its page made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.core.content import Content
from stemmatics.core.errors import UserError
from stemmatics.core.load import validate
from stemmatics.core.pinned import Pinned, Pins
from stemmatics.core.stemma import Stemma
from stemmatics.report.page import write_page
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger
from stemmatics.study.asked import Asked, all_facts, asked_of
from stemmatics.study.estimate import Answer, answer
from stemmatics.study.page import content_of, failures_of, provenance_of

PAGE = "report.html"


@dataclass(frozen=True)
class Reread:
    """A run as its folder tells it; nothing else is needed."""

    ledger: Ledger
    manifest: dict[str, Any]
    pinned: Pinned
    asked: list[Asked]


def reread(root: Path) -> Reread:
    """Raises UserError where the folder is no run or its manifest does not hold together."""
    ledger = Ledger(root)
    manifest = ledger.manifest()
    try:
        declared = manifest["stemma"]
        stemma = validate(Stemma, declared, (), "manifest.json", declared)
        pins = Pins(**manifest["pins"])
        pinned, asked = asked_of(stemma, pins, only=manifest["measures"], tree=declared, name="manifest.json")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"the manifest of {root} is incomplete",
            f"{type(error).__name__}: {error}",
            "Run the study again: the manifest is rewritten whole",
        ) from None
    return Reread(ledger, manifest, pinned, asked)


def content_again(run: Reread) -> tuple[Content, list[Answer]]:
    """The page's content from the sums."""
    answers = [answer(run.pinned, one, run.ledger) for one in run.asked]
    return content_from(run, answers), answers


def content_from(run: Reread, answers: list[Answer]) -> Content:
    """The page's content from answers that are there."""
    failures = failures_of(all_facts(run.asked), run.ledger)
    return content_of(run.pinned, answers, provenance_of(run.manifest), failures)


def rewrite(root: Path, *, on_step: Callable[[str], None] = lambda _what: None) -> Content:
    """Write a run's page again, from its sums."""
    run = reread(root)
    on_step("estimating")
    content, _ = content_again(run)
    on_step("writing the page")
    write_page(content, root / PAGE)
    run.ledger.write_manifest({**run.manifest, "page_sha256": sha256_of(root / PAGE)})
    return content

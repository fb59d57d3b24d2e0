"""A whole run: pin, plan, execute, estimate, write the manifest and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pyarrow as pa

from stemmatics.core.content import Content
from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned
from stemmatics.report.first_screen import html_first_screen
from stemmatics.report.page import write_page
from stemmatics.store.cache import Cache
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger
from stemmatics.study.content import content_of, failures_of, notices_of, provenance_of
from stemmatics.study.estimate import Evaluation, evaluate, load_evaluation, results_frame, store_evaluation
from stemmatics.study.execute import execute
from stemmatics.study.integrity import check_fact
from stemmatics.study.pins import pin_sources
from stemmatics.study.plan import Plan, costs, make_plan
from stemmatics.study.read import PAGE
from stemmatics.study.request import MeasureRequest, all_facts, manifest_of, resolve_requests
from stemmatics.study.versions import hardware, versions


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. ``failures`` are reasons by the fact's label."""

    root: Path
    evaluations: list[Evaluation]
    content: Content
    failures: dict[str, str]
    digest: str

    def _repr_html_(self) -> str:
        """The first screen, for a notebook: a table and at most five sentences."""
        return html_first_screen(self.content)

    def frame(self) -> pa.Table:
        """The estimates as an Arrow table: ``.to_pandas()``, or ``polars.from_arrow(...)``."""
        return results_frame(self.content.results)


def prepare(
    stemma: Stemma,
    root: Path,
    *,
    only: Iterable[str] | None = None,
    tree: Any = None,
    on_step: Callable[[str], None] = lambda _step: None,
    planning: bool = False,
) -> tuple[Pinned, list[MeasureRequest], Plan]:
    """Everything before execution: the requests, and the facts that are missing.

    ``planning`` uses declared sizes for sources that are not available.
    """
    pins = pin_sources(stemma, on_step, planning=planning)
    pinned, requests = resolve_requests(stemma, pins, only=only, tree=tree)
    return pinned, requests, make_plan(all_facts(requests).values(), Ledger(root), Cache())


def run(
    stemma: Stemma,
    root: Path,
    *,
    only: Iterable[str] | None = None,
    tree: Any = None,
    retry_failed: bool = False,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> Outcome:
    """Make what is missing and evaluate every measure. Safe to call again after a crash."""
    Ledger(root).refuse_other_schema()
    root.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(root / ".lock", timeout=0):
            ledger = Ledger(root)
            if retry_failed:
                ledger.forget_failures()
            pinned, requests, plan = prepare(stemma, root, only=only, tree=tree, on_step=on_step)
            before = _finished_manifest(ledger)
            if plan.missing or before is None:
                _write_manifest(ledger, pinned, requests, plan, [])
            shown = ("key", "probe", "label", "num_tokens", "flops")
            on_event({"plan": [{name: row[name] for name in shown} for row in costs(plan)]})
            execute(plan, ledger, Cache(), numerics=stemma.numerics, seed=stemma.seed, on_event=on_event)
            return finish(ledger, pinned, requests, plan, before=before, on_step=on_step)
    except filelock.Timeout:
        raise UserError(
            f"{root} is in use",
            "another stemma process is writing to it",
            "Wait for it, or choose another --out",
        ) from None


def finish(
    ledger: Ledger,
    pinned: Pinned,
    requests: list[MeasureRequest],
    plan: Plan,
    *,
    before: Mapping[str, Any] | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> Outcome:
    """Results, claims, manifest and page from the facts that are done.

    ``before`` is the manifest of an earlier, finished run: results that the same libraries computed from the
    same facts are read back, and a page that would be the same is kept.
    """
    now = versions()
    reusable = before is not None and before["versions"] == now
    evaluations, keys = [], []
    for request in requests:
        evaluation, key = _evaluation(pinned, request, ledger, on_step, reusable=reusable)
        evaluations.append(evaluation)
        keys.append(key)
    labels = failures_of(plan.facts, ledger)
    manifest = _write_manifest(ledger, pinned, requests, plan, keys)
    content = content_of(pinned, evaluations, provenance_of(manifest), labels, notices_of(plan.facts, ledger))
    page = ledger.root / PAGE
    if labels or before is None or not _is_current(page, before, manifest):
        on_step("writing the page")
        write_page(content, page)
    ledger.write_manifest({**manifest, "page_sha256": sha256_of(page)})
    return Outcome(ledger.root, evaluations, content, labels, manifest["digest"])


def _evaluation(
    pinned: Pinned,
    request: MeasureRequest,
    ledger: Ledger,
    on_step: Callable[[str], None],
    *,
    reusable: bool,
) -> tuple[Evaluation, str]:
    """Stored results if they were computed from the same facts and are intact, else new ones."""
    fact = request.estimate_fact(pinned, [fact for fact in request.facts if ledger.has(fact.key)])
    if reusable and not check_fact(ledger, fact):
        return load_evaluation(pinned, request, ledger, fact.key), fact.key
    on_step(f"estimating {request.name}")
    evaluation = evaluate(pinned, request, ledger)
    return evaluation, store_evaluation(pinned, evaluation, ledger)


def _finished_manifest(ledger: Ledger) -> dict[str, Any] | None:
    """The manifest of a run that was finished before; None if there is none."""
    try:
        manifest = ledger.manifest()
    except UserError:
        return None
    return manifest if "page_sha256" in manifest else None


def _is_current(page: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the page on disk is what would be written: nothing that it shows has changed."""
    shown = ("digest", "estimates", "facts", "versions", "hardware", "stemma", "pins")
    unchanged = all(before.get(name) == now.get(name) for name in shown)
    return unchanged and page.is_file() and sha256_of(page) == before["page_sha256"]


def _write_manifest(
    ledger: Ledger, pinned: Pinned, requests: list[MeasureRequest], plan: Plan, estimates: list[str]
) -> dict[str, Any]:
    body = manifest_of(
        pinned,
        requests,
        {
            "facts": [*plan.facts, *estimates],
            "estimates": dict(zip((request.name for request in requests), estimates, strict=False)),
            "versions": versions(),
            "hardware": hardware(),
        },
    )
    ledger.write_manifest(body)
    return ledger.manifest()

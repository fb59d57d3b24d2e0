"""Do the numbers of a report follow from the sums? Nothing is loaded but the run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.report.check import check_page, compare_pages
from stemmatics.report.page import render_page
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger
from stemmatics.study.estimate import Evaluation, differences, evaluate, read_results
from stemmatics.study.integrity import check_fact
from stemmatics.study.read import PAGE, OpenRun, build_content, open_run
from stemmatics.study.request import MeasureRequest, all_facts
from stemmatics.study.versions import PAGE_LIBRARIES, versions

# another processor rounds another way; anything larger is an altered number
TOLERANCE = 1e-6
_STILL = re.compile(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]*")

PROVES = (
    "What this proves: the report follows from the stored sums. It does not prove that the sums came "
    "from the named models; `--rescore N --text FILE` scores documents again for that."
)


@dataclass
class Verdict:
    """Claims that hold, and everything that is wrong."""

    num_claims: int = 0
    num_holding: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong, and there was something to check."""
        return not self.problems and 0 < self.num_claims == self.num_holding

    @property
    def num_good(self) -> int:
        """Claims that hold; none where all seem to and yet something beside them is wrong."""
        return self.num_holding if self.holds or self.num_holding < self.num_claims else 0

    @property
    def line(self) -> str:
        """The last line of ``stemma verify``; ``N/N`` only where everything holds."""
        if not self.num_claims:
            return "no claim could be checked"
        return f"{self.num_good}/{self.num_claims} claims hold"


def verify(root: Path, *, digest: str | None = None) -> Verdict:
    """Recompute everything that a run prints. Raises UserError only where it is no run at all."""
    # the index of records is derived from them, so it proves nothing
    ledger = Ledger(root, indexed=False)
    manifest = ledger.manifest()
    verdict = Verdict()
    general = _check_manifest(ledger, manifest, digest)
    try:
        run = open_run(root, indexed=False)
    except UserError as error:
        verdict.problems = [*general, f"manifest.json: {error}"]
        return _none_hold(verdict, ledger, manifest)
    general += _check_list(manifest, run.requests)
    broken = _check_facts(ledger, run.requests)
    verdict.problems = [*general, *broken.values()]
    evaluations: list[Evaluation] = []
    for request in run.requests:
        evaluation, num_claims, num_holding = _check_measure(run, request, broken, verdict.problems)
        verdict.num_claims += num_claims
        verdict.num_holding += num_holding
        evaluations += [evaluation] if evaluation is not None else []
    page = _check_page(run, evaluations)
    verdict.problems += page
    if general or page:
        verdict.num_holding = 0
    return verdict


def _check_manifest(ledger: Ledger, manifest: Mapping[str, Any], digest: str | None) -> list[str]:
    problems = []
    try:
        found = ledger.digest(manifest)
    except (UserError, KeyError, TypeError, ValueError) as error:
        return [f"manifest.json: its digest can't be computed: {error}"]
    if found != manifest.get("digest"):
        problems.append(
            f"manifest.json: its digest is {str(manifest.get('digest'))[:16]}, the run gives {found[:16]}"
        )
    if digest is not None and digest != found:
        problems.append(f"the digest asked for is {digest[:16]}, the run gives {found[:16]}")
    return problems


def _check_list(manifest: Mapping[str, Any], requests: list[MeasureRequest]) -> list[str]:
    expected = {*all_facts(requests), *manifest["estimates"].values()}
    listed = set(manifest["facts"])
    return [
        *(f"fact {key[:16]} is asked for, but not in the manifest" for key in sorted(expected - listed)),
        *(
            f"fact {key[:16]} is in the manifest, but nothing asks for it"
            for key in sorted(listed - expected)
        ),
    ]


def _check_facts(ledger: Ledger, requests: list[MeasureRequest]) -> dict[str, str]:
    """Problems of facts by key; a fact that failed when the study ran is said so, not hidden."""
    problems: dict[str, str] = {}
    for key, fact in all_facts(requests).items():
        found = check_fact(ledger, fact)
        if found:
            problems[key] = f"{fact.probe} {fact.label!r} ({key[:16]}): {found}"
    return problems


def _check_measure(
    run: OpenRun, request: MeasureRequest, broken: Mapping[str, str], problems: list[str]
) -> tuple[Evaluation | None, int, int]:
    """The results from the sums, how many claims they make, and how many of those hold."""
    ledger, pinned = run.ledger, run.pinned
    key = run.manifest["estimates"].get(request.name)
    stored_texts, stored = _stored(ledger, key, problems, request.name)
    affected = [fact for fact in request.facts if _touches(fact, broken)]
    try:
        evaluation = evaluate(pinned, request, ledger)
    except Exception as error:  # noqa: BLE001 - altered sums can break an estimator anywhere; it is a finding
        problems.append(f"{request.name}: its estimates can't be computed from the sums: {error}")
        return None, len(stored_texts), 0
    made = request.estimate_fact(pinned, [fact for fact in request.facts if ledger.has(fact.key)])
    if key != made.key:
        problems.append(f"{request.name}: its estimates were made from other facts than those in the run")
    elif altered := check_fact(ledger, made):
        problems.append(f"estimates of {request.name} ({made.key[:16]}): {altered}")
        affected.append(made)
    wrong = differences(evaluation.results, stored, relative=TOLERANCE)
    problems += [f"result {name} {what}" for name, what in wrong.items()]
    texts = {claim.id: claim.text(evaluation.results) for claim, _ in evaluation.claims()}
    for name in sorted({*texts, *stored_texts}):
        if texts.get(name) != stored_texts.get(name):
            problems.append(
                f"claim {name}: printed {stored_texts.get(name)!r}, the sums give {texts.get(name)!r}"
            )
    if affected:
        return evaluation, len(texts), 0
    holding = sum(
        texts[claim.id] == stored_texts.get(claim.id) and claim.result not in wrong
        for claim, _ in evaluation.claims()
    )
    return evaluation, len(texts), holding


def _touches(fact: Fact, broken: Mapping[str, str]) -> bool:
    return fact.key in broken or any(_touches(need, broken) for need in fact.needs.values())


def _stored(
    ledger: Ledger, key: str | None, problems: list[str], name: str
) -> tuple[dict[str, str], dict[str, Any]]:
    if key is None:
        problems.append(f"{name}: no estimates are stored; the study has not been finished")
        return {}, {}
    try:
        texts = {row["id"]: row["text"] for row in ledger.read("claims", key).to_pylist()}
        return texts, read_results(ledger, key)
    except (UserError, OSError, KeyError, ValueError) as error:
        problems.append(f"{name}: stored estimates can't be read: {error}")
        return {}, {}


def _check_page(run: OpenRun, evaluations: list[Evaluation]) -> list[str]:
    """Every printed number against the sums, and every word and point against a page made anew."""
    expected = {
        claim.id: claim.text(evaluation.results)
        for evaluation in evaluations
        for claim, _ in evaluation.claims()
    }
    page = run.ledger.root / PAGE
    if not page.is_file():
        return [f"{PAGE} is missing; `stemma report {run.ledger.root}` writes it again"]
    html = page.read_text(encoding="utf-8", errors="replace")
    problems = [f"{PAGE}: {problem}" for problem in check_page(html, expected)]
    try:
        fresh, _ = render_page(build_content(run, evaluations), drawn=False)
        problems += [f"{PAGE}: {line}" for line in compare_pages(html, fresh)]
        if not problems and _same_libraries(run.manifest) and _programs(html) != _programs(fresh):
            problems.append(f"{PAGE}: its programs or its form are not those that this stemmatics writes")
    except Exception as error:  # noqa: BLE001 - sums that break an estimator were named above
        problems.append(f"{PAGE}: it can't be made again: {error}")
    if sha256_of(page) != run.manifest.get("page_sha256"):
        problems.append(f"{PAGE}: altered since it was written")
    return problems


def _same_libraries(manifest: Mapping[str, Any]) -> bool:
    now = versions()
    return all(manifest["versions"].get(name) == now.get(name) for name in PAGE_LIBRARIES)


def _programs(html: str) -> str:
    """A page without its still pictures, whose letters are as wide as this machine's fonts."""
    return _STILL.sub("", html)


def _none_hold(verdict: Verdict, ledger: Ledger, manifest: Mapping[str, Any]) -> Verdict:
    for name, key in manifest["estimates"].items():
        texts, _ = _stored(ledger, key, verdict.problems, name)
        verdict.num_claims += len(texts)
    return verdict

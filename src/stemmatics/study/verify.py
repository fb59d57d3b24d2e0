"""Checks that a report follows from the stored sums. Reads the run folder only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.results import Results
from stemmatics.report.check import check_page, compare_pages
from stemmatics.report.page import render_page
from stemmatics.store.files import sha256_of
from stemmatics.store.ledger import Ledger
from stemmatics.study.estimate import Evaluation, differences, evaluate, read_results
from stemmatics.study.integrity import check_fact
from stemmatics.study.read import PAGE, OpenRun, build_content, open_run
from stemmatics.study.request import MeasureRequest, all_facts
from stemmatics.study.versions import PAGE_LIBRARIES, versions

# processors round differently; anything larger is an altered number
TOLERANCE = 1e-6

SCOPE = (
    "What this proves: the report follows from the stored sums. It does not prove that the sums came "
    "from the named models; `--rescore N --text FILE` scores documents again for that."
)


@dataclass
class Verdict:
    """How many claims hold, and every problem."""

    num_claims: int = 0
    num_holding: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether there were claims to check, all hold and nothing else is wrong."""
        return not self.problems and 0 < self.num_claims == self.num_holding

    @property
    def num_good(self) -> int:
        """Claims that hold; 0 where all would hold but something else is wrong."""
        return self.num_holding if self.holds or self.num_holding < self.num_claims else 0

    @property
    def line(self) -> str:
        """The last line of ``stemma verify``; ``N/N`` only where everything holds."""
        if not self.num_claims:
            return "no claim could be checked"
        return f"{self.num_good}/{self.num_claims} claims hold"


def verify(root: Path, *, digest: str | None = None) -> Verdict:
    """Recompute everything that a run prints. Raises UserError only where the folder is not a run."""
    # the index of records is derived from them, so it proves nothing
    ledger = Ledger(root, indexed=False)
    manifest = ledger.manifest()
    verdict = Verdict()
    general = _check_manifest(ledger, manifest, digest)
    try:
        run = open_run(root, indexed=False)
    except UserError as error:
        verdict.problems = [*general, f"manifest.json: {error}"]
        return _count_stored_claims(verdict, ledger, manifest)
    facts = all_facts(run.requests)
    general += _check_listed_facts(manifest, facts)
    broken = _check_facts(ledger, facts)
    unreliable = _with_dependants(broken, facts)
    verdict.problems = [*general, *broken.values()]
    evaluations: list[Evaluation] = []
    expected: dict[str, str] = {}
    for request in run.requests:
        checked = _check_measure(run, request, unreliable)
        verdict.problems += checked.problems
        verdict.num_claims += checked.num_claims
        verdict.num_holding += checked.num_holding
        if checked.evaluation is not None:
            evaluations.append(checked.evaluation)
            expected |= checked.texts
    page = _check_page(run, evaluations, expected)
    verdict.problems += page
    if general or page:
        verdict.num_holding = 0
    return verdict


def _check_manifest(ledger: Ledger, manifest: Mapping[str, Any], digest: str | None) -> list[str]:
    try:
        actual = ledger.digest(manifest)
    except (UserError, KeyError, TypeError, ValueError) as error:
        return [f"manifest.json: its digest can't be computed: {error}"]
    problems = []
    if actual != manifest["digest"]:
        problems.append(
            f"manifest.json: its digest is {manifest['digest'][:16]}, the run gives {actual[:16]}"
        )
    if digest is not None and digest != actual:
        problems.append(f"the expected digest is {digest[:16]}, the run gives {actual[:16]}")
    return problems


def _check_listed_facts(manifest: Mapping[str, Any], facts: Mapping[str, Fact]) -> list[str]:
    expected = {*facts, *manifest["estimates"].values()}
    listed = set(manifest["facts"])
    return [
        *(f"fact {key[:16]} is needed, but not in the manifest" for key in sorted(expected - listed)),
        *(f"fact {key[:16]} is in the manifest, but not needed" for key in sorted(listed - expected)),
    ]


def _check_facts(ledger: Ledger, facts: Mapping[str, Fact]) -> dict[str, str]:
    """Problems of facts by key, those that failed when the study ran included."""
    problems: dict[str, str] = {}
    for key, fact in facts.items():
        problem = check_fact(ledger, fact)
        if problem:
            problems[key] = f"{fact.probe} {fact.label!r} ({key[:16]}): {problem}"
    return problems


def _with_dependants(keys: Iterable[str], facts: Mapping[str, Fact]) -> set[str]:
    """Keys with those of all facts made from them; ``facts`` has needs first."""
    affected = set(keys)
    for key, fact in facts.items():
        if any(need.key in affected for need in fact.needs.values()):
            affected.add(key)
    return affected


@dataclass
class _CheckedMeasure:
    """One measure recomputed: ``texts`` are its claims as the sums give them."""

    num_claims: int = 0
    num_holding: int = 0
    evaluation: Evaluation | None = None
    texts: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def _check_measure(run: OpenRun, request: MeasureRequest, unreliable: Collection[str]) -> _CheckedMeasure:
    checked = _CheckedMeasure()
    key = run.manifest["estimates"].get(request.name)
    stored = _load_stored(run.ledger, key, request.name, checked.problems)
    try:
        evaluation = evaluate(run.pinned, request, run.ledger)
        claims = [claim for claim, _ in evaluation.claims()]
    except Exception as error:  # noqa: BLE001 - altered sums can break any estimator; it is reported
        checked.problems.append(f"{request.name}: its estimates can't be computed from the sums: {error}")
        checked.num_claims = 0 if stored is None else len(stored.texts)
        return checked
    checked.evaluation = evaluation
    checked.texts = {claim.id: claim.text(evaluation.results) for claim in claims}
    checked.num_claims = len(checked.texts)
    is_reliable = not any(fact.key in unreliable for fact in request.facts)
    is_reliable &= _check_estimate_fact(run, request, key, checked.problems)
    if stored is None:
        return checked
    wrong = differences(evaluation.results, stored.results, relative=TOLERANCE)
    checked.problems += [f"result {name} {what}" for name, what in wrong.items()]
    for name in sorted({*checked.texts, *stored.texts}):
        ours, theirs = checked.texts.get(name), stored.texts.get(name)
        if ours != theirs:
            checked.problems.append(f"claim {name}: printed {theirs!r}, the sums give {ours!r}")
    if is_reliable:
        checked.num_holding = sum(
            checked.texts[claim.id] == stored.texts.get(claim.id) and claim.result not in wrong
            for claim in claims
        )
    return checked


def _check_estimate_fact(run: OpenRun, request: MeasureRequest, key: str | None, problems: list[str]) -> bool:
    """Whether the stored estimates are a whole fact, made from the facts in the run."""
    if key is None:
        return True
    expected = request.estimate_fact(run.pinned, [fact for fact in request.facts if run.ledger.has(fact.key)])
    if key != expected.key:
        problems.append(f"{request.name}: its estimates were made from other facts than those in the run")
        return True
    problem = check_fact(run.ledger, expected)
    if problem:
        problems.append(f"estimates of {request.name} ({expected.key[:16]}): {problem}")
    return not problem


@dataclass(frozen=True)
class _Stored:
    """Stored texts of claims and stored results, by id."""

    texts: dict[str, str]
    results: Results


def _load_stored(ledger: Ledger, key: str | None, name: str, problems: list[str]) -> _Stored | None:
    if key is None:
        problems.append(f"{name}: no estimates are stored; the study has not been finished")
        return None
    try:
        texts = {row["id"]: row["text"] for row in ledger.read(key, "claims").to_pylist()}
        return _Stored(texts, read_results(ledger, key))
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        problems.append(f"{name}: stored estimates can't be read: {error}")
        return None


def _check_page(run: OpenRun, evaluations: list[Evaluation], expected: Mapping[str, str]) -> list[str]:
    """Every claim against the sums, and all that a reader sees against a page rendered from the results."""
    page = run.ledger.root / PAGE
    if not page.is_file():
        return [f"{PAGE} is missing; `stemma report {run.ledger.root}` writes it again"]
    stored = page.read_bytes().decode(errors="replace")  # line ends as they are: a name may have one
    problems = [f"{PAGE}: {problem}" for problem in check_page(stored, expected)]
    try:
        rendered, _ = render_page(build_content(run, evaluations))
    except Exception as error:  # noqa: BLE001 - altered results can break any presentation; it is reported
        problems.append(f"{PAGE}: it can't be rendered again: {error}")
    else:
        if stored != rendered:
            problems += [f"{PAGE}: {line}" for line in compare_pages(stored, rendered)]
            if not problems and _same_libraries(run.manifest):
                problems.append(f"{PAGE}: its scripts, styles or markup are not those that stemmatics writes")
    if sha256_of(page) != run.manifest.get("page_sha256"):
        problems.append(f"{PAGE}: altered since it was written")
    return problems


def _same_libraries(manifest: Mapping[str, Any]) -> bool:
    now = versions()
    return all(manifest["versions"].get(name) == now.get(name) for name in PAGE_LIBRARIES)


def _count_stored_claims(verdict: Verdict, ledger: Ledger, manifest: Mapping[str, Any]) -> Verdict:
    """For a run that can't be opened: none of its claims holds."""
    for name, key in manifest["estimates"].items():
        stored = _load_stored(ledger, key, name, verdict.problems)
        verdict.num_claims += 0 if stored is None else len(stored.texts)
    return verdict

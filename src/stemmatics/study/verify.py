"""Do the numbers of a report follow from the sums? Nothing is loaded but the run folder."""

from __future__ import annotations

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
from stemmatics.study.again import PAGE, Reread, content_again, reread
from stemmatics.study.asked import Asked, all_facts
from stemmatics.study.estimate import answer, differences, read_estimates
from stemmatics.study.integrity import check_fact

# another processor rounds another way; anything larger is an altered number
TOLERANCE = 1e-6

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
        """Whether nothing is wrong."""
        return not self.problems and self.num_holding == self.num_claims

    @property
    def line(self) -> str:
        """The last line of ``stemma verify``."""
        return f"{self.num_holding}/{self.num_claims} claims hold"


def verify(root: Path, *, digest: str | None = None) -> Verdict:
    """Recompute everything that a run prints. Raises UserError only where it is no run at all."""
    ledger = Ledger(root)
    manifest = ledger.manifest()
    verdict = Verdict()
    general = _check_manifest(ledger, manifest, digest)
    try:
        run = reread(root)
    except UserError as error:
        verdict.problems = [*general, f"manifest.json: {error}"]
        return _none_hold(verdict, ledger, manifest)
    general += _check_list(manifest, run.asked)
    broken = _check_facts(ledger, run.asked)
    verdict.problems = [*general, *broken.values()]
    expected: dict[str, str] = {}
    for one in run.asked:
        problems, texts, num_holding = _check_measure(run, one, broken)
        verdict.problems += problems
        verdict.num_claims += len(texts)
        verdict.num_holding += num_holding
        expected |= texts
    page = _check_page(run, expected)
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


def _check_list(manifest: Mapping[str, Any], asked: list[Asked]) -> list[str]:
    expected = {*all_facts(asked), *manifest.get("estimates", {}).values()}
    listed = set(manifest["facts"])
    return [
        *(f"fact {key[:16]} is asked for, but not in the manifest" for key in sorted(expected - listed)),
        *(
            f"fact {key[:16]} is in the manifest, but nothing asks for it"
            for key in sorted(listed - expected)
        ),
    ]


def _check_facts(ledger: Ledger, asked: list[Asked]) -> dict[str, str]:
    """Problems of facts by key; a fact that failed when the study ran is said so, not hidden."""
    problems: dict[str, str] = {}
    for key, fact in all_facts(asked).items():
        found = check_fact(ledger, fact)
        if found:
            problems[key] = f"{fact.probe} {fact.label!r} ({key[:16]}): {found}"
    return problems


def _check_measure(
    run: Reread, one: Asked, broken: Mapping[str, str]
) -> tuple[list[str], dict[str, str], int]:
    """Problems, the text of every claim by id, and how many hold."""
    ledger, pinned = run.ledger, run.pinned
    key = run.manifest.get("estimates", {}).get(one.name)
    problems: list[str] = []
    stored_texts, stored = _stored(ledger, key, problems, one.name)
    affected = [fact for fact in one.facts if _touches(fact, broken)]
    try:
        found = answer(pinned, one, ledger)
    except Exception as error:  # noqa: BLE001 - altered sums can break an estimator anywhere; it is a finding
        problems.append(f"{one.name}: its estimates can't be computed from the sums: {error}")
        return problems, stored_texts, 0
    done = [fact for fact in one.facts if ledger.has(fact.key)]
    if key != one.estimate_fact(pinned, done).key:
        problems.append(f"{one.name}: its estimates were made from other facts than those in the run")
    wrong = differences(found.estimates, stored, relative=TOLERANCE)
    problems += [f"estimate {name} {what}" for name, what in wrong.items()]
    texts = {claim.id: claim.text(found.estimates) for claim, _ in found.claims()}
    for name in sorted({*texts, *stored_texts}):
        if texts.get(name) != stored_texts.get(name):
            problems.append(
                f"claim {name}: printed {stored_texts.get(name)!r}, the sums give {texts.get(name)!r}"
            )
    if affected:
        return problems, texts, 0
    holding = sum(
        texts[claim.id] == stored_texts.get(claim.id) and claim.estimate not in wrong
        for claim, _ in found.claims()
    )
    return problems, texts, holding


def _touches(fact: Fact, broken: Mapping[str, str]) -> bool:
    return fact.key in broken or any(_touches(need, broken) for need in fact.needs.values())


def _stored(
    ledger: Ledger, key: str | None, problems: list[str], name: str
) -> tuple[dict[str, str], dict[str, Any]]:
    if key is None:
        problems.append(f"{name}: no estimates are stored; the study has not been finished")
        return {}, {}
    try:
        for table, hashed in ledger.fact_record(key)["files"].items():
            if sha256_of(ledger.root / table) != hashed["sha256"]:
                problems.append(f"{table}: altered since it was written")
        texts = {row["id"]: row["text"] for row in ledger.read("claims", key).to_pylist()}
        return texts, read_estimates(ledger, key)
    except (UserError, OSError, KeyError, ValueError) as error:
        problems.append(f"{name}: stored estimates can't be read: {error}")
        return {}, {}


def _check_page(run: Reread, expected: Mapping[str, str]) -> list[str]:
    """Every printed number against the sums, and every word and point against a page made anew."""
    page = run.ledger.root / PAGE
    if not page.is_file():
        return [f"{PAGE} is missing; `stemma report {run.ledger.root}` writes it again"]
    html = page.read_text(encoding="utf-8", errors="replace")
    problems = [f"{PAGE}: {problem}" for problem in check_page(html, expected)]
    try:
        fresh, _ = render_page(content_again(run)[0])
        problems += [f"{PAGE}: {line}" for line in compare_pages(html, fresh)]
    except Exception as error:  # noqa: BLE001 - sums that break an estimator were named above
        problems.append(f"{PAGE}: it can't be made again: {error}")
    if sha256_of(page) != run.manifest.get("page_sha256"):
        problems.append(f"{PAGE}: altered since it was written")
    return problems


def _none_hold(verdict: Verdict, ledger: Ledger, manifest: Mapping[str, Any]) -> Verdict:
    for name, key in dict(manifest.get("estimates", {})).items():
        texts, _ = _stored(ledger, key, verdict.problems, name)
        verdict.num_claims += len(texts)
    return verdict

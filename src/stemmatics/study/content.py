"""The content of a run's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.core.content import Column, Content, Node, Section
from stemmatics.core.facts import Fact
from stemmatics.core.results import Result, Results, Sentence
from stemmatics.core.stages import parents
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings
from stemmatics.store.ledger import Ledger
from stemmatics.study.estimate import Evaluation

SUMMARY = "summary"
NOT_RUN = "not run"
# sentences below the table of the first screen
MOST_SENTENCES = 5


def content_of(
    pinned: Pinned,
    evaluations: Sequence[Evaluation],
    manifest: Mapping[str, Any],
    failures: Mapping[str, str],
    notices: Sequence[str] = (),
) -> Content:
    """The first screen, a section per measure, the tree of checkpoints, and provenance."""
    results: list[Result] = []
    columns: list[Column] = []
    summary: list[Sentence] = []
    sections = []
    for evaluation in evaluations:
        results += evaluation.results.values()
        columns += evaluation.findings.columns
        first, sentences = _split(evaluation.findings, MOST_SENTENCES - len(summary))
        summary += first
        sections.append(
            Section(
                name=evaluation.request.name,
                title=evaluation.request.measure.title,
                question=evaluation.request.measure.question,
                sentences=sentences,
                tables=evaluation.findings.tables,
                charts=evaluation.findings.draw(),
                failures=evaluation.findings.failures,
            )
        )
    return Content(
        title=pinned.stemma.name,
        summary=summary,
        sections=sections,
        nodes=nodes_of(pinned),
        results=Results(results),
        provenance=manifest,
        failures=[f"{name}: {reason}" for name, reason in sorted(failures.items())],
        notices=notices,
        columns=columns,
        pairs=pinned.stemma.pairs(),
    )


def _split(findings: Findings, room: int) -> tuple[list[Sentence], list[Sentence]]:
    """Sentences of the first screen, of which at most ``room``, and those of the section: all that remain."""
    of_summary = [sentence for sentence in findings.sentences if sentence.topic == SUMMARY]
    others = [sentence for sentence in findings.sentences if sentence.topic != SUMMARY]
    first = of_summary if findings.headlines is None else list(findings.headlines)
    longer = [] if findings.headlines is None else of_summary
    return first[:room], [*first[room:], *longer, *others]


def notices_of(facts: Mapping[str, Fact], ledger: Ledger) -> list[str]:
    """What loading a checkpoint flagged, once for each checkpoint and flag."""
    of_checkpoint = [key for key, fact in facts.items() if "checkpoint" in fact.needs and ledger.has(key)]
    lines = [
        f"{facts[key].needs['checkpoint'].label}: {name.replace('_', ' ')}: {meaning}"
        for key, record in ledger.fact_records(of_checkpoint).items()
        for name, meaning in dict(record.get("flags") or {}).items()
    ]
    return sorted(dict.fromkeys(lines))


def failures_of(facts: Mapping[str, Fact], ledger: Ledger) -> dict[str, str]:
    """Why facts are missing, by probe and label."""
    reasons = reasons_of(facts, ledger)
    by_label: dict[str, str] = {}
    for key, reason in reasons.items():
        by_label.setdefault(f"{facts[key].probe} {facts[key].label}", reason)
    return by_label


def reasons_of(facts: Mapping[str, Fact], ledger: Ledger) -> dict[str, str]:
    """Why facts are missing, by key; a fact whose need failed names it."""
    reasons = {key: str(failure["reason"]) for key, failure in ledger.failures().items()}
    missing: dict[str, str] = {}
    for key, fact in facts.items():
        if ledger.has(key):
            continue
        failed = next(
            (need for need in fact.needs.values() if missing.get(need.key, NOT_RUN) != NOT_RUN), None
        )
        default = f"it needs {failed.label!r} ({failed.probe}), which failed" if failed else NOT_RUN
        missing[key] = reasons.get(key, default)
    return missing


def provenance_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows about the origin of the numbers."""
    return {
        "digest": manifest["digest"],
        "versions": manifest["versions"],
        "hardware": manifest["hardware"],
        "seed": manifest["stemma"].get("seed", 0),
        "numerics": manifest["stemma"].get("numerics", {}),
        "scoring": manifest["stemma"].get("scoring", {}),
        "checkpoints": {
            name: {"source": _shown(manifest["stemma"]["checkpoints"][name]["source"]), **pin}
            for name, pin in manifest["pins"]["checkpoints"].items()
        },
        "corpora": manifest["pins"]["corpora"],
        "facts": len(manifest["facts"]),
    }


def _shown(source: str) -> str:
    """A checkpoint's name on the Hub, or a folder's own name: no paths of the user's machine."""
    return source.rstrip("/").rsplit("/", 1)[-1] if source.startswith(("/", ".", "~")) else source


def nodes_of(pinned: Pinned) -> list[Node]:
    """The stemma as a tree."""
    stemma = pinned.stemma
    nodes = []
    for name in stemma.names:
        lineage = stemma.lineage(name)
        stage = stemma.stages.get(name)
        # what its weights were made from; the base that it is compared with may be further up
        made_from = parents(stage) if stage is not None else []
        parent = made_from[0] if made_from else stemma.parent(name)
        default_regime = "base" if parent is None else "descendant"
        regime = lineage.regime or (default_regime if stage is None else stage.kind)
        nodes.append(
            Node(
                name=name,
                parent=parent,
                regime=regime,
                family=stemma.family(name),
                made_here=stage is not None,
                note=stemma.trained_last(name) or "",
            )
        )
    return nodes

"""What changed between two runs, in the form of a report: answers before and after, results, declarations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stemmatics.core.content import (
    CLEAR,
    NOT_MEASURED,
    UNCLEAR,
    Answer,
    Column,
    Content,
    Mark,
    Node,
    Section,
    Table,
)
from stemmatics.core.results import Claim, Estimate, Refusal, Result, Results, Sentence

FIRST, SECOND = "first", "second"
SAME, CHANGED, OVERLAP = "same", "changed", "no clear change"
_SIGNIFICANT = "{:.4g}"
# numbers that two machines compute from the same sums
_TOLERANCE = 1e-6
_READING = (
    "Changed: the intervals of the two runs lie apart. Where they overlap, a change is neither shown nor "
    "excluded: the two runs may share documents, and no paired test is made of them."
)


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    name: str
    content: Content
    manifest: Mapping[str, Any]


def content_between(first: Side, second: Side) -> Content:
    """A report on two runs: the columns that both have, what changed by measure, and what was declared."""
    results = Results(
        _of_run(result, run)
        for run, side in ((FIRST, first), (SECOND, second))
        for result in side.content.results.values()
    )
    columns = [
        _column(before, after, (first.content, second.content), results)
        for after in second.content.columns
        for before in first.content.columns
        if before.name == after.name
    ]
    pairs = list(dict.fromkeys([*second.content.pairs, *first.content.pairs]))
    sections = [*_sections(first.content, second.content, results)]
    declared = _declared(first.manifest, second.manifest)
    if declared:
        table = Table("runs/declared", "What was declared or pinned differently", _DECLARED, declared)
        title, question = "The two runs", "What was run differently?"
        sections.append(Section("runs", title, question, tables=[table]))
    return Content(
        title=_title(first.name, second.name),
        summary=list(_summary(columns, first, second, declared)),
        sections=sections,
        nodes=_nodes(first.content, second.content),
        results=results,
        provenance={FIRST: first.content.provenance, SECOND: second.content.provenance},
        notices=_notices(first.manifest, second.manifest),
        columns=columns,
        pairs=pairs,
        runs={FIRST: first.name, SECOND: second.name},
    )


_DECLARED = ("what", FIRST, SECOND)


def _of_run(result: Result, run: str) -> Result:
    return replace(result, subject={**result.subject, "run": run})


def _in_run(claim: Claim, content: Content, run: str) -> Claim:
    """A claim of a run's own content as one on the results of both."""
    return replace(claim, result=_of_run(content.results[claim.result], run).id)


def _column(before: Column, after: Column, contents: tuple[Content, Content], results: Results) -> Column:
    earlier = {(answer.base, answer.descendant): answer for answer in before.answers}
    later = {(answer.base, answer.descendant): answer for answer in after.answers}
    answers = [
        _answer(pair, earlier.get(pair), later.get(pair), contents, results)
        for pair in dict.fromkeys([*later, *earlier])
    ]
    evidence = f"{after.evidence.partition('/')[0]}/changes"
    return replace(after, answers=answers, evidence=evidence, how="neither run measures it")


def _answer(
    pair: tuple[str, str],
    before: Answer | None,
    after: Answer | None,
    contents: tuple[Content, Content],
    results: Results,
) -> Answer:
    """The answer of the second run, with that of the first behind it and how they compare as the word."""
    earlier, later = (
        None if answer is None or answer.number is None else _in_run(answer.number, content, run)
        for answer, content, run in zip((before, after), contents, (FIRST, SECOND), strict=True)
    )
    if later is None or after is None:
        reason = "not measured in either run" if earlier is None else f"measured in the {FIRST} run only"
        return Answer(*pair, NOT_MEASURED, mark=NOT_MEASURED, reason=reason)
    if earlier is None or before is None:
        return replace(after, number=later, word=f"new: {after.word}", effect=None, floor=None)
    word, mark = _compared(results[earlier.result], results[later.result])
    direction = after.direction if word == CHANGED else "neutral"
    if before.word != after.word and word != SAME:
        word = f"{before.word} → {after.word}"
    return Answer(*pair, word, later, mark, direction, before=earlier)


def _without_run(result: Result) -> Result:
    return replace(result, subject={name: value for name, value in result.subject.items() if name != "run"})


def _compared(before: Result, after: Result) -> tuple[str, Mark]:
    """Whether two results are the same, lie apart or overlap."""
    if isinstance(before, Estimate) and isinstance(after, Estimate):
        ends = ((before.value, after.value), (before.lo, after.lo), (before.hi, after.hi))
        same = [_agree(ours, theirs) for ours, theirs in ends]
        if all(same):
            return SAME, CLEAR
        if any(math.isnan(end) for pair in ends[1:] for end in pair):
            return "no interval", UNCLEAR
        apart = before.hi < after.lo or after.hi < before.lo
        return (CHANGED, CLEAR) if apart else (OVERLAP, UNCLEAR)
    return (SAME, CLEAR) if _word(before) == _word(after) else (CHANGED, CLEAR)


def _agree(ours: float, theirs: float) -> bool:
    """Whether two numbers are one, up to rounding; two unknown ones are."""
    both_unknown = math.isnan(ours) and math.isnan(theirs)
    return both_unknown or math.isclose(ours, theirs, rel_tol=_TOLERANCE, abs_tol=1e-12)


def _word(result: Result) -> str:
    return result.reason if isinstance(result, Refusal) else str(result.value)


def _sections(first: Content, second: Content, results: Results) -> Iterator[Section]:
    """A section a measure that either run has, with every result that is not the same."""
    by_measure: dict[str, dict[str, dict[str, Result]]] = {}
    for result in results.values():
        same_id = by_measure.setdefault(result.measure, {}).setdefault(_without_run(result).id, {})
        same_id[result.subject["run"]] = result
    names = _names(first) & _names(second)
    for section in [*second.sections, *(each for each in first.sections if each.name not in names)]:
        if section.name in names:
            yield _section(section, by_measure.get(section.name, {}).values())
        else:
            text = "Only one of the two runs has this measure."
            sentences = [Sentence(text, topic=section.name)]
            yield replace(section, sentences=sentences, tables=(), charts=(), failures=())


def _section(section: Section, results: Iterable[Mapping[str, Result]]) -> Section:
    """What differs between the runs; ``results`` are those of one id by run."""
    verdicts: list[list[Any]] = []
    numbers: list[list[Any]] = []
    num_same = 0
    for by_run in results:
        before, after = by_run.get(FIRST), by_run.get(SECOND)
        if before is None or after is None:
            continue
        word, _ = _compared(before, after)
        if word == SAME:
            num_same += 1
        elif isinstance(before, Estimate) and isinstance(after, Estimate):
            numbers.append([*_about(before), _claim(before), _claim(after), word])
        else:
            verdicts.append([*_about(before), _claim(before), _claim(after)])
    numbers.sort(key=lambda row: row[-1] != CHANGED)
    about, name = ("quantity", "of", FIRST, SECOND), section.name
    tables = [
        Table(f"{name}/changes", "Numbers that differ", [*about, "intervals"], numbers, _READING),
        Table(f"{name}/verdicts", "Verdicts that differ", about, verdicts),
    ]
    text = "Results that are the same in both runs: {same}; that differ: {differ}."
    values = {"same": str(num_same), "differ": str(len(numbers) + len(verdicts))}
    return Section(
        name,
        section.title,
        section.question,
        sentences=[Sentence(text, values, topic=name)],
        tables=[table for table in tables if table.rows],
    )


def _title(first: str, second: str) -> str:
    """The two folders; with those above them where they have one name."""
    short = tuple(name.rstrip("/").rpartition("/")[2] or name for name in (first, second))
    return " → ".join(short if short[0] != short[1] else (first, second))


def _names(content: Content) -> set[str]:
    return {section.name for section in content.sections}


def _about(result: Result) -> tuple[str, str]:
    subject = {name: value for name, value in result.subject.items() if name != "run"}
    return result.quantity, ", ".join(f"{name} {value}" for name, value in subject.items())


def _claim(result: Result) -> Claim:
    return Claim(result.id, "value", _SIGNIFICANT if isinstance(result, Estimate) else "{}")


def _summary(
    columns: Sequence[Column], first: Side, second: Side, declared: Sequence[Any]
) -> Iterator[Sentence]:
    """A sentence a question on the descendants that changed clearly; then what was run differently."""
    changed = {
        column.title: [
            answer.descendant
            for answer in column.answers
            if answer.before is not None and answer.mark == CLEAR and answer.word != SAME
        ]
        for column in columns
    }
    for title, names in list(changed.items())[:4]:
        if names:
            keys = {f"name_{index}": name for index, name in enumerate(names)}
            listed = ", ".join(f"{{{key}}}" for key in keys)
            yield Sentence(f"“{title}” changed clearly for {listed}.", keys)
    if not any(changed.values()):
        yield Sentence("No answer changed by more than the intervals of both runs.")
    texts = [
        name
        for name, corpus in _corpora(first.manifest).items()
        if _corpora(second.manifest).get(name, corpus) != corpus
    ]
    if texts:
        keys = {f"text_{index}": name for index, name in enumerate(texts)}
        listed = ", ".join(f"{{{key}}}" for key in keys)
        yield Sentence(
            f"The runs do not have the same text under {listed}: numbers on it can't be compared.", keys
        )
    elif declared:
        yield Sentence("What was declared differently is in the section on the two runs.")


def _corpora(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pin.get("content_sha256") for name, pin in manifest["pins"]["corpora"].items()}


def _declared(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[list[str | None]]:
    """Paths of the declaration, the pins and the versions whose values differ."""
    parts = ("stemma", "pins", "measures", "versions", "hardware")
    before, after = (dict(_leaves({part: manifest[part] for part in parts})) for manifest in (first, second))
    return [
        [path, before.get(path), after.get(path)]
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path) and path != "stemma.name"
    ]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, str(value)


def _notices(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """What makes numbers of the same name incomparable."""
    notices = [
        f"the text {name} is not the same in both runs"
        for name, corpus in _corpora(first).items()
        if _corpora(second).get(name, corpus) != corpus
    ]
    pins = [manifest["pins"]["checkpoints"] for manifest in (first, second)]
    notices += [
        f"{name} has other weights in the second run"
        for name, pin in pins[0].items()
        if name in pins[1] and pins[1][name].get("weights") != pin.get("weights")
    ]
    return notices


def _nodes(first: Content, second: Content) -> list[Node]:
    nodes = {node.name: node for node in [*first.nodes, *second.nodes]}
    return list(nodes.values())

"""What is said of the estimates: sentences, tables, failures."""

from __future__ import annotations

from collections.abc import Iterator

from stemmatics.core.content import Table
from stemmatics.core.results import Claim, Estimate, Sentence
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Findings
from stemmatics.measure.imprint.charts import charts
from stemmatics.measure.imprint.needs import NAME, ImprintSettings, stage_hashes
from stemmatics.measure.imprint.tables import (
    Estimates,
    after_sft,
    after_sft_runs,
    contrasts,
    deviations,
    matcher,
    node_table,
    of,
    one_of,
    stages,
    verdict_of,
)


def findings(pinned: Pinned, settings: ImprintSettings, estimates: Estimates) -> Findings:
    """All of it; a tree whose stages differ has its failures named."""
    tables = [
        *_when(contrasts(estimates)),
        *_when(after_sft(settings, estimates)),
        *_when(after_sft_runs(settings, estimates)),
        *_when(deviations(estimates)),
        *_when(node_table(pinned, settings, estimates)),
        *_when(stages(pinned, settings, estimates)),
        *_when(matcher(estimates)),
    ]
    sentences = [*_summary(settings, estimates), *_details(settings, estimates)]
    return Findings(sentences, tables, charts(settings, estimates), list(_unequal(pinned, settings)))


def _when(table: Table) -> list[Table]:
    return [table] if table.rows else []


def _summary(settings: ImprintSettings, estimates: Estimates) -> Iterator[Sentence]:
    """One sentence a tree and end: the control's deviation, then each branch against it."""
    for name, tree in settings.trees.items():
        for end in tree.ends:
            where = {"tree": name, "end": end, "metric": "refusal"}
            control = one_of(estimates, "deviation", {**where, "branch": tree.control})
            found = of(estimates, "contrast", **where, against=tree.control)
            if control is None or not found:
                continue
            places: dict[str, Claim | str] = {"tree": name, "end": end, "control": tree.control}
            places |= _with_interval("moved", control)
            parts = []
            for place, one in enumerate(found):
                # names of places have no digits, since a page's prose has none outside its claims
                key = "branch" + "x" * place
                places |= {f"{key}name": one.subject["branch"], **_with_interval(key, one)}
                places[f"{key}effect"] = Claim(one.id, "smallest_effect", "{:.1f}", 100.0)
                shown = f"{{{key}name}} {{{key}}} [{{{key}lo}}, {{{key}hi}}]"
                parts.append(f"{shown} (smallest detectable {{{key}effect}})")
            yield Sentence(
                "Imprint on refusal in {tree} after {end}, in points: {control} moves by {moved} "
                "[{movedlo}, {movedhi}]; against it, " + "; ".join(parts) + ".",
                places,
            )


def _with_interval(key: str, one: Estimate) -> dict[str, Claim]:
    """A value in points and the ends of its interval."""
    ends = {"": "value", "lo": "lo", "hi": "hi"}
    return {f"{key}{name}": Claim(one.id, field, "{:+.1f}", 100.0) for name, field in ends.items()}


def _details(settings: ImprintSettings, estimates: Estimates) -> Iterator[Sentence]:
    for name, tree in settings.trees.items():
        shown = of(estimates, "after_sft.inside", tree=name, metric="refusal", against=tree.control)
        told = [(one, verdict_of(settings, estimates, one)) for one in shown]
        if told:
            equal = [one.subject["branch"] for one, word in told if word == "equivalent"]
            rest = [one.subject["branch"] for one, word in told if word != "equivalent"]
            yield Sentence(
                "After SFT, refusal in {tree} is shown to be within {margin} points of that of {control} "
                "for: {equal}. Not shown for: {rest}.",
                {
                    "tree": name,
                    "control": tree.control,
                    "margin": Claim(f"{NAME}.margin", "value", "{:.1f}", 100.0),
                    "equal": ", ".join(equal) or "none",
                    "rest": ", ".join(rest) or "none",
                },
                topic=NAME,
            )
        if tree.order:
            last, first = tree.order
            for one in of(estimates, "contrast", tree=name, branch=last, against=first, metric="refusal"):
                places = {"tree": name, "end": one.subject["end"], "last": last, "first": first}
                yield Sentence(
                    "Order control in {tree} after {end}: with the same windows in the other order, refusal "
                    "moves {moved} [{movedlo}, {movedhi}] points more after {last} than after {first}.",
                    {**places, **_with_interval("moved", one)},
                    topic=NAME,
                )


def _unequal(pinned: Pinned, settings: ImprintSettings) -> Iterator[str]:
    for (tree, run, stage), by_hash in stage_hashes(pinned, settings).items():
        if len(by_hash) > 1:
            apart = "; ".join(f"{digits} in {', '.join(names)}" for digits, names in by_hash.items())
            yield f"the stages {stage} of run {run} in {tree} are not the same: {apart}"

"""Sentences of the imprint section, and its failures."""

from __future__ import annotations

from collections.abc import Iterator

from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.measure.imprint.contrasts import DIFFERENT
from stemmatics.measure.imprint.settings import NAME, ImprintSettings
from stemmatics.measure.present import claim, interval_claims

POINTS = "{:+.1f}"
REFUSAL = "refusal"


def summary(settings: ImprintSettings, results: Results) -> Iterator[Sentence]:
    """For each tree and end: the control's deviation, then every branch compared with it."""
    for name, tree in settings.trees.items():
        for end in tree.ends:
            where = {"tree": name, "end": end, "metric": REFUSAL}
            control = results.find("imprint.deviation", branch=tree.control, **where)
            imprints = results.all("imprint.contrast", against=tree.control, **where)
            if control is None or not imprints:
                continue
            values: dict[str, Claim | str] = {"tree": name, "end": end, "control": tree.control}
            values |= _in_points(control, "deviation")
            parts = []
            for number, imprint in enumerate(imprints):
                key = f"branch_{number}"
                values[f"{key}_name"] = imprint.subject["branch"]
                values |= _in_points(imprint, key)
                values[f"{key}_effect"] = Claim(imprint.id, "smallest_effect", "{:.1f}", 100.0)
                interval = f"{{{key}}} [{{{key}_lo}}, {{{key}_hi}}]"
                parts.append(f"{{{key}_name}} {interval} (minimum detectable effect {{{key}_effect}})")
            yield Sentence(
                "Imprint on refusal in tree {tree} after {end}, in percentage points: {control} changed by "
                "{deviation} [{deviation_lo}, {deviation_hi}] since SFT; compared with it, "
                + "; ".join(parts)
                + ".",
                values,
            )


def details(settings: ImprintSettings, results: Results) -> Iterator[Sentence]:
    """Equivalence after SFT and the order control, for each tree."""
    for name, tree in settings.trees.items():
        yield from _after_sft(name, tree.control, results)
        if tree.order:
            yield from _order_control(name, *tree.order, results)


def _after_sft(tree: str, control: str, results: Results) -> Iterator[Sentence]:
    verdicts = results.categories("imprint.after_sft.verdict", tree=tree, metric=REFUSAL, against=control)
    if not verdicts:
        return
    values: dict[str, Claim | str] = {
        "tree": tree,
        "control": control,
        "margin": Claim("imprint.margin", "value", "{:.1f}", 100.0),
    }
    parts = []
    for number, verdict in enumerate(verdicts):
        values[f"branch_{number}"] = verdict.subject["branch"]
        values[f"verdict_{number}"] = claim(verdict)
        parts.append(f"{{verdict_{number}}} for {{branch_{number}}}")
    yield Sentence(
        "Refusal after SFT in tree {tree}, compared with {control} at a margin of {margin} "
        "percentage points, is " + ", ".join(parts) + ".",
        values,
        topic=NAME,
    )


def _order_control(tree: str, last: str, first: str, results: Results) -> Iterator[Sentence]:
    about = {"tree": tree, "branch": last, "against": first, "metric": REFUSAL}
    for contrast in results.all("imprint.contrast", **about):
        yield Sentence(
            "Order control in tree {tree} after {end}: {last} and {first} saw the same windows in opposite "
            "order; the change in refusal since SFT differs by {difference} [{difference_lo}, "
            "{difference_hi}] percentage points ({last} minus {first}).",
            {
                "tree": tree,
                "end": contrast.subject["end"],
                "last": last,
                "first": first,
                **_in_points(contrast, "difference"),
            },
            topic=NAME,
        )


def _in_points(share: Estimate, key: str) -> dict[str, Claim]:
    """A share and its interval in percentage points."""
    return interval_claims(share, POINTS, key, scale=100.0)


def failures(results: Results) -> list[str]:
    """Stages that differ between branches, so that a contrast shows more than the windows."""
    lines = []
    for stages in results.categories("imprint.stage_equality"):
        if stages.value == DIFFERENT:
            tree, run, stage = (stages.subject[name] for name in ("tree", "run", "stage"))
            lines.append(
                f"the {stage} stages of run {run} in tree {tree} differ between branches: {stages.reason}"
            )
    return lines

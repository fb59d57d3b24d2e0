"""The first screen of imprint: a sentence on the first outcome that was measured, the graded one first."""

from __future__ import annotations

from collections.abc import Sequence

from stemmatics.core.results import Estimate, Results, Sentence
from stemmatics.measure.imprint.sentences import OUTCOMES, Outcome
from stemmatics.measure.imprint.settings import ImprintSettings
from stemmatics.measure.imprint.verdicts import HIGHER, LOWER
from stemmatics.measure.present import Claims, claim, known


def headlines(settings: ImprintSettings, results: Results) -> list[Sentence]:
    """Branches that differ from their control; where none does, the smallest difference that would show."""
    for outcome in OUTCOMES:
        contrasts = [
            contrast
            for name, tree in settings.trees.items()
            for end in tree.ends
            for contrast in results.all(
                "imprint.contrast", tree=name, end=end, metric=outcome.metric, against=tree.control
            )
        ]
        if contrasts:
            return _headline(outcome, contrasts, results)
    return []


def _headline(outcome: Outcome, contrasts: Sequence[Estimate], results: Results) -> list[Sentence]:
    values: Claims = {}
    parts: list[str] = []
    for contrast in contrasts:
        verdict = results.category("imprint.contrast.verdict", **contrast.subject)
        if verdict is None or verdict.value not in {HIGHER, LOWER}:
            continue
        key = f"branch_{len(parts)}"
        values |= {key: contrast.subject["branch"], f"{key}_end": contrast.subject["end"]}
        values |= {f"{key}_verdict": claim(verdict), **outcome.claims(contrast, f"{key}_value")}
        parts.append(
            f"{{{key}_verdict}} for {{{key}}} after {{{key}_end}}, "
            f"{{{key}_value}} [{{{key}_value_lo}}, {{{key}_value_hi}}]"
        )
    if parts:
        text = f"What was pretrained on last shows in {outcome.words} ({outcome.units}): "
        return [Sentence(text + "; ".join(parts) + ".", values)]
    effects = [contrast for contrast in contrasts if known(contrast.smallest_effect)]
    if not effects:
        return []
    least = min(effects, key=lambda contrast: contrast.smallest_effect)
    return [
        Sentence(
            f"Whether the last pretraining text shows in {outcome.words} is unclear: a difference could have "
            f"been seen only from {{effect}} {outcome.units} on.",
            {"effect": outcome.number(least, "smallest_effect")},
        )
    ]

"""What a measure or preset of another package imports; frozen by ``tests/test_surface.py``.

Names are imported when they are used: contracts and measures need no torch, probes do.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    # contracts of facts
    "Fact": "stemmatics.core.facts",
    "FactKind": "stemmatics.core.facts",
    "FactParams": "stemmatics.core.facts",
    "Numerics": "stemmatics.core.numerics",
    "Pinned": "stemmatics.facts.pinned",
    "Scoring": "stemmatics.core.scoring",
    "score_fact": "stemmatics.facts.score",
    "replies_fact": "stemmatics.facts.replies",
    # probes
    "Context": "stemmatics.probe.base",
    "Cost": "stemmatics.probe.base",
    "Failed": "stemmatics.probe.base",
    "FactOutput": "stemmatics.probe.base",
    "each": "stemmatics.probe.base",
    "forward_cost": "stemmatics.probe.costs",
    "num_tokens": "stemmatics.probe.costs",
    "documents_of": "stemmatics.probe.sources",
    "load_checkpoint": "stemmatics.probe.sources",
    "Reader": "stemmatics.lm.scoring.passes",
    # measures
    "Findings": "stemmatics.measure.base",
    "Measure": "stemmatics.measure.base",
    "Settings": "stemmatics.measure.base",
    "Tables": "stemmatics.measure.base",
    "Answer": "stemmatics.core.content",
    "Category": "stemmatics.core.results",
    "Chart": "stemmatics.core.content",
    "Column": "stemmatics.core.content",
    "Claim": "stemmatics.core.results",
    "Estimate": "stemmatics.core.results",
    "Refusal": "stemmatics.core.results",
    "Results": "stemmatics.core.results",
    "Sentence": "stemmatics.core.results",
    "Table": "stemmatics.core.content",
    "ResultBuilder": "stemmatics.measure.present",
    "claim": "stemmatics.measure.present",
    "claim_if": "stemmatics.measure.present",
    "forest": "stemmatics.measure.present",
    "interval_claims": "stemmatics.measure.present",
    "interval_points": "stemmatics.measure.present",
    "Scores": "stemmatics.measure.inputs",
    "read_scores": "stemmatics.measure.inputs",
    "loss_rates": "stemmatics.math.rates",
    "paired_difference": "stemmatics.math.rates",
    "t_interval": "stemmatics.math.intervals",
    "wilson": "stemmatics.math.intervals",
    # presets
    "Stemma": "stemmatics.core.stemma",
    "preset": "stemmatics.core.presets",
    "UserError": "stemmatics.core.errors",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - the names of the table above


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module 'stemmatics.plugin' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(_HOMES[name]), name)

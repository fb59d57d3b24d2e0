"""Settings of the measure `loss`."""

from __future__ import annotations

from pydantic import Field

from stemmatics.core.scoring import Scoring
from stemmatics.measure.base import Settings


class LossSettings(Settings):
    """What is scored, and how much of it is listed and checked."""

    corpora: list[str] | None = Field(
        default=None, description="Corpora to score; every corpus with the role text if left out."
    )
    checkpoints: list[str] | None = Field(
        default=None, description="Checkpoints to score; all if left out. A pair needs both of its own."
    )
    scoring: Scoring | None = Field(
        default=None, description="How documents are scored; the stemma's own scoring if left out."
    )
    checks: int = Field(
        default=4,
        ge=0,
        description="Documents scored a second time by a plain loop, as the control of the scoring.",
    )
    movers: int = Field(
        default=5, ge=0, description="Documents listed at each end of the largest movers of a pair."
    )

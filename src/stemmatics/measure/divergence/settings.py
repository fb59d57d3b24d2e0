"""Settings of the measure `divergence`."""

from __future__ import annotations

from pydantic import Field

from stemmatics.core.scoring import Scoring
from stemmatics.measure.base import Settings


class DivergenceSettings(Settings):
    """Settings of the measure `divergence`."""

    corpora: list[str] | None = Field(
        default=None, description="Corpora to compare on; all texts if left out."
    )
    descendants: list[str] | None = Field(
        default=None, description="Descendants whose pairs are compared; all if left out."
    )
    scoring: Scoring | None = Field(
        default=None, description="How documents are read; the stemma's own scoring if left out."
    )
    control_tokens: int = Field(
        default=512,
        ge=0,
        description="Tokens on which the base is also compared with itself, in half precision and under the "
        "other implementation of attention; 0 for no such control.",
    )
    floor_tokens: int = Field(
        default=1024,
        ge=0,
        description="Tokens on which the base is compared with damaged copies of itself; 0 for no floor.",
    )
    draws: int = Field(default=3, ge=1, description="Draws of the random damage.")

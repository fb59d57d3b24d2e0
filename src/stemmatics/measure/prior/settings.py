"""Settings of the measure ``prior``."""

from __future__ import annotations

from pydantic import Field

from stemmatics.core.scoring import Scoring
from stemmatics.facts.prior import ReferenceArm
from stemmatics.math.prior import SMOOTHINGS
from stemmatics.measure.base import Settings

NAME = "prior"


class PriorSettings(Settings):
    """Text, fits, damage floors and redrawn fits."""

    corpora: list[str] | None = Field(
        default=None,
        description="Corpora to fit on and score. Default: text corpora with a FIT and an EVAL split.",
    )
    descendants: list[str] | None = Field(
        default=None, description="Descendants whose pairs are measured. Default: all."
    )
    scoring: Scoring | None = Field(
        default=None,
        description="How text is scored; the support is always the shared one. Default: the stemma's.",
    )
    fit_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of FIT to fit on, by whole groups in a random order. Default: all.",
    )
    eval_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of EVAL to score, by whole groups in a random order. Default: all.",
    )
    columns: int = Field(default=4096, ge=1, description="Number of token ids whose bias is fitted.")
    smoothings: tuple[float, ...] = Field(
        default=SMOOTHINGS, description="Smoothing constants of the closed-form bias, an arm each."
    )
    references: list[ReferenceArm] | None = Field(
        default=None,
        description="Published searches to run; each step costs a pass of the head. Default: all where the "
        "FIT logits fit in memory, else none.",
    )
    floors: int = Field(
        default=5, ge=0, description="Seeds of the matched damage, for each kind of noise; 0: no floor."
    )
    draws: int = Field(
        default=200, ge=0, description="Redrawn fits for the interval that includes the fit's uncertainty."
    )
    refits: int = Field(
        default=20, ge=0, description="How many of the redrawn fits are also fitted in full, as a check."
    )

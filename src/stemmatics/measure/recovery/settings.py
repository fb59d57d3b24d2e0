"""Settings of the recovery measure."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.measure.base import Settings

NAME = "recovery"
UNITS = "nats/byte"
NANO = RecoveryRecipe.model_validate("nano")


class RecoverySettings(Settings):
    """Which checkpoints go through the recovery fine-tune, on what text, and what is measured then."""

    pool: str = Field(description="corpus on which every arm is fine-tuned")
    second_pool: str | None = Field(
        default=None,
        description="corpus of the scored text's own registers, in proportion to bytes and without the "
        "subjects of the items, for a second fine-tune of some pairs",
    )
    recipe: RecoveryRecipe = Field(
        default=NANO, description="the fine-tune: S1, small, nano, or its settings written out"
    )
    corpora: list[str] | None = Field(
        default=None, description="corpora to score (default: every corpus whose role is text)"
    )
    scoring: Scoring = Field(
        default=Scoring(windows=Windows(rule="bytes"), prefix="always"),
        description="how documents are scored; arms must be comparable by byte",
    )
    checkpoints: list[str] | None = Field(
        default=None,
        description="checkpoints that are fine-tuned (default: all but declared recovery stages)",
    )
    again: list[str] | None = Field(
        default=None,
        description="descendants that are fine-tuned on second_pool too, with their bases (default: all)",
    )
    runs: int = Field(
        default=1,
        ge=1,
        description="fine-tunes of each checkpoint, with different seeds; a verdict needs three",
    )
    base_runs: int = Field(default=2, ge=1, description="fine-tunes of each base, if more than runs")
    items: str | None = Field(default=None, description="corpus of recall questions, asked of all four arms")
    categories: list[str] | None = Field(
        default=None, description="categories of the items that count as recall (default: all)"
    )
    margin: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="change in recall, as a share of items, that counts as none in the recall table; "
        "verdicts have a margin of their own",
    )
    max_new_tokens: int = Field(default=16, ge=1, description="longest reply to a recall question, in tokens")
    shots: int | None = Field(
        default=None,
        ge=0,
        description="answered items before each recall question, as plain text; for bases without a chat "
        "template (default: the question as it stands)",
    )
    judge: str | None = Field(
        default=None,
        description="checkpoint that judges whether a reply gives an accepted answer (default: exact match)",
    )
    trajectories: dict[str, list[str]] = Field(
        default_factory=dict, description="checkpoints of one training run, in their order, by a name"
    )
    registry: str | None = Field(
        default=None, description="corpus of calibrated pairs written by stemma export --registry"
    )

    @model_validator(mode="after")
    def _comparable_by_byte(self) -> Self:
        if self.scoring.prefix != "always" or self.scoring.support != "full":
            message = "arms are compared by byte: scoring needs prefix: always and support: full"
            raise ValueError(message)
        return self

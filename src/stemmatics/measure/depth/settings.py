"""Settings of depth."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stemmatics.measure.base import Settings

INSTRUCTIONS = "instructions"


class ContrastArm(Settings):
    """One arm of a controlled experiment."""

    descendants: list[str] = Field(min_length=1, description="checkpoints of this arm, one per seed")
    events: str = Field(description="corpus with the arm's manifest of events")


class Contrast(Settings):
    """Two arms that differ in one thing; their descendants are paired in the order of the lists."""

    first: ContrastArm = Field(description="the arm that is subtracted")
    second: ContrastArm = Field(description="the arm that it is subtracted from")

    @model_validator(mode="after")
    def _paired(self) -> Contrast:
        if len(self.first.descendants) != len(self.second.descendants):
            message = "both arms need the same number of descendants: they are paired seed by seed"
            raise ValueError(message)
        return self


class DepthSettings(Settings):
    """Where events come from (prompts, a manifest, a contrast of two arms), the boundaries, the controls."""

    prompts: str | list[str] | None = Field(
        default=None,
        description=(
            "corpus of prompts (`prompt`, `messages` or `text`), a text corpus, or a list of such: "
            "`instructions` are packaged ones through the descendant's chat template (the default without a "
            "manifest or a contrast), `raw` the same as plain text"
        ),
    )
    manifest: str | None = Field(default=None, description="corpus of given events")
    contrast: Contrast | None = Field(default=None, description="a controlled experiment with two arms")
    descendants: list[str] | None = Field(
        default=None, description="descendants to cross with their bases; all if left out"
    )
    boundaries: Literal["default", "profile"] | list[int] = Field(
        default="default",
        description="first late layers: `default` is 0.6 of the depth, `profile` every layer, or a list",
    )
    max_prompts: int = Field(default=200, ge=1, description="prompts taken evenly from the corpus")
    opening_tokens: int | None = Field(
        default=None, ge=1, description="use documents of a text as prompts, cut after this many tokens"
    )
    max_new_tokens: int = Field(
        default=128, ge=1, le=128, description="greedy tokens within which the two models must disagree"
    )
    controls: bool = Field(default=True, description="also other positions and other earlier states")
    interpolate: list[float] = Field(
        default_factory=lambda: [0.25, 0.5, 0.75],
        description="weights of the descendant's state in the interpolated control states",
    )
    floor: str = Field(
        default="auto",
        description=(
            "text on which the base is damaged by as much as each descendant lost: `auto` for the first "
            "scored corpus, `none` for no floor"
        ),
    )
    floor_documents: int = Field(default=20, ge=1, description="documents of that text that are scored")
    floor_draws: int = Field(default=3, ge=1, le=20, description="draws of the noise of the floor")
    permutations: int = Field(default=5, ge=1, le=100, description="draws of the permuted control state")
    forced_tokens: int = Field(
        default=0, ge=0, description="tokens generated after a forced token; 0 turns this off"
    )

    @property
    def prompt_names(self) -> list[str]:
        """Names of corpora of prompts; the packaged instructions where no events are asked for otherwise."""
        if self.prompts is None:
            return [] if self.manifest or self.contrast else [INSTRUCTIONS]
        return [self.prompts] if isinstance(self.prompts, str) else self.prompts

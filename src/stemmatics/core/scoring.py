"""What is scored and how: the settings that two losses must share to be comparable."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Windows(BaseModel):
    """How a document is cut into windows. Sizes count input positions, the prefix included.

    ``tokens``: W inputs predict W targets, stride S (default W - W/8).
    ``harness``: lm-evaluation-harness's rolling rule, for comparison with it.
    ``bytes``: cut points lie at the same bytes under every tokenizer (the ladder's rule):
    ``size`` and ``stride`` then count bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: Literal["tokens", "harness", "bytes"] = "tokens"
    size: int | None = Field(default=None, ge=1, description="None: min(context, 2048)")
    stride: int | None = Field(default=None, ge=1, description="None: size - size // 8")

    @model_validator(mode="after")
    def _stride_fits(self) -> Self:
        if self.size is not None and self.stride is not None and self.stride > self.size:
            message = f"stride {self.stride} is larger than the window of {self.size}: tokens would be lost"
            raise ValueError(message)
        return self


class Scoring(BaseModel):
    """Everything besides numerics that determines a document's sums."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    windows: Windows = Windows()
    prefix: Literal["auto", "always", "never"] = "auto"
    support: Literal["full", "shared"] = "full"
    max_doc_tokens: int | None = Field(default=None, ge=1)

    def key(self) -> dict[str, Any]:
        """All settings: each of them changes the numbers."""
        return self.model_dump(mode="json")

"""How numbers are computed. Settings that change the numbers are part of a fact's key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Numerics(BaseModel):
    """Device, precision and parallelism.

    ``device: auto`` uses a GPU if there is one; ``dtype: auto`` is float32 on CPU and the
    checkpoint's own on a GPU. ``threads`` is per worker; 0 leaves it to torch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attention: Literal["auto", "eager", "sdpa"] = "auto"
    workers: int = Field(default=1, ge=1)
    threads: int = Field(default=0, ge=0)
    token_budget: int = Field(default=8192, ge=1, description="tokens in one forward pass")

    def key(self) -> dict[str, Any]:
        """The settings that change numbers; workers, threads and budget do not."""
        return {"device": self.device, "dtype": self.dtype, "attention": self.attention}

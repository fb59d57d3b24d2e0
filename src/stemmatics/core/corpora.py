"""Declared sources of text."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from stemmatics.core.stages import Strict


class Render(Strict):
    """How ``messages`` become text: which chat template, and which role is scored."""

    template: str = Field(description="'own' for the checkpoint's template, or the template's text")
    role: str = "assistant"


class Expected(Strict):
    """Size of a text that is not available yet, for planning: records and their UTF-8 bytes."""

    documents: int = Field(ge=1)
    bytes: int = Field(ge=1)


class Corpus(Strict):
    """Documents from exactly one of ``path``, ``dataset`` (Hub) or ``generator``.

    ``role: data`` is for training data (``messages``, preference pairs): it is read by stages
    and never scored. ``eval_share`` of the groups of near-duplicates go to the EVAL split.
    """

    path: list[str] | None = None
    dataset: str | None = None
    dataset_config: str | None = None
    dataset_split: str = "train"
    revision: str | None = None
    generator: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    field: str = "text"
    register_name: str | None = Field(default=None, alias="register")
    register_field: str | None = None
    max_documents: int | None = Field(default=None, ge=1)
    private: bool = False
    render: Render | None = None
    role: str = Field(default="text", pattern="^(text|data)$")
    eval_share: float = Field(default=1.0, ge=0, le=1)
    expected: Expected | None = None

    @field_validator("path", mode="before")
    @classmethod
    def _listed_path(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _exactly_one_source(self) -> Self:
        sources_given = [name for name in ("path", "dataset", "generator") if getattr(self, name)]
        if len(sources_given) != 1:
            sources = " and ".join(sources_given) or "none"
            message = f"a corpus takes exactly one of path, dataset, generator; found {sources}"
            raise ValueError(message)
        return self

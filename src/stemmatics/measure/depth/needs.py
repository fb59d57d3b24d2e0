"""The facts that depth needs: events of a pair, crossed cells, forced tokens, a floor's noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from stemmatics.core.facts import Fact, Tag
from stemmatics.facts.cross import CrossParams, cross_fact
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST, EventsParams, Support, events_fact
from stemmatics.facts.forced import ForcedParams, forced_fact
from stemmatics.facts.noise_scale import NoiseScaleParams, noise_scale_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.base import Settings


class Arm(Settings):
    """One arm of a controlled experiment: its descendants, seed by seed, and its manifest of events."""

    descendants: list[str] = Field(min_length=1)
    events: str


class Contrast(Settings):
    """Two arms that differ in one thing. Their descendants are paired in the order in which they stand."""

    first: Arm
    second: Arm

    @model_validator(mode="after")
    def _paired(self) -> Contrast:
        if len(self.first.descendants) != len(self.second.descendants):
            message = "both arms need as many descendants: they are paired seed by seed"
            raise ValueError(message)
        return self


class DepthSettings(Settings):
    """Prompts, or a manifest of events, or a contrast of two arms; where to cut; which controls.

    ``opening_tokens`` makes prompts of a text's documents, cut after so many. ``floor`` is the text on
    which the base is damaged by as much as each descendant lost: ``auto`` for the first scored corpus,
    ``none`` for no floor.
    """

    prompts: str | None = None
    manifest: str | None = None
    contrast: Contrast | None = None
    descendants: list[str] | None = None
    boundaries: Literal["default", "profile"] | list[int] = "default"
    max_prompts: int = Field(default=200, ge=1)
    opening_tokens: int | None = Field(
        default=None, ge=1, description="documents of a text, cut after so many tokens"
    )
    max_new_tokens: int = Field(default=128, ge=1, le=128)
    controls: bool = True
    interpolate: list[float] = Field(default_factory=lambda: [0.25, 0.5, 0.75])
    floor: str = "auto"
    floor_documents: int = Field(default=20, ge=1)
    forced_tokens: int = Field(default=0, ge=0, description="new tokens after a forced one; 0 leaves it out")

    @model_validator(mode="after")
    def _asks(self) -> DepthSettings:
        if not (self.prompts or self.manifest or self.contrast):
            message = "depth needs prompts, a manifest of events or a contrast"
            raise ValueError(message)
        return self


@dataclass(frozen=True)
class Question:
    """A pair on a set of events, with the facts that answer it. ``floor``: the damaged base on the same."""

    base: str
    descendant: str
    family: str
    source: str
    events: Fact
    cross: Fact
    forced: Fact | None = None
    floor: Question | None = None
    noise: Fact | None = None

    def facts(self) -> list[Fact]:
        """All of them, the floor's included."""
        found = [self.events, self.cross]
        found += [fact for fact in (self.forced, self.noise) if fact is not None]
        return found + (self.floor.facts() if self.floor is not None else [])


def questions(pinned: Pinned, settings: DepthSettings) -> list[Question]:
    """One a pair and source of events, those of a contrast apart."""
    found = []
    for base, descendant in chosen_pairs(pinned, settings):
        if settings.prompts is not None:
            found.append(_on_prompts(pinned, settings, base, descendant, settings.prompts))
        if settings.manifest is not None:
            found.append(on_manifest(pinned, settings, base, descendant, settings.manifest))
    return found


def chosen_pairs(pinned: Pinned, settings: DepthSettings) -> list[tuple[str, str]]:
    """All pairs, or those of the named descendants."""
    pairs = pinned.stemma.pairs()
    if settings.prompts is None and settings.manifest is None:
        return []
    if settings.descendants is None:
        return pairs
    bases = {descendant: base for base, descendant in pairs}
    for name in settings.descendants:
        # raises for a name that is not declared
        pinned.checkpoint(name)
    return [(bases[name], name) for name in settings.descendants if name in bases]


def _on_prompts(
    pinned: Pinned, settings: DepthSettings, base: str, descendant: str, prompts: str
) -> Question:
    supports = [FIRST, LATER, EARLIER] if settings.controls else [FIRST]
    models = {"base": pinned.checkpoint(base), "descendant": pinned.checkpoint(descendant)}
    events = _events(
        pinned, settings, models, prompts, supports, label=f"{base} and {descendant} on {prompts}"
    )
    forced = None
    if settings.forced_tokens:
        params = ForcedParams(max_new_tokens=settings.forced_tokens, numerics=pinned.stemma.numerics.key())
        forced = forced_fact(params, events, models["descendant"])
    noise, floor = None, None
    text = _floor_text(pinned, settings)
    if text is not None:
        scale = NoiseScaleParams(
            scoring=pinned.stemma.scoring.key(),
            num_documents=settings.floor_documents,
            numerics=pinned.stemma.numerics.key(),
        )
        noise = noise_scale_fact(scale, models, events, pinned.corpus(text))
        damaged = {"base": models["base"], "noise": noise}
        label = f"{base} and its damaged copy (as {descendant}) on {prompts}"
        floor_events = _events(pinned, settings, damaged, prompts, [FIRST], label=label, tag="floor")
        floor_cross = _cross(pinned, settings, floor_events, damaged, label, tag="floor", controls=False)
        family = pinned.stemma.family(base)
        floor = Question(base, descendant, family, prompts, floor_events, floor_cross)
    return Question(
        base,
        descendant,
        pinned.stemma.family(descendant),
        prompts,
        events,
        _cross(pinned, settings, events, models, events.label, controls=settings.controls),
        forced,
        floor,
        noise,
    )


def on_manifest(
    pinned: Pinned, settings: DepthSettings, base: str, descendant: str, manifest: str
) -> Question:
    """A pair on events that are given."""
    models = {"base": pinned.checkpoint(base), "descendant": pinned.checkpoint(descendant)}
    label = f"{base} and {descendant} on the events {manifest}"
    events = _events(pinned, settings, models, manifest, [MANIFEST], label=label)
    cross = _cross(pinned, settings, events, models, label, controls=settings.controls)
    return Question(base, descendant, pinned.stemma.family(descendant), manifest, events, cross)


def _events(
    pinned: Pinned,
    settings: DepthSettings,
    models: dict[str, Fact],
    corpus: str,
    supports: Sequence[Support],
    *,
    label: str,
    tag: Tag = "main",
) -> Fact:
    given = supports == [MANIFEST]
    params = EventsParams(
        supports=list(supports),
        max_prompts=10**9 if given else settings.max_prompts,
        max_new_tokens=0 if given else settings.max_new_tokens,
        numerics=pinned.stemma.numerics.key(),
        opening_tokens=None if given else settings.opening_tokens,
    )
    return events_fact(params, models, pinned.corpus(corpus), label=label, tag=tag)


def _cross(
    pinned: Pinned,
    settings: DepthSettings,
    events: Fact,
    models: dict[str, Fact],
    label: str,
    *,
    controls: bool,
    tag: Tag = "main",
) -> Fact:
    params = CrossParams(
        boundaries=settings.boundaries,
        interpolate=settings.interpolate if controls else [],
        permute=controls,
        numerics=pinned.stemma.numerics.key(),
    )
    return cross_fact(params, models, events, label=label, tag=tag)


def _floor_text(pinned: Pinned, settings: DepthSettings) -> str | None:
    if settings.floor == "none":
        return None
    if settings.floor != "auto":
        return settings.floor
    return next((name for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"), None)

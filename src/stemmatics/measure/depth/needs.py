"""The facts that depth needs: events of a pair, crossed cells, forced tokens, the noise of a floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, Tag
from stemmatics.facts.cross import CrossParams, cross_fact
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST, EventsParams, Support, events_fact
from stemmatics.facts.forced import ForcedParams, forced_fact
from stemmatics.facts.noise_scale import NoiseScaleParams, noise_scale_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.depth.settings import DepthSettings


@dataclass(frozen=True)
class FloorFacts:
    """The base crossed with a damaged copy of itself: the noise, the events of those two, their cells."""

    noise: Fact
    events: Fact
    cross: Fact


@dataclass(frozen=True)
class PairFacts:
    """A base and a descendant on one corpus of prompts or events, with the facts about them."""

    base: str
    descendant: str
    family: str
    corpus: str
    events: Fact
    cross: Fact
    forced: Fact | None = None
    floor: FloorFacts | None = None

    @property
    def is_on_manifest(self) -> bool:
        """Whether the events are given rather than found."""
        return bool(self.events.params["supports"] == [MANIFEST])

    def all(self) -> list[Fact]:
        """Every fact, the floor's included."""
        facts = [self.events, self.cross]
        if self.forced is not None:
            facts.append(self.forced)
        if self.floor is not None:
            facts += [self.floor.noise, self.floor.events, self.floor.cross]
        return facts


@dataclass(frozen=True)
class ContrastPair:
    """One trained model of a controlled experiment: its arm, its seed (from 1), and its facts."""

    arm: str
    seed: int
    facts: PairFacts


def pairs_to_cross(pinned: Pinned, settings: DepthSettings) -> list[PairFacts]:
    """One for each pair and corpus; those of a contrast are not among them."""
    pairs = []
    for base, descendant in _selected_pairs(pinned, settings):
        if settings.prompts is not None:
            pairs.append(_pair_on_prompts(pinned, settings, base, descendant, settings.prompts))
        if settings.manifest is not None:
            pairs.append(_pair_on_manifest(pinned, settings, base, descendant, settings.manifest))
    return pairs


def contrast_pairs(pinned: Pinned, settings: DepthSettings) -> list[ContrastPair]:
    """The first arm seed by seed, then the second. Raises UserError for a descendant without a base."""
    if settings.contrast is None:
        return []
    pairs = []
    for arm, members in (("first", settings.contrast.first), ("second", settings.contrast.second)):
        for seed, descendant in enumerate(members.descendants, start=1):
            base = pinned.stemma.parent(descendant)
            if base is None:
                raise UserError(
                    f"{descendant!r} in a contrast has no base",
                    "every model of a contrast is crossed with its base",
                    "Declare its base",
                    code=2,
                )
            facts = _pair_on_manifest(pinned, settings, base, descendant, members.events)
            pairs.append(ContrastPair(arm, seed, facts))
    return pairs


def _selected_pairs(pinned: Pinned, settings: DepthSettings) -> list[tuple[str, str]]:
    """All pairs, or those of the named descendants. Raises UserError for a name that is not declared."""
    pairs = pinned.stemma.pairs()
    if settings.prompts is None and settings.manifest is None:
        return []
    if settings.descendants is None:
        return pairs
    bases = {descendant: base for base, descendant in pairs}
    for name in settings.descendants:
        pinned.checkpoint(name)
    return [(bases[name], name) for name in settings.descendants if name in bases]


def _pair_on_prompts(
    pinned: Pinned, settings: DepthSettings, base: str, descendant: str, prompts: str
) -> PairFacts:
    supports = [FIRST, LATER, EARLIER] if settings.controls else [FIRST]
    models = {"base": pinned.checkpoint(base), "descendant": pinned.checkpoint(descendant)}
    label = f"{base} and {descendant} on {prompts}"
    events = _events(pinned, settings, models, prompts, supports, label=label)
    forced = None
    if settings.forced_tokens:
        params = ForcedParams(max_new_tokens=settings.forced_tokens, numerics=pinned.stemma.numerics.key())
        forced = forced_fact(params, events, models["descendant"])
    return PairFacts(
        base,
        descendant,
        pinned.stemma.family(descendant),
        prompts,
        events,
        _cross(pinned, settings, events, models, label, controls=settings.controls),
        forced,
        _floor(pinned, settings, models, events, prompts),
    )


def _floor(
    pinned: Pinned, settings: DepthSettings, models: dict[str, Fact], events: Fact, prompts: str
) -> FloorFacts | None:
    text = _floor_text(pinned, settings)
    if text is None:
        return None
    scale = NoiseScaleParams(
        scoring=pinned.stemma.scoring.key(),
        num_documents=settings.floor_documents,
        numerics=pinned.stemma.numerics.key(),
    )
    noise = noise_scale_fact(scale, models, events, pinned.corpus(text))
    damaged = {"base": models["base"], "noise": noise}
    base, descendant = models["base"].label, models["descendant"].label
    label = f"{base} and its damaged copy (as {descendant}) on {prompts}"
    floor_events = _events(pinned, settings, damaged, prompts, [FIRST], label=label, tag="floor")
    floor_cross = _cross(pinned, settings, floor_events, damaged, label, controls=False, tag="floor")
    return FloorFacts(noise, floor_events, floor_cross)


def _floor_text(pinned: Pinned, settings: DepthSettings) -> str | None:
    if settings.floor in {"none", "auto"} and settings.floor in pinned.stemma.corpora:
        raise UserError(
            f"`floor: {settings.floor}` of depth has two meanings",
            f"a corpus is called {settings.floor!r} too",
            "Rename that corpus",
            code=2,
        )
    if settings.floor == "none":
        return None
    if settings.floor != "auto":
        return settings.floor
    return next((name for name, corpus in pinned.stemma.corpora.items() if corpus.role == "text"), None)


def _pair_on_manifest(
    pinned: Pinned, settings: DepthSettings, base: str, descendant: str, manifest: str
) -> PairFacts:
    models = {"base": pinned.checkpoint(base), "descendant": pinned.checkpoint(descendant)}
    label = f"{base} and {descendant} on the events {manifest}"
    events = _events(pinned, settings, models, manifest, [MANIFEST], label=label)
    cross = _cross(pinned, settings, events, models, label, controls=settings.controls)
    return PairFacts(base, descendant, pinned.stemma.family(descendant), manifest, events, cross)


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
    is_given = supports == [MANIFEST]
    params = EventsParams(
        supports=list(supports),
        max_prompts=10**9 if is_given else settings.max_prompts,
        max_new_tokens=0 if is_given else settings.max_new_tokens,
        numerics=pinned.stemma.numerics.key(),
        opening_tokens=None if is_given else settings.opening_tokens,
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

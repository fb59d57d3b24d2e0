"""The facts that depth needs: events of a pair, crossed cells, forced tokens, the noise of a floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, Tag
from stemmatics.facts.cross import CrossParams, cross_fact
from stemmatics.facts.events import EARLIER, FIRST, LATER, MANIFEST, EventsParams, Support, events_fact
from stemmatics.facts.forced import ForcedParams, forced_fact
from stemmatics.facts.instructions import PACKAGED, packaged_fact
from stemmatics.facts.noise_scale import NoiseScaleParams, noise_scale_fact
from stemmatics.facts.paths import PathsParams, paths_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.depth.settings import DepthSettings


@dataclass(frozen=True)
class FloorDraw:
    """One damaged copy of the base: its noise, and the paths of the base under it."""

    noise: Fact
    paths: Fact


@dataclass(frozen=True)
class PairFacts:
    """A base and a descendant on one corpus of prompts or events, with the facts about them.

    ``events`` and ``cross`` are those of first disagreements, or of a manifest; ``paths`` and
    ``main_cross`` those of the events chosen by three cells, on prompts only.
    """

    base: str
    descendant: str
    family: str
    corpus: str
    events: Fact
    cross: Fact
    paths: Fact | None = None
    main_cross: Fact | None = None
    forced: Fact | None = None
    floor: tuple[FloorDraw, ...] = ()

    @property
    def is_on_manifest(self) -> bool:
        """Whether the events are given rather than found."""
        return bool(self.events.params["supports"] == [MANIFEST])

    @property
    def crossed(self) -> list[Fact]:
        """The facts without which the pair has no estimates."""
        return [fact for fact in (self.cross, self.paths, self.main_cross) if fact is not None]

    def all(self) -> list[Fact]:
        """Every fact, the floor's included."""
        facts = [self.events, *self.crossed]
        if self.forced is not None:
            facts.append(self.forced)
        return [*facts, *(fact for draw in self.floor for fact in (draw.noise, draw.paths))]


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
        noise: list[Fact] = []
        for prompts in settings.prompt_names:
            on_prompts = _pair_on_prompts(pinned, settings, base, descendant, prompts=prompts, noise=noise)
            # the damage is that of the pair: searched for once
            noise = [draw.noise for draw in on_prompts.floor]
            pairs.append(on_prompts)
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
    if not settings.prompt_names and settings.manifest is None:
        return []
    if settings.descendants is None:
        return pairs
    bases = {descendant: base for base, descendant in pairs}
    for name in settings.descendants:
        pinned.checkpoint(name)
    return [(bases[name], name) for name in settings.descendants if name in bases]


def _pair_on_prompts(
    pinned: Pinned,
    settings: DepthSettings,
    base: str,
    descendant: str,
    *,
    prompts: str,
    noise: Sequence[Fact],
) -> PairFacts:
    """``noise`` are the draws that another corpus of the pair has already."""
    supports = [FIRST, LATER, EARLIER] if settings.controls else [FIRST]
    models = {"base": pinned.checkpoint(base), "descendant": pinned.checkpoint(descendant)}
    label = f"{base} and {descendant} on {prompts}"
    events = _events(pinned, settings, models, prompts, supports, label=label)
    paths = _paths(pinned, settings, models, prompts, label=label)
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
        _cross(pinned, settings, events, models, label, controls=False, only_main=True),
        paths,
        _cross(pinned, settings, paths, models, f"{label}, by three cells", controls=settings.controls),
        forced,
        _floor(pinned, settings, models, events, prompts=prompts, noise=noise),
    )


def _floor(
    pinned: Pinned,
    settings: DepthSettings,
    models: dict[str, Fact],
    events: Fact,
    *,
    prompts: str,
    noise: Sequence[Fact],
) -> tuple[FloorDraw, ...]:
    text = _floor_text(pinned, settings)
    if text is None:
        return ()
    draws = list(noise)
    base, descendant = models["base"].label, models["descendant"].label
    for number in range(len(draws) + 1, settings.floor_draws + 1):
        scale = NoiseScaleParams(
            scoring=pinned.stemma.scoring.key(),
            num_documents=settings.floor_documents,
            numerics=pinned.stemma.numerics.key(),
            draw=None if number == 1 else number,
        )
        first = draws[0] if draws else None
        draws.append(noise_scale_fact(scale, models, events, pinned.corpus(text), first))
    label = f"{base} and its damaged copy (as {descendant}) on {prompts}"
    return tuple(
        FloorDraw(
            draw,
            _paths(
                pinned,
                settings,
                {"base": models["base"], "noise": draw},
                prompts,
                label=f"{label}, draw {number}",
                tag="floor",
            ),
        )
        for number, draw in enumerate(draws, start=1)
    )


def _prompts_fact(pinned: Pinned, name: str) -> Fact:
    """A declared corpus, or a packaged one of that name."""
    if name in PACKAGED and name not in pinned.stemma.corpora:
        return packaged_fact(name, pinned.stemma.seed)
    return pinned.corpus(name)


def _opening(settings: DepthSettings, corpus: Fact) -> int | None:
    """Texts are cut to openings; of several corpora, only the texts among them."""
    several = len(settings.prompt_names) > 1
    if corpus.label in PACKAGED or (several and corpus.params["role"] == "data"):
        return None
    return settings.opening_tokens


def _paths(
    pinned: Pinned,
    settings: DepthSettings,
    models: dict[str, Fact],
    prompts: str,
    *,
    label: str,
    tag: Tag = "main",
) -> Fact:
    corpus = _prompts_fact(pinned, prompts)
    params = PathsParams(
        boundaries=settings.boundaries,
        max_prompts=settings.max_prompts,
        max_new_tokens=settings.max_new_tokens,
        numerics=pinned.stemma.numerics.key(),
        opening_tokens=_opening(settings, corpus),
    )
    return paths_fact(params, models, corpus, label=label, tag=tag)


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
) -> Fact:
    is_given = supports == [MANIFEST]
    of = pinned.corpus(corpus) if is_given else _prompts_fact(pinned, corpus)
    params = EventsParams(
        supports=list(supports),
        max_prompts=10**9 if is_given else settings.max_prompts,
        max_new_tokens=0 if is_given else settings.max_new_tokens,
        numerics=pinned.stemma.numerics.key(),
        opening_tokens=None if is_given else _opening(settings, of),
    )
    return events_fact(params, models, of, label=label)


def _cross(
    pinned: Pinned,
    settings: DepthSettings,
    events: Fact,
    models: dict[str, Fact],
    label: str,
    *,
    controls: bool,
    only_main: bool = False,
) -> Fact:
    several = controls and settings.permutations > 1
    params = CrossParams(
        boundaries=settings.boundaries,
        interpolate=settings.interpolate if controls else [],
        permute=controls,
        numerics=pinned.stemma.numerics.key(),
        permutations=settings.permutations if several else None,
        only_main=True if only_main else None,
    )
    return cross_fact(params, models, events, label=label)

"""The tree that an imprint is read from: its nodes, what is asked of each, whether all else is equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.facts.judged import judged_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.replies import replies_fact
from stemmatics.facts.score import score_fact
from stemmatics.measure.base import Settings

NAME = "imprint"
FORK, WINDOW, SFT = "fork", "window", "sft"
HASH_DIGITS = 12


class Strand(Settings):
    """One run of a branch: the window on its source, the SFT after it, and what follows the SFT by name."""

    window: str
    sft: str
    ends: dict[str, str] = Field(min_length=1)


class Tree(Settings):
    """One fork and the branches that leave it, each with one strand a run, the runs in one order.

    ``control`` is the branch that the others are held against. ``order`` names two more branches with
    the same windows, the first and the second of which end on the other's first.
    """

    fork: str
    control: str
    branches: dict[str, list[Strand]]
    order: tuple[str, str] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name in (self.control, *(self.order or ())):
            if name not in self.branches:
                message = f"{name!r} is no branch; there are {', '.join(self.branches)}"
                raise ValueError(message)
        if len({len(strands) for strands in self.branches.values()}) > 1:
            message = "all branches of a tree need as many runs: a contrast pairs them run by run"
            raise ValueError(message)
        if len({tuple(strand.ends) for strands in self.branches.values() for strand in strands}) > 1:
            message = "all strands of a tree need the same ends, in one order"
            raise ValueError(message)
        return self

    @property
    def ends(self) -> list[str]:
        """What follows the SFT."""
        return list(self.branches[self.control][0].ends)

    def contrasts(self) -> list[tuple[str, str]]:
        """Branch and what it is held against: the control, and the order control's other half."""
        apart = set(self.order or ())
        against = [
            (name, self.control) for name in self.branches if name != self.control and name not in apart
        ]
        return [*against, self.order] if self.order else against


class ImprintSettings(Settings):
    """``refusal`` holds items of two categories: requests to be refused, and look-alikes that are harmless.

    ``margin`` is the difference in shares of prompts within which branches count as equal after SFT.
    ``matcher`` is a corpus of replies with a reader's label, on which the refusal matcher is tried.
    ``judge`` is a checkpoint that is asked too whether a reply refuses.
    """

    trees: dict[str, Tree] = Field(min_length=1)
    refusal: str
    refused: str = "marked"
    harmless: str = "harmless"
    instructions: str | None = None
    recall: str | None = None
    recall_category: str | None = None
    heldout: str | None = None
    matcher: str | None = None
    judge: str | None = None
    margin: float = Field(default=0.01, gt=0, lt=1)
    max_new_tokens: int = Field(default=16, ge=1)


@dataclass(frozen=True)
class Place:
    """Where a checkpoint stands: ``run`` counts from 1; the fork has neither branch nor run."""

    tree: str
    branch: str
    run: int
    stage: str

    @property
    def subject(self) -> dict[str, str]:
        """As an estimate names it."""
        return {"tree": self.tree, "branch": self.branch, "run": str(self.run), "stage": self.stage}


def nodes(settings: ImprintSettings) -> Iterator[tuple[Place, str]]:
    """Every place of every tree with the checkpoint that stands there."""
    for name, tree in settings.trees.items():
        yield Place(name, FORK, 1, FORK), tree.fork
        for branch, strands in tree.branches.items():
            for run, strand in enumerate(strands, start=1):
                yield Place(name, branch, run, WINDOW), strand.window
                yield Place(name, branch, run, SFT), strand.sft
                for end, checkpoint in strand.ends.items():
                    yield Place(name, branch, run, end), checkpoint


@dataclass(frozen=True)
class Asked:
    """The facts of one node. Recall and instructions are asked with the same limit as refusal."""

    refusal: Fact
    judged: Fact | None
    instructions: Fact | None
    recall: Fact | None
    loss: Fact | None

    def facts(self) -> list[Fact]:
        """Those that there are."""
        found = (self.refusal, self.judged, self.instructions, self.recall, self.loss)
        return [fact for fact in found if fact is not None]


def asked_of(pinned: Pinned, settings: ImprintSettings, checkpoint: str) -> Asked:
    """What a checkpoint is asked."""

    def replies(corpus: str | None) -> Fact | None:
        if corpus is None:
            return None
        return replies_fact(pinned, checkpoint, corpus, max_new_tokens=settings.max_new_tokens)

    refusal = replies(settings.refusal)
    assert refusal is not None, "the corpus of refusals is required"
    return Asked(
        refusal,
        None
        if settings.judge is None
        else judged_fact(
            pinned, checkpoint, settings.refusal, settings.judge, max_new_tokens=settings.max_new_tokens
        ),
        replies(settings.instructions),
        replies(settings.recall),
        None
        if settings.heldout is None
        else score_fact(pinned, checkpoint, settings.heldout, pinned.stemma.scoring),
    )


def stage_hash(pinned: Pinned, checkpoint: str, *, corpus: bool) -> str:
    """What a stage does but for what it starts from: recipe, seed and, where asked, its corpus."""
    fact = pinned.checkpoint(checkpoint)
    read = fact.needs["corpus"].key if corpus and "corpus" in fact.needs else None
    return key_of({"params": dict(fact.params), "corpus": read})[:HASH_DIGITS]


def stage_hashes(
    pinned: Pinned, settings: ImprintSettings
) -> dict[tuple[str, int, str], dict[str, list[str]]]:
    """For each tree, run and stage: which branches have which hash. One hash: all else is equal.

    Windows differ in what they read, so only their recipe and seed are in theirs. A branch of the
    order control reads two windows; it is held to the second.
    """
    found: dict[tuple[str, int, str], dict[str, list[str]]] = {}
    for place, checkpoint in nodes(settings):
        if place.stage != FORK:
            own = stage_hash(pinned, checkpoint, corpus=place.stage != WINDOW)
            by_hash = found.setdefault((place.tree, place.run, place.stage), {})
            by_hash.setdefault(own, []).append(place.branch)
    return found

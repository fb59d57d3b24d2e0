"""The two models of a pair in memory; for a floor, the base and a damaged copy of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from stemmatics.core.facts import Fact
from stemmatics.core.stages import Alter
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.crossing.events import GreedyDecoder
from stemmatics.lm.crossing.models import Crossable, Uncrossable
from stemmatics.lm.crossing.pair import refuse_unlike
from stemmatics.probe.base import Context
from stemmatics.probe.sources import load_merged, resident
from stemmatics.train.alter import alter


@dataclass(frozen=True)
class Pair:
    """Base and descendant."""

    base: Loaded
    descendant: Loaded


def pair_key(fact: Fact) -> str:
    """Batching key: facts with equal keys share one load of a pair."""
    return "/".join(fact.needs[role].key for role in ("base", "descendant", "noise") if role in fact.needs)


def load_pair(fact: Fact, context: Context) -> Pair:
    """``base`` and ``descendant`` of a fact; with ``noise``, the base and a damaged copy of it."""
    base = load_merged(fact.needs["base"], context)
    if "noise" in fact.needs:
        descendant = damaged(base, fact.needs["noise"], context)
    else:
        descendant = load_merged(fact.needs["descendant"], context)
    return Pair(base, descendant)


def crossed(pair: Pair, context: Context) -> tuple[Crossable, Crossable]:
    """Both models, ready to be cut; whether a model can be cut is checked once while it is kept in memory.

    Raises Uncrossable as ``lm.crossing.pair.cross`` does.
    """
    refuse_unlike(pair.base, pair.descendant)
    return _crossable(pair.base, context), _crossable(pair.descendant, context)


def _crossable(loaded: Loaded, context: Context) -> Crossable:
    notes = context.workspace.notes_of(loaded)
    if "crossable" not in notes:
        notes["crossable"] = Crossable(loaded.model)
    # the copy counts its own evaluations
    crossable: Crossable = copy.copy(notes["crossable"])
    crossable.num_evaluations = 0
    return crossable


def crossing_refusal(pair: Pair, context: Context) -> str:
    """Why the two can't be crossed; empty if they can. A result like any other, kept in the store."""
    try:
        crossed(pair, context)
    except Uncrossable as refusal:
        return refusal.reason
    return ""


def refusal_of(events: Fact, context: Context) -> str:
    """The stored reason why a pair has no events; empty if it can be crossed."""
    return str(context.ledger.fact_record(events.key).get("refusal", ""))


def is_undamaged(fact: Fact, context: Context) -> bool:
    """Whether a floor's noise has scale 0, because the descendant lost nothing."""
    if "noise" not in fact.needs:
        return False
    (row,) = context.ledger.read(fact.needs["noise"].key, "noise_scale").to_pylist()
    return not row["scale"]


def damaged(base: Loaded, noise: Fact, context: Context) -> Loaded:
    """A copy of the base with noise of the scale of a ``noise_scale`` fact; unchanged at scale 0."""
    (row,) = context.ledger.read(noise.key, "noise_scale").to_pylist()

    def make() -> Loaded:
        damaged_copy = copy_of(base)
        if row["scale"]:
            add_noise(damaged_copy, row["scale"], noise.seed(context.seed))
        return damaged_copy

    key = ("damaged", noise.key, *context.numerics.key().values())
    return resident(key, context, make, expected_bytes=lambda: base.num_bytes)


def copy_of(loaded: Loaded) -> Loaded:
    """The same checkpoint with weights of its own, which may be changed."""
    copied = replace(loaded, model=copy.deepcopy(loaded.model))
    # nobody changes the tokenizer, and checking it again takes a second
    vars(copied)["text_tokenizer"] = loaded.text_tokenizer
    return copied


def add_noise(loaded: Loaded, scale: float, seed: int) -> None:
    """Add noise to every matrix, as the stage ``alter`` does; in place."""
    alter(loaded.model, Alter(kind="alter", init="base", change="noise", scale=scale), seed)


def greedy_decoder(loaded: Loaded, context: Context) -> GreedyDecoder:
    """A loaded checkpoint that decodes greedily."""
    return GreedyDecoder(
        loaded.model,
        loaded.text_tokenizer,
        frozenset(loaded.stop_ids),
        context.numerics.token_budget,
    )

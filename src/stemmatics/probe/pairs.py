"""The two models of a pair in memory, and what a floor has in the descendant's place."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from stemmatics.core.facts import Fact
from stemmatics.core.stages import Alter
from stemmatics.lm.checkpoints.loading import Loaded, load
from stemmatics.lm.crossing.events import Speaker
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.lm.crossing.pair import cross
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.probe.base import Context
from stemmatics.probe.sources import pin_of
from stemmatics.train.alter import alter


@dataclass(frozen=True)
class Pair:
    """Base and descendant."""

    base: Loaded
    descendant: Loaded


def pair_key(fact: Fact) -> str:
    """Facts with the same answer share one load of a pair."""
    return "/".join(fact.needs[role].key for role in ("base", "descendant", "noise") if role in fact.needs)


def load_pair(fact: Fact, context: Context) -> Pair:
    """``base`` and ``descendant`` of a fact; with ``noise``, the base and a damaged copy of it."""
    base = load_merged(fact.needs["base"], context)
    if "noise" in fact.needs:
        descendant = damaged(base, fact.needs["noise"], context)
    else:
        descendant = load_merged(fact.needs["descendant"], context)
    return Pair(base, descendant)


def why_uncrossable(pair: Pair) -> str:
    """Why the two can't be crossed; empty where they can. An answer like any other, kept in the store."""
    try:
        cross(pair.base, pair.descendant)
    except Uncrossable as refusal:
        return refusal.reason
    return ""


def refusal_of(events: Fact, context: Context) -> str:
    """Why there are no events of a pair; empty where it can be crossed."""
    return str(context.ledger.fact_record(events.key).get("refusal", ""))


def load_merged(fact: Fact, context: Context) -> Loaded:
    """A checkpoint whose layers are its own: an adapter's weights are added to them."""
    allowed = {name: bool(fact.where.get(name)) for name in ("trust_remote_code", "allow_pickle")}
    return load(pin_of(fact, context), context.numerics, merge_adapter=True, **allowed)


def is_undamaged(fact: Fact, context: Context) -> bool:
    """Whether a floor's noise has the size 0, since the descendant lost nothing."""
    if "noise" not in fact.needs:
        return False
    (row,) = context.ledger.read(fact.needs["noise"].key, "noise_scale").to_pylist()
    return not row["scale"]


def damaged(base: Loaded, noise: Fact, context: Context) -> Loaded:
    """A copy of the base with the noise that a ``noise_scale`` fact found; the base itself at scale 0."""
    (row,) = context.ledger.read(noise.key, "noise_scale").to_pylist()
    copied = copy.deepcopy(base)
    if row["scale"]:
        add_noise(copied, row["scale"], noise.seed(context.seed))
    return copied


def add_noise(loaded: Loaded, scale: float, seed: int) -> None:
    """Noise on every matrix, as the stage ``alter`` makes it; in place."""
    alter(loaded.model, Alter(kind="alter", init="base", change="noise", scale=scale), seed)


def speaker(loaded: Loaded, context: Context) -> Speaker:
    """A checkpoint that decodes and reads."""
    return Speaker(
        loaded.model,
        TextTokenizer(loaded.tokenizer),
        frozenset(loaded.stop_ids),
        context.numerics.token_budget,
    )

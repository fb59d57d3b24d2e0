"""Facts about crossed models: four margins for every event, boundary, readout and control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.facts.cross import CELLS, CROSS
from stemmatics.facts.events import FIRST, MANIFEST
from stemmatics.lm.crossing.cells import Cell, Crossing, resolve_boundaries
from stemmatics.lm.crossing.events import Event
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.lm.crossing.pair import cross
from stemmatics.probe.base import Context, Cost, Failed, Made, each
from stemmatics.probe.costs import forward_cost
from stemmatics.probe.events import num_prompts
from stemmatics.probe.pairs import Pair, load_pair, pair_key, refusal_of
from stemmatics.probe.private import read_events

# passes of a whole model that one boundary takes: two of their own, two late stacks, two checks
_PASSES = 4
_EVENT_TOKENS = 96


class Cross:
    """Runs both late stacks on both earlier states of every event."""

    def group(self, fact: Fact) -> str:
        """One load a pair."""
        return pair_key(fact)

    def cost(self, fact: Fact) -> Cost:
        """Some passes over every prefix."""
        tokens = num_prompts(fact.needs["events"]) * _EVENT_TOKENS
        return forward_cost(fact.needs["base"], _PASSES * tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """No id is stored: which of an event's two tokens comes first, and whether it changed."""
        refusal = refusal_of(facts[0].needs["events"], context)
        if refusal:
            yield from each(facts, lambda fact: _refused(fact, refusal))
            return
        pair = load_pair(facts[0], context)
        yield from each(facts, lambda fact: _made_or_refused(fact, pair, context))


def _made_or_refused(fact: Fact, pair: Pair, context: Context) -> Made:
    """A floor without damage has no events, and nobody asked before whether it can be cut."""
    try:
        return _made(fact, pair, context)
    except Uncrossable as refusal:
        return _refused(fact, refusal.reason)


def _refused(fact: Fact, reason: str) -> Made:
    return _stored(fact, [], {"num_events": 0, "refusal": reason})


def _made(fact: Fact, pair: Pair, context: Context) -> Made:
    events = read_events(fact.needs["events"], context)
    base, descendant = cross(pair.base, pair.descendant)
    boundaries = resolve_boundaries(fact.params["boundaries"], base.num_layers)
    crossing = Crossing(
        base,
        descendant,
        boundaries,
        interpolate=fact.params["interpolate"],
        permute=bool(fact.params["permute"]),
        seed=fact.seed(context.seed),
        token_budget=context.numerics.token_budget,
    )
    rows: list[dict[str, Any]] = []
    for support in dict.fromkeys(event.support for event in events):
        chosen = {event.event: event for event in events if event.support == support}
        ours = crossing if support in (FIRST, MANIFEST) else crossing.at_one_boundary()
        for cell in ours.cells(list(chosen.values())):
            rows.append(_row(cell, chosen[cell.event]))
            context.tell(fact, len({row["event"] for row in rows}), len(events), "events")
        crossing.identity_error = max(crossing.identity_error, ours.identity_error)
    model = pair.base.model
    summary = {
        "num_layers": base.num_layers,
        "num_events": len(events),
        "main_boundary": crossing.main_boundary,
        "identity_error": crossing.identity_error,
        "num_layer_evaluations": base.num_evaluations + descendant.num_evaluations,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "attention": str(getattr(model.config, "_attn_implementation", "")),
        "refusal": "",
    }
    return _stored(fact, rows, summary)


def _stored(fact: Fact, rows: list[dict[str, Any]], summary: dict[str, Any]) -> Made:
    return Made(
        fact,
        {
            "cells": CROSS.table("cells", rows),
            "crossing": CROSS.table("crossing", [summary]),
        },
    )


def _row(cell: Cell, event: Event) -> dict[str, Any]:
    kinds = {event.base_id: "base", event.descendant_id: "descendant"}
    tops = dict(zip(CELLS, cell.top_1, strict=True))
    return {
        "event": cell.event,
        "index": event.prompt,
        "support": event.support,
        "boundary": cell.boundary,
        "readout": cell.readout,
        "arm": cell.arm,
        **dict(zip(CELLS, cell.margins, strict=True)),
        **{f"top_{name}": kinds.get(top, "other") for name, top in tops.items()},
        "changed_after_base": int(tops["base_base"] != tops["base_desc"]),
        "changed_after_desc": int(tops["desc_base"] != tops["desc_desc"]),
        "distance": cell.distance,
    }

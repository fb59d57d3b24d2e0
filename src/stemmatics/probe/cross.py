"""Facts about crossed models: four margins for every event, boundary, readout and control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.facts.cross import CELLS, CROSS
from stemmatics.facts.events import FIRST, MANIFEST
from stemmatics.facts.paths import THREE_CELLS
from stemmatics.lm.crossing.cells import Cell, Crossing, resolve_boundaries
from stemmatics.lm.crossing.events import Event
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost
from stemmatics.probe.events import num_prompts
from stemmatics.probe.pairs import Pair, crossed, load_pair, pair_key, refusal_of
from stemmatics.probe.private import read_events

# passes of a whole model for one boundary: two natural ones, two late stacks, two checks
_PASSES = 4
_EVENT_TOKENS = 96


class Cross:
    """Runs both late stacks on both earlier states of every event."""

    def group(self, fact: Fact) -> str:
        """Batching key: one load per pair."""
        return pair_key(fact)

    def cost(self, fact: Fact) -> Cost:
        """A few passes over every prefix."""
        tokens = num_prompts(fact.needs["events"]) * _EVENT_TOKENS
        return forward_cost(fact.needs["base"], _PASSES * tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Rows by event, boundary, readout and arm. No token id is stored, only whose token is on top."""
        refusal = refusal_of(facts[0].needs["events"], context)
        if refusal:
            yield from each(facts, lambda fact: _refused(fact, refusal))
            return
        pair = load_pair(facts[0], context)
        yield from each(facts, lambda fact: _output_or_refusal(fact, pair, context))


def _output_or_refusal(fact: Fact, pair: Pair, context: Context) -> FactOutput:
    """A floor without damage has no events, so whether its models can be cut was not checked before."""
    try:
        return _output(fact, pair, context)
    except Uncrossable as refusal:
        return _refused(fact, refusal.reason)


def _refused(fact: Fact, reason: str) -> FactOutput:
    return _stored(fact, [], {"num_events": 0, "refusal": reason})


def _output(fact: Fact, pair: Pair, context: Context) -> FactOutput:
    events = read_events(fact.needs["events"], context)
    base, descendant = crossed(pair, context)
    boundaries = resolve_boundaries(fact.params["boundaries"], base.num_layers)
    crossing = Crossing(
        base,
        descendant,
        boundaries,
        interpolate=fact.params["interpolate"],
        permute=bool(fact.params["permute"]),
        permutations=int(fact.params.get("permutations") or 1),
        seed=fact.seed(context.seed),
        token_budget=context.numerics.token_budget,
    )
    if fact.params.get("only_main"):
        crossing.boundaries = [crossing.main_boundary]
    rows: list[dict[str, Any]] = []
    for support in dict.fromkeys(event.support for event in events):
        members = {event.event: event for event in events if event.support == support}
        full = support in (FIRST, MANIFEST, THREE_CELLS)
        of_support = crossing if full else crossing.at_main_boundary()
        for cell in of_support.cells(list(members.values())):
            rows.append(_row(cell, members[cell.event]))
            context.report(fact, len({row["event"] for row in rows}), len(events), "events")
        crossing.identity_error = max(crossing.identity_error, of_support.identity_error)
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


def _stored(fact: Fact, rows: list[dict[str, Any]], summary: dict[str, Any]) -> FactOutput:
    return FactOutput(
        fact,
        {
            "cells": CROSS.table("cells", rows),
            "crossing": CROSS.table("crossing", [summary]),
        },
    )


def _row(cell: Cell, event: Event) -> dict[str, Any]:
    owners = {event.base_id: "base", event.descendant_id: "descendant"}
    top_1 = dict(zip(CELLS, cell.top_1, strict=True))
    return {
        "event": cell.event,
        "index": event.prompt,
        "support": event.support,
        "boundary": cell.boundary,
        "readout": cell.readout,
        "arm": cell.arm,
        **dict(zip(CELLS, cell.margins, strict=True)),
        **{f"top_{name}": owners.get(token, "other") for name, token in top_1.items()},
        "changed_after_base": int(top_1["base_base"] != top_1["base_desc"]),
        "changed_after_desc": int(top_1["desc_base"] != top_1["desc_desc"]),
        "distance": cell.distance,
    }

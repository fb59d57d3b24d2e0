"""Facts about a base's own greedy path: what all four cells make of it, and its events of three cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.facts.cross import CELLS
from stemmatics.facts.paths import NLL_COLUMNS, PATHS, THREE_CELLS
from stemmatics.lm.crossing.cells import Crossing, resolve_boundaries
from stemmatics.lm.crossing.events import Event, Prompt
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.lm.crossing.path import Path, PathCells, PathCrossing, greedy_paths
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost
from stemmatics.probe.events import PROMPT_TOKENS, items_of, num_prompts, prompts_of
from stemmatics.probe.pairs import Pair, crossed, greedy_decoder, is_undamaged, load_pair, pair_key
from stemmatics.probe.private import write_events

# passes of a whole model: the path itself, two natural ones, two late stacks, six readouts
_PASSES = 5


class Paths:
    """Reads the base's greedy continuations by both late stacks on both earlier states."""

    def group(self, fact: Fact) -> str:
        """Batching key: one load per pair."""
        return pair_key(fact)

    def cost(self, fact: Fact) -> Cost:
        """A few passes over prompts and replies."""
        tokens = num_prompts(fact) * (PROMPT_TOKENS + int(fact.params["max_new_tokens"]))
        return forward_cost(fact.needs["base"], _PASSES * tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row a prompt, and one an event and readout; prefixes and tokens go to ``private/``."""
        if is_undamaged(facts[0], context):
            reason = "the noise has no size: the descendant lost nothing, or no noise matches what it lost"
            yield from each(facts, lambda fact: _refused(fact, reason, context))
            return
        pair = load_pair(facts[0], context)
        yield from each(facts, lambda fact: _output_or_refusal(fact, pair, context))


def _output_or_refusal(fact: Fact, pair: Pair, context: Context) -> FactOutput:
    try:
        return _output(fact, pair, context)
    except Uncrossable as refusal:
        return _refused(fact, refusal.reason, context)


def _refused(fact: Fact, reason: str, context: Context) -> FactOutput:
    output = _stored(
        fact, context, rows=[], cells=[], summary={"num_rendered": 0, "refusal": reason}, events=[]
    )
    return FactOutput(fact, output.tables, {**output.extra, "refusal": reason})


def _output(fact: Fact, pair: Pair, context: Context) -> FactOutput:
    base, descendant = crossed(pair, context)
    boundaries = resolve_boundaries(fact.params["boundaries"], base.num_layers)
    boundary = Crossing(base, descendant, boundaries).main_boundary
    items = items_of(fact)
    rendered = prompts_of(fact, items, pair, context)
    paths = _paths(fact, rendered.prompts, pair, context)
    crossing = PathCrossing(base, descendant, boundary, context.numerics.token_budget)
    cells = sorted(
        crossing.cells(paths, lambda done: context.report(fact, done, len(paths), "paths")),
        key=lambda of_path: of_path.path.prompt.index,
    )
    documents = context.ledger.read(fact.needs["corpus"].key, "documents")["doc_id"].to_pylist()
    described = [
        {
            "index": index,
            "item_id": documents[index],
            "category": str(items[index].get("category") or "all"),
            **values,
        }
        for index, values in sorted(
            [
                *((of_path.path.prompt.index, _path_row(of_path)) for of_path in cells),
                *((index, {"outcome": why}) for index, why in rendered.without_event.items()),
            ],
            key=lambda pair: pair[0],
        )
    ]
    summary = {
        "num_layers": base.num_layers,
        "main_boundary": boundary,
        "identity_error": crossing.identity_error,
        "num_layer_evaluations": base.num_evaluations + descendant.num_evaluations,
        "num_rendered": rendered.num_rendered,
        "refusal": "",
    }
    events = [
        Event(number, *_event(of_path))
        for number, of_path in enumerate(of_path for of_path in cells if THREE_CELLS in of_path.events)
    ]
    return _stored(fact, context, rows=described, cells=_cell_rows(cells), summary=summary, events=events)


def _paths(fact: Fact, prompts: Sequence[Prompt], pair: Pair, context: Context) -> list[Path]:
    """The base's paths; decoded once a worker for all pairs of a base, its damaged copies included."""
    num_new = int(fact.params["max_new_tokens"])
    stop_ids = frozenset(pair.base.stop_ids) | frozenset(pair.descendant.stop_ids)
    known = context.workspace.notes_of(pair.base).setdefault("greedy paths", {})
    missing = [prompt for prompt in prompts if (prompt.ids, num_new) not in known]
    if missing:
        decoder = greedy_decoder(pair.base, context)
        for path in greedy_paths(decoder, missing, num_new, frozenset()):
            known[path.prompt.ids, num_new] = path.new_ids
    paths = []
    for prompt in prompts:
        ids = known[prompt.ids, num_new]
        end = next((position + 1 for position, token in enumerate(ids) if token in stop_ids), len(ids))
        paths.append(Path(prompt, ids[:end]))
    return paths


def _event(of_path: PathCells) -> tuple[int, str, tuple[int, ...], int, int, int]:
    """The event of three cells: prompt, support, prefix, the two tokens, new ids of the prefix."""
    path, event = of_path.path, of_path.events[THREE_CELLS]
    prefix = (*path.prompt.ids, *path.new_ids[: event.position])
    return path.prompt.index, THREE_CELLS, prefix, event.base_id, event.descendant_id, event.position


def _path_row(of_path: PathCells) -> dict[str, Any]:
    return {
        "outcome": "event" if THREE_CELLS in of_path.events else "agreed",
        "num_tokens": len(of_path.path.new_ids),
        **dict(zip(NLL_COLUMNS, of_path.nll_sums, strict=True)),
        "fourth_by_sum": of_path.fourth_by_sum,
        "sum_by_sum": of_path.sum_by_sum,
    }


def _cell_rows(cells: Sequence[PathCells]) -> list[dict[str, Any]]:
    numbers: dict[str, int] = {}
    rows = []
    for of_path in cells:
        for support, event in of_path.events.items():
            number = numbers[support] = numbers.get(support, -1) + 1
            rows += [
                {
                    "event": number,
                    "index": of_path.path.prompt.index,
                    "support": support,
                    "readout": readout,
                    **dict(zip(CELLS, margins, strict=True)),
                    "distance": event.distance,
                }
                for readout, margins in event.margins.items()
            ]
    return rows


def _stored(
    fact: Fact,
    context: Context,
    *,
    rows: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    events: Sequence[Event],
) -> FactOutput:
    tables = {
        "paths": PATHS.table("paths", rows),
        "path_cells": PATHS.table("path_cells", cells),
        "path_summary": PATHS.table("path_summary", [summary]),
    }
    return FactOutput(fact, tables, {"private_sha256": write_events(fact, context, events)})

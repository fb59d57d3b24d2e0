"""`stemma analyse depth`: the 2 x 2 of earlier state and late layers, from a table of margins."""

from __future__ import annotations

from typing import Any

import numpy as np

from stemmatics.commands.analyse.numbers import as_data
from stemmatics.commands.analyse.table import Table
from stemmatics.core.errors import UserError
from stemmatics.facts.cross import CELLS
from stemmatics.math.factorial import Cells, Effect, Factorial, factorial, positive_share, states_agree
from stemmatics.math.intervals import wilson

LOGITS = "logits"
DEFAULT_READOUT = "common-descendant"
TOP1 = "top1"
"""Columns ``top1_CELL`` hold the most likely token in a cell, not a margin."""
_SUPPORTS = {
    "three_cells": "chosen by three cells, measured by the fourth",
    "first": (
        "first disagreement (published): chosen by the two natural cells, which alone gives a positive "
        "interaction and small p on additive cells; a description"
    ),
    "manifest": "given events",
    "not stated": (
        "the table does not say; if the events are where base and descendant part (as published), that "
        "selection alone gives a positive interaction and small p on additive cells"
    ),
}


def analyse_depth(
    table: Table, *, rng: np.random.Generator, readout: str = DEFAULT_READOUT
) -> dict[str, Any]:
    """Effects over all events, then in each category, under one readout; prompts are the unit."""
    table.require(["prompt_id"])
    chosen = readout.replace("-", "_")
    readouts = _readouts(table)
    if chosen not in readouts:
        known = ", ".join(name.replace("_", "-") for name in readouts) or "none"
        raise UserError(
            f"{table.name} has no readout {readout!r}",
            f"a readout has the columns READOUT_{', READOUT_'.join(CELLS)}; this table has {known}",
            "Choose one with --readout, or rename the columns",
            code=2,
        )
    table.refuse_duplicates(list(table.columns))
    margins = {name: _cells(table, name) for name in readouts}
    prompts = table.labels("prompt_id")
    pairs = table.labels("pair") if table.has("pair") else np.full(prompts.size, "the pair")
    families = table.labels("family") if table.has("family") else pairs
    cells = margins[chosen]

    def statistics(keep: Any) -> dict[str, Any]:
        effects = factorial(
            cells.where(keep), prompts[keep], rng=rng, pairs_E=pairs[keep], families_E=families[keep]
        )
        return _as_data(effects)

    result: dict[str, Any] = {
        "readout": chosen.replace("_", "-"),
        "support": _support(table),
        "overall": statistics(np.ones(prompts.size, dtype=np.bool_)),
        "categories": {},
        "positive_margin": {
            name.replace("_", "-"): as_data(positive_share(cells_of.base_base_E))
            for name, cells_of in margins.items()
        },
        "degenerate": states_agree(cells),
    }
    if all(table.has(f"{TOP1}_{cell}") for cell in CELLS):
        result["top1_changes"] = _top1_changes(table)
    if table.has("category"):
        categories = table.labels("category")
        for category in dict.fromkeys(categories.tolist()):
            result["categories"][category] = statistics(categories == category)
    return result


def _support(table: Table) -> dict[str, str]:
    """How the events of a table were chosen: its column ``support``, or not stated.

    Raises:
        UserError: events of several supports in one table.
    """
    if not table.has("support"):
        return {"value": "not stated", "says": _SUPPORTS["not stated"]}
    supports = list(dict.fromkeys(table.labels("support").tolist()))
    if len(supports) > 1:
        raise UserError(
            f"{table.name} has events of several supports: {', '.join(supports)}",
            "they were chosen in different ways, and a mean over them has no meaning",
            "Give a table for each",
        )
    (value,) = supports
    return {"value": value, "says": _SUPPORTS.get(value, _SUPPORTS["not stated"])}


def _readouts(table: Table) -> list[str]:
    """Readouts with all four cells, in the order of the columns."""
    ending = f"_{CELLS[0]}"
    starts = [name.removesuffix(ending) for name in table.columns if name.endswith(ending)]
    starts = [start for start in starts if start != TOP1]
    return [start for start in starts if all(table.has(f"{start}_{cell}") for cell in CELLS)]


def _cells(table: Table, readout: str) -> Cells:
    return Cells(*(table.numbers(f"{readout}_{cell}") for cell in CELLS))


def _top1_changes(table: Table) -> dict[str, Any]:
    """Share of events whose most likely token changes with the late layers, by earlier state."""
    top = {cell: table.labels(f"{TOP1}_{cell}") for cell in CELLS}
    swaps = {
        "after_base": top["base_base"] != top["base_desc"],
        "after_descendant": top["desc_base"] != top["desc_desc"],
    }
    return {
        name: as_data(wilson(int(changed.sum()), changed.size, unit="event"))
        for name, changed in swaps.items()
    }


def _effect(effect: Effect) -> dict[str, Any]:
    test = effect.sign_flip
    return as_data(
        effect.interval,
        units=LOGITS,
        sign_flip_p=test.p_value,
        smallest_p=test.smallest_p,
        num_flips=test.num_flips,
        exact=test.exact,
    )


def _as_data(effects: Factorial) -> dict[str, Any]:
    data = {
        "effect_after_base": _effect(effects.effect_after_base),
        "effect_after_descendant": _effect(effects.effect_after_descendant),
        "interaction": _effect(effects.interaction),
        "portable_share": as_data(effects.portable_share),
        "num_events": effects.num_events,
        "num_prompts": effects.interaction.interval.n,
        "num_pairs": effects.num_pairs,
        "num_families": effects.num_families,
    }
    if effects.num_families > 1:
        data["between_families"] = {
            name: as_data(interval, units=LOGITS) for name, interval in effects.between_families.items()
        }
    return data

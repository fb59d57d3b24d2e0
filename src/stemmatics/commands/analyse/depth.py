"""`stemma analyse depth`: the 2 x 2 of earlier state and late stack, from a table of margins."""

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
"""Columns ``top1_CELL`` name the most likely token in a cell; they are no margins."""


def analyse_depth(
    table: Table, *, rng: np.random.Generator, readout: str = DEFAULT_READOUT
) -> dict[str, Any]:
    """All events, then each category; margins under one readout. Prompts are resampled and flipped."""
    table.require(["prompt_id"])
    chosen = readout.replace("-", "_")
    readouts = _readouts(table)
    if chosen not in readouts:
        known = ", ".join(name.replace("_", "-") for name in readouts) or "none"
        raise UserError(
            f"{table.name} has no readout {readout!r}",
            f"A readout has the columns READOUT_{', READOUT_'.join(CELLS)}; this table has {known}",
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
        found = factorial(
            cells.where(keep), prompts[keep], rng=rng, pairs_E=pairs[keep], families_E=families[keep]
        )
        return _as_data(found)

    result: dict[str, Any] = {
        "readout": chosen.replace("_", "-"),
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


def _readouts(table: Table) -> list[str]:
    """Readouts that have all four cells, in the order of the columns."""
    ending = f"_{CELLS[0]}"
    starts = [name.removesuffix(ending) for name in table.columns if name.endswith(ending)]
    starts = [start for start in starts if start != TOP1]
    return [start for start in starts if all(table.has(f"{start}_{cell}") for cell in CELLS)]


def _cells(table: Table, readout: str) -> Cells:
    return Cells(*(table.numbers(f"{readout}_{cell}") for cell in CELLS))


def _top1_changes(table: Table) -> dict[str, Any]:
    """Share of events whose most likely token changes when the late stack is swapped, by earlier state."""
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


def _as_data(found: Factorial) -> dict[str, Any]:
    data = {
        "effect_after_base": _effect(found.effect_after_base),
        "effect_after_descendant": _effect(found.effect_after_descendant),
        "interaction": _effect(found.interaction),
        "portable_share": as_data(found.portable_share),
        "num_events": found.num_events,
        "num_prompts": found.interaction.interval.n,
        "num_pairs": found.num_pairs,
        "num_families": found.num_families,
    }
    if found.num_families > 1:
        data["between_families"] = {
            name: as_data(interval, units=LOGITS) for name, interval in found.between_families.items()
        }
    return data

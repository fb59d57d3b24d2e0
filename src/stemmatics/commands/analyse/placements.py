"""Rows without a base: the loss of the base behind a descendant, from the pairs whose base is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.commands.analyse.numbers import as_data
from stemmatics.commands.analyse.table import Table
from stemmatics.math.recovery import (
    DISTILLED,
    MEASURED_RULES,
    UNKNOWN,
    Calibration,
    DistillationFlag,
    Origin,
    Pairs,
    base_estimate,
    calibration,
    distillation_flag,
    nested_coverage,
    offset_of,
)
from stemmatics.math.recovery.offsets import coverage_by_family
from stemmatics.math.recovery.unknown_base import not_used

NATS = "nats/byte"
DECLARED = ("lab", "generation", "pipeline", "regime")


def without_base(table: Table) -> npt.NDArray[np.bool_]:
    """Rows whose ``matched_base`` is empty; all rows of a table that has no column of a base."""
    if not any(table.has(column) for column in ("base", "native_base", "matched_base")):
        return np.ones(table.num_rows, dtype=np.bool_)
    if not table.has("matched_base"):
        return np.zeros(table.num_rows, dtype=np.bool_)
    return table.is_empty("matched_base")


def origins(table: Table) -> list[Origin]:
    """The declared origin of each row's descendant; what is empty is undeclared, and unique to the row."""
    columns = {name: table.labels(name, required=False) for name in ("family", *DECLARED)}
    columns["descendant"] = table.labels("descendant")
    rows = []
    for row in range(table.num_rows):
        declared = {name: str(columns[name][row]) or None for name in DECLARED}
        name = str(columns["descendant"][row])
        rows.append(Origin.of(name, str(columns["family"][row]) or name, declared))
    return rows


def known_pairs(pairs: Pairs, origins_N: list[Origin]) -> Calibration:
    """The pairs of one corpus with their origins, in the same order."""
    return calibration(pairs.residuals.tolist(), origins_N)


def coverage(known: Calibration) -> list[dict[str, Any]]:
    """How often the bar from the other families covers a residual, by class and by the rule that applied."""
    nested = nested_coverage(known)
    rows = []
    kinds = sorted(set(zip(known.recipe_class_N.tolist(), nested.source_N.tolist(), strict=True)))
    for recipe_class, source in kinds:
        chosen = (known.recipe_class_N == recipe_class) & (nested.source_N == source)
        share = coverage_by_family(nested.is_covered[chosen], known.family_N[chosen])
        rows.append(
            {"class": recipe_class, "source": source, "num_pairs": int(chosen.sum())}
            | as_data(share, units="share")
        )
    return rows


def learned_flag(pairs: Pairs, origins_N: list[Origin]) -> DistillationFlag | None:
    """The threshold on the drop, from pairs of declared regime; None without both kinds of release."""
    declared = np.array([origin.recipe_class != UNKNOWN for origin in origins_N], dtype=np.bool_)
    distilled = np.array([origin.recipe_class == DISTILLED for origin in origins_N], dtype=np.bool_)
    if not (declared & distilled).any() or not (declared & ~distilled).any():
        return None
    return distillation_flag(pairs.drops[declared], distilled[declared], pairs.family_N[declared])


def flag_data(flag: DistillationFlag) -> dict[str, Any]:
    """The threshold with its left-out sensitivity and specificity."""
    names = ("threshold", "sensitivity", "specificity", "num_distilled", "num_other")
    return {name: getattr(flag, name) for name in names} | {"units": NATS}


def placements(
    corpus: str,
    table: Table,
    losses: dict[str, npt.NDArray[np.float64]],
    known: Calibration,
    flag: DistillationFlag | None,
) -> list[dict[str, Any]]:
    """The estimated loss of each row's base, in nats/byte, with both bars and the rule behind them.

    ``half_width``: against the base's loss on this text, the offset's error alone. ``half_width_elsewhere``:
    against its loss on text like this; unknown unless the table gives ``recovered_half_width``, that of the
    recovered loss over documents. ``level`` is null where the bar is a published or a seen range. A drop is
    judged as a point, since the table has no interval of it.
    """
    rows = []
    for row, origin in enumerate(origins(table)):
        offset = offset_of(known, origin)
        estimate = base_estimate(
            float(losses["recovered"][row]), offset, float(losses["recovered_half_width"][row])
        )
        drop = float(losses["native"][row] - losses["recovered"][row])
        placement = {
            "corpus": corpus,
            "descendant": str(table.columns["descendant"][row]).strip(),
            "estimate": estimate.value,
            "half_width": estimate.half_width,
            "half_width_elsewhere": estimate.half_width_elsewhere,
            "level": offset.level if offset.source in MEASURED_RULES else None,
            "units": NATS,
            "source": offset.source,
            "offset": offset.value,
            "num_pairs": offset.num_pairs,
            "num_families": offset.num_families,
            "class": origin.recipe_class,
            "not_used": not_used(known, origin, offset),
            "note": offset.note,
        }
        if flag is not None and math.isfinite(drop):
            placement["distilled_flag"] = flag.says(drop, drop)
        rows.append(placement)
    return rows

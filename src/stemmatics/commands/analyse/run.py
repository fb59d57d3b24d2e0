"""Estimates from a table: which measures there are, and which settings each of them takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stemmatics.commands.analyse.agreement import analyse_agreement
from stemmatics.commands.analyse.archive import analyse_archive
from stemmatics.commands.analyse.axes import analyse_axes
from stemmatics.commands.analyse.depth import analyse_depth
from stemmatics.commands.analyse.divergence import analyse_divergence
from stemmatics.commands.analyse.elicitation import analyse_elicitation
from stemmatics.commands.analyse.prior import analyse_prior
from stemmatics.commands.analyse.recovery import analyse_recovery
from stemmatics.commands.analyse.table import read_table
from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from

# measures, and their settings besides the seed
MEASURES: dict[str, tuple[str, ...]] = {
    "recovery": (),
    "agreement": ("tasks", "lower_is_better", "before", "after"),
    "depth": ("readout",),
    "prior": (),
    "divergence": (),
    "axes": ("cluster",),
    "elicitation": ("recipe",),
}


def analyse(measure: str, *tables: str | Path, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Estimates from a table, as plain data; unknown numbers are NaN.

    Args:
        measure: recovery, agreement, depth, prior, divergence, axes or elicitation.
        tables: CSV, Parquet, JSON or JSON lines; for prior also a folder of tables with ``SHA256SUMS``; for
            axes two or more evaluation logs, or a table of several models' items.
        seed: seed of the bootstrap; the same seed and table give the same numbers.
        settings: ``tasks``, ``lower_is_better``, ``before``, ``after`` (agreement), ``readout`` (depth),
            ``cluster`` (axes), ``recipe`` (elicitation).

    Raises UserError for an unknown measure or setting, and for a table that lacks something.
    """
    check_settings(measure, settings)
    rng = np.random.default_rng(seed_from(seed, measure))
    if measure == "axes":
        logs = analyse_axes([Path(table) for table in tables], rng=rng, **settings)
        return {"measure": measure, "seed": seed} | logs
    if len(tables) != 1:
        raise UserError(
            f"{measure} takes one table, {len(tables)} are given",
            "each is analysed by itself",
            "Give one",
            code=2,
        )
    path = Path(tables[0])
    if not path.exists():
        raise UserError(f"{path} does not exist", "a table is a file or a folder", "Check the path", code=2)
    if measure == "recovery":
        estimates = analyse_recovery(read_table(path), rng=rng)
    elif measure == "agreement":
        estimates = analyse_agreement(path, rng=rng, **settings)
    elif measure == "depth":
        estimates = analyse_depth(read_table(path), rng=rng, **settings)
    elif measure == "divergence":
        estimates = analyse_divergence(read_table(path), rng=rng)
    elif measure == "elicitation":
        estimates = analyse_elicitation(path, rng=rng, **settings)
    elif path.is_dir():
        estimates = analyse_archive(path, seed=seed)
    else:
        estimates = analyse_prior(read_table(path), rng=rng)
    return {"measure": measure, "table": path.name, "seed": seed} | estimates


def check_settings(measure: str, settings: dict[str, Any]) -> None:
    """Raise UserError for an unknown measure, and for a setting that it does not take."""
    if measure not in MEASURES:
        raise UserError(
            f"no measure called {measure!r} analyses tables",
            f"the measures are {', '.join(MEASURES)}",
            "Choose one of them",
            code=2,
        )
    other = next((name for name in settings if name not in MEASURES[measure]), None)
    if other is not None:
        owner = next((name for name, options in MEASURES.items() if other in options), "no measure")
        raise UserError(
            f"--{other.replace('_', '-')} is not an option of {measure}",
            f"it belongs to {owner}",
            "Remove it",
            code=2,
        )

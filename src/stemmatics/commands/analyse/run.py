"""Which measures there are, and what each may be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stemmatics.commands.analyse.agreement import analyse_agreement
from stemmatics.commands.analyse.archive import analyse_archive
from stemmatics.commands.analyse.depth import analyse_depth
from stemmatics.commands.analyse.prior import analyse_prior
from stemmatics.commands.analyse.recovery import analyse_recovery
from stemmatics.commands.analyse.table import read_table
from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from

# a measure, and the settings that it takes beside the seed
MEASURES: dict[str, tuple[str, ...]] = {
    "recovery": (),
    "agreement": ("tasks", "lower_is_better", "before", "after"),
    "depth": ("readout",),
    "prior": (),
}


def analyse(measure: str, table: str | Path, *, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Estimates from a table, as plain data; unknown numbers are NaN.

    Args:
        measure: recovery, agreement, depth or prior.
        table: CSV, Parquet, JSON or JSON lines; for prior also a folder of tables with ``SHA256SUMS``.
        seed: of the resamples; the same seed and table give the same numbers.
        settings: ``tasks``, ``lower_is_better``, ``before``, ``after`` (agreement), ``readout`` (depth).

    Raises UserError for an unknown measure or setting and for what the table lacks.
    """
    check_settings(measure, settings)
    path = Path(table)
    if not path.exists():
        raise UserError(f"{path} is not there", "A table is a file", "Check the path", code=2)
    rng = np.random.default_rng(seed_from(seed, measure))
    if measure == "recovery":
        found = analyse_recovery(read_table(path), rng=rng)
    elif measure == "agreement":
        found = analyse_agreement(path, rng=rng, **settings)
    elif measure == "depth":
        found = analyse_depth(read_table(path), rng=rng, **settings)
    elif path.is_dir():
        found = analyse_archive(path, seed=seed)
    else:
        found = analyse_prior(read_table(path), rng=rng)
    return {"measure": measure, "table": path.name, "seed": seed} | found


def check_settings(measure: str, settings: dict[str, Any]) -> None:
    """Refuse a measure that is not there, and settings that it does not have."""
    if measure not in MEASURES:
        raise UserError(
            f"there is no measure {measure!r} to analyse a table with",
            f"Known are {', '.join(MEASURES)}",
            "Choose one of them",
            code=2,
        )
    other = next((name for name in settings if name not in MEASURES[measure]), None)
    if other is not None:
        owner = next((name for name, own in MEASURES.items() if other in own), "no measure")
        raise UserError(
            f"--{other.replace('_', '-')} is not for {measure}",
            f"It belongs to {owner}",
            "Leave it out",
            code=2,
        )

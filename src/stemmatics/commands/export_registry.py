"""The calibrated pairs of a run as a registry: a file that other studies read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.results import Estimate, Results, none_if_nan
from stemmatics.measure.recovery.needs import Arms, origin_of
from stemmatics.measure.recovery.settings import RecoverySettings
from stemmatics.store.files import write_bytes
from stemmatics.study.read import OpenRun, load_results, open_run

MEASURE = "recovery"


def registry_rows(root: Path) -> list[dict[str, Any]]:
    """One row for each pair and corpus: residual and drop, the recipe and the text by their hashes.

    Raises UserError where the run has no calibrated pair.
    """
    run = open_run(root)
    request = run.request(MEASURE)
    rows = []
    if request is not None:
        rows = _rows(run, request.settings, load_results(run.ledger, run.manifest, MEASURE))
    if not rows:
        raise UserError(
            f"{root} has no calibrated pairs",
            "a registry holds pairs of base and descendant after the same recovery fine-tune",
            "Run a study with the measure recovery and both models of a pair among its checkpoints",
            code=2,
        )
    return rows


def _rows(run: OpenRun, settings: RecoverySettings, results: Results) -> list[dict[str, Any]]:
    pinned = run.pinned
    arms = Arms(pinned, settings)
    recipe_hash = settings.recipe.hash(str(pinned.pins.corpora[settings.pool]["content_sha256"]))
    rows = []
    for corpus in arms.corpora:
        for base, descendant in arms.pairs:
            subject = {"base": base, "descendant": descendant, "corpus": corpus}
            residual, drop = (_exactly(results, name, subject) for name in ("residual", "drop"))
            if residual is not None and drop is not None:
                rows.append(
                    {
                        "base": base,
                        "descendant": descendant,
                        **vars(origin_of(pinned, descendant)),
                        "recipe_hash": recipe_hash,
                        "corpus_sha256": pinned.pins.corpora[corpus]["content_sha256"],
                        **_numbers("residual", residual),
                        **_numbers("drop", drop),
                        "n": residual.n,
                    }
                )
    return rows


def _exactly(results: Results, name: str, subject: Mapping[str, str]) -> Estimate | None:
    """The estimate with this subject and no more: one by register has the register in it."""
    estimates = results.all(f"{MEASURE}.{name}", **subject)
    return next((estimate for estimate in estimates if dict(estimate.subject) == subject), None)


def _numbers(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        name: estimate.value,
        f"{name}_lo": none_if_nan(estimate.lo),
        f"{name}_hi": none_if_nan(estimate.hi),
    }


def write_registry(root: Path, path: Path) -> int:
    """Write the rows as JSON lines and return their number; a stemma reads them as ``role: data``."""
    rows = registry_rows(root)
    write_bytes(path, "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode())
    return len(rows)

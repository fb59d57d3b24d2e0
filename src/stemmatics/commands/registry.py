"""Calibrated pairs of a run as a registry that other studies import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.results import Estimate, none_if_nan
from stemmatics.measure.recovery.needs import Arms, RecoverySettings, origin_of
from stemmatics.store.files import write_bytes
from stemmatics.study.read import OpenRun, load_report_content, open_run

MEASURE = "recovery"


def registry_rows(root: Path) -> list[dict[str, Any]]:
    """One row a pair with a known base and corpus: residual and drop, under which recipe, on which text.

    Raises UserError where the run has no calibrated pair.
    """
    run = open_run(root)
    content = load_report_content(run)
    asked = next((one for one in run.requests if one.name == MEASURE), None)
    rows = [] if asked is None else _rows(run, asked.settings, content.results)
    if not rows:
        raise UserError(
            f"{root} has no calibrated pair",
            "a registry holds base and descendant after the same fine-tune",
            "Run a stemma with the measure recovery, with both among its checkpoints",
            code=2,
        )
    return rows


def _rows(
    run: OpenRun, settings: RecoverySettings, estimates: Mapping[str, Estimate]
) -> list[dict[str, Any]]:
    pinned = run.pinned
    arms = Arms(pinned, settings)
    recipe_hash = settings.recipe.hash(str(pinned.pins.corpora[settings.pool]["content_sha256"]))
    rows = []
    for corpus in arms.corpora:
        for base, descendant in arms.pairs:
            subject = {"base": base, "descendant": descendant, "corpus": corpus}
            found = {
                one.quantity.rpartition(".")[2]: one
                for one in estimates.values()
                if dict(one.subject) == subject and one.quantity in {f"{MEASURE}.residual", f"{MEASURE}.drop"}
            }
            if len(found) == 2:
                rows.append(
                    {
                        "base": base,
                        "descendant": descendant,
                        **vars(origin_of(pinned, descendant)),
                        "recipe_hash": recipe_hash,
                        "corpus_sha256": pinned.pins.corpora[corpus]["content_sha256"],
                        **_numbers("residual", found["residual"]),
                        **_numbers("drop", found["drop"]),
                        "n": found["residual"].n,
                    }
                )
    return rows


def _numbers(name: str, one: Estimate) -> dict[str, Any]:
    return {
        name: one.value,
        f"{name}_lo": none_if_nan(one.lo),
        f"{name}_hi": none_if_nan(one.hi),
    }


def write_registry(root: Path, path: Path) -> int:
    """Write the rows as JSON lines, which a stemma reads as a corpus of ``role: data``.

    Returns their number.
    """
    rows = registry_rows(root)
    write_bytes(path, "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode())
    return len(rows)

"""`stemma analyse prior`: shares that corrections of the logits recover, from sums by document."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stemmatics.commands.analyse.numbers import as_data
from stemmatics.commands.analyse.table import Table
from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.prior.shares import HOLDS_ZERO, IMPROVED, PairSums
from stemmatics.math.rates import bootstrap_many, paired_differences, ratio_of_sums

NONE = "none"
UNITS = "nats/token"
UNKNOWN = "n/a: the interval of the loss increase is unknown"


def analyse_prior(table: Table, *, rng: np.random.Generator) -> dict[str, Any]:
    """Loss increase, what each arm removes from either model, and the two shares; documents are the unit.

    Columns: ``doc_id``, ``num_tokens`` and nats summed by document, ``old_ARM`` and ``new_ARM`` for the arm
    ``none`` and any others; ``group`` joins near-duplicates.
    """
    table.require(["doc_id", "num_tokens", f"old_{NONE}", f"new_{NONE}"])
    table.refuse_duplicates(["doc_id"])
    table.labels("doc_id")
    arms = _arms(table)
    tokens = table.numbers("num_tokens", least=0.0)
    if not tokens.sum() > 0:
        raise UserError(f"{table.name} has no tokens", "nothing was scored", "Check the column num_tokens")
    groups = table.labels("group") if table.has("group") else None
    old, new = (
        {arm: table.numbers(f"{side}_{arm}", least=0.0) for arm in [NONE, *arms]} for side in ("old", "new")
    )
    _refuse_loss_without_tokens(table, tokens, [*old.values(), *new.values()])
    sums = {arm: PairSums(new[NONE] - old[NONE], new[NONE] - new[arm], old[NONE] - old[arm]) for arm in arms}
    first = [old[NONE], *(column for arm in arms for column in (new[arm], old[arm]))]
    second = [new[NONE], *(column for _ in arms for column in (new[NONE], old[NONE]))]
    delta, *gains = paired_differences(
        np.stack(first, axis=1), np.stack(second, axis=1), tokens, rng=rng, groups=groups
    )
    reason = _why_no_share(delta)
    shares = _shares(list(sums.values()), delta, reason, rng, groups)
    return {
        "num_documents": table.num_rows,
        "num_tokens": int(tokens.sum()),
        "delta": as_data(delta, units=UNITS),
        "arms": {
            arm: {
                "S_card": as_data(shares[2 * k]),
                "S_sym": as_data(shares[2 * k + 1]),
                "R_new": as_data(gains[2 * k], units=UNITS),
                "R_old": as_data(gains[2 * k + 1], units=UNITS),
            }
            for k, arm in enumerate(arms)
        },
        "note": reason,
    }


def _arms(table: Table) -> list[str]:
    """Arms in the order of their columns; each needs sums of both models."""
    sides = {
        side: [name.removeprefix(side) for name in table.columns if name.startswith(side)]
        for side in ("old_", "new_")
    }
    for side, other in (("old_", "new_"), ("new_", "old_")):
        alone = next((arm for arm in sides[side] if arm not in sides[other]), None)
        if alone is not None:
            raise UserError(
                f"{table.name} has {side}{alone} but no {other}{alone}",
                "a share needs both models under the same correction",
                "Add the missing column, or remove the other one",
                code=2,
            )
    arms = [arm for arm in sides["old_"] if arm != NONE]
    if not arms:
        raise UserError(
            f"{table.name} has no arm but {NONE}",
            "there is no correction to estimate",
            "Add columns old_ARM and new_ARM",
            code=2,
        )
    return arms


def _refuse_loss_without_tokens(table: Table, tokens: Any, losses: list[Any]) -> None:
    for row in np.flatnonzero(tokens == 0):
        if any(column[row] != 0 for column in losses):
            raise UserError(
                f"{table.name}: row {row + 1} has a loss but no tokens",
                "a loss without tokens has no rate",
                "Correct num_tokens in that row",
            )


def _why_no_share(delta: Interval) -> str:
    """Empty where shares are defined; the rule is that of ``math.prior.shares``."""
    if not (math.isfinite(delta.lo) and math.isfinite(delta.hi)):
        return f"{UNKNOWN} ({delta.note})" if delta.note else UNKNOWN
    if delta.lo <= 0.0 <= delta.hi:
        return HOLDS_ZERO
    return IMPROVED if delta.value <= 0 else ""


def _shares(
    sums: list[PairSums], delta: Interval, reason: str, rng: np.random.Generator, groups: Any
) -> list[Interval]:
    """S_card and S_sym of every arm, from the same resamples."""
    if reason:
        nothing = unknown(math.nan, level=delta.level, n=delta.n, unit=delta.unit, note=reason)
        return [nothing] * (2 * len(sums))
    columns_D2 = [
        np.stack([part, pair.delta_D], axis=-1) for pair in sums for part in (pair.gain_new_D, pair.net_gain)
    ]
    return bootstrap_many(np.stack(columns_D2, axis=1), ratio_of_sums, rng=rng, groups=groups)

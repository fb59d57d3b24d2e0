"""Redrawn fits: totals on EVAL of the selected arms, refitted and selected again under random FIT weights.

Axes: G groups of near-duplicates, D documents, R draws, K columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.facts.prior import FULL, HALF, ONE_STEP, SELECTED
from stemmatics.math import prior
from stemmatics.math.prior import Statistics
from stemmatics.probe.prior.arms import Fitted


def draw_rows(
    evaluated: Statistics,
    fitted: Sequence[Fitted],
    group_of_fit_D: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    num_draws: int,
    num_refits: int,
) -> list[dict[str, Any]]:
    """Rows of ``prior_draws``: nats of all EVAL positions for each draw of FIT weights.

    The weights follow from ``rng`` alone, so that base and descendant, handed the same generator, get the
    same, and half of FIT gets those of all FIT. Near-duplicates get one weight. The penalty is chosen again
    in every draw. The first ``num_refits`` draws of all FIT are also fitted in full.
    """
    if not max(num_draws, num_refits):
        return []
    weight_RG = prior.bayesian_weights(rng, max(num_draws, num_refits), int(group_of_fit_D.max()) + 1)
    weight_RD = weight_RG[:, group_of_fit_D]
    rows: list[dict[str, Any]] = []
    for reading, refits in ((SELECTED, num_refits), (HALF, 0)):
        arms = {fit.arm: fit.selection for fit in fitted if fit.reading == reading and fit.selection}
        if not arms:
            continue
        # the arms of one reading share their text
        first = next(iter(arms.values()))
        redrawn = prior.redraw(
            (first.fit, first.held_out, evaluated),
            [selection.candidates for selection in arms.values()],
            first.free_K,
            weight_RD,
            num_refits=refits,
        )
        for arm, draws in zip(arms, redrawn, strict=True):
            for kind, nll in ((ONE_STEP, draws.nll_R), (FULL, draws.full_F)):
                rows += [
                    {"arm": arm, "reading": reading, "kind": kind, "draw": draw, "nll_sum": float(value)}
                    for draw, value in enumerate(nll)
                ]
    return rows

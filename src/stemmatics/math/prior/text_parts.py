"""Random parts of the FIT text, by whole near-duplicate groups: what selects, and smaller amounts of text.

Axes: D documents, G groups.

The order of a file is no random order (sources one after the other, times of writing), so a penalty that is
chosen on its end is chosen for the end. Groups are drawn instead, from a generator that base and descendant
share.
"""

from __future__ import annotations

import numpy as np

from stemmatics.math.prior.statistics import Integers, Mask

HELD_OUT_SHARE = 0.1


def held_out_documents(rng: np.random.Generator, group_D: Integers, share: float = HELD_OUT_SHARE) -> Mask:
    """Documents of a random ``share`` of the groups, (D,): at least one group, and never all.

    With one group there is nothing to draw from: all False.
    """
    groups = np.unique(group_D)
    num_held_out = min(max(1, round(share * len(groups))), len(groups) - 1)
    held_out = rng.choice(groups, size=num_held_out, replace=False)
    mask_D: Mask = np.isin(group_D, held_out)
    return mask_D


def part_of_documents(
    order_G: Integers, group_D: Integers, num_tokens_D: Integers, held_out_D: Mask, share: float
) -> Mask:
    """Documents that make up about a ``share`` of the tokens, (D,), in whole groups.

    ``order_G`` is a random order of the groups. Groups that fit and groups that select are taken in that
    order, each kind up to its own ``share`` (at least one group): both shrink alike, and a smaller part lies
    within a larger one.
    """
    position_G = np.argsort(order_G)
    keep_D = np.zeros(len(group_D), dtype=np.bool_)
    for side_D in (held_out_D, ~held_out_D):
        if not side_D.any():
            continue
        tokens_G = np.bincount(group_D[side_D], num_tokens_D[side_D], minlength=len(order_G))[order_G]
        before_G = np.cumsum(tokens_G) - tokens_G
        keep_D |= side_D & (before_G[position_G[group_D]] < share * tokens_G.sum())
    return keep_D

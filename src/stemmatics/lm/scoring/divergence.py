"""How far apart two models' predictions of the same token are, from the inputs of their heads.

Axes: N positions, B positions of a block, S ids of the shared support.

The logits of a block under both heads are held at once (340 positions and 49,152 ids: 134 MB) and visited
twice, since the Jensen-Shannon divergence needs both normalisers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

Floats = NDArray[np.float64]
# logits of one block and one head: 64 MB on a CPU
CPU_ELEMENTS = 1 << 24
GPU_ELEMENTS = 1 << 27
# seven times faster than visiting whole blocks, measured with 49,152 ids
_CACHED_ELEMENTS = 1 << 18
TOP = 5


@dataclass(frozen=True, slots=True, eq=False)
class TokenDivergence:
    """One value a position, in nats but for the last three.

    ``kl`` is KL(base || descendant), ``kl_reverse`` the other direction, ``js`` Jensen-Shannon's divergence;
    changes are the descendant's value less the base's. ``same_top1`` and ``top1_in_top5`` are 0 or 1: whether
    the base's most likely id is also the descendant's, or among its five most likely. ``set_to_zero`` counts
    the three divergences that came out negative by rounding.
    """

    kl: Floats
    kl_reverse: Floats
    js: Floats
    base_nll: Floats
    delta_logp: Floats
    delta_p: Floats
    base_entropy: Floats
    delta_entropy: Floats
    same_top1: Floats
    top1_in_top5: Floats
    set_to_zero: Floats

    def at(self, rows: NDArray[np.bool_] | slice) -> TokenDivergence:
        """Some positions."""
        return TokenDivergence(*(getattr(self, each.name)[rows] for each in fields(self)))


def rows_of_block(num_ids: int, device: torch.device) -> int:
    """Positions whose logits fit into a block."""
    return max(1, (CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS) // num_ids)


def _rows_in_cache(logits_BS: Tensor) -> int:
    """Rows that are visited together: on a CPU few enough that the dozen visits find them in its cache."""
    return (
        max(1, _CACHED_ELEMENTS // logits_BS.shape[1]) if logits_BS.device.type == "cpu" else len(logits_BS)
    )


@torch.inference_mode()
def divergence_of(
    base_logits: Callable[[int, int], Tensor],
    descendant_logits: Callable[[int, int], Tensor],
    target_N: Tensor,
    *,
    block: int,
) -> TokenDivergence:
    """Every position's divergence, ``block`` positions at a time.

    Args:
        base_logits: logits of positions ``start`` to ``stop`` on the support, (B, S), float32 or better.
        descendant_logits: the same of the descendant, ids in the same order.
        target_N: the next ids, numbered as the logits' columns.
        block: positions a block.
    """
    parts = []
    for start in range(0, len(target_N), block):
        stop = min(start + block, len(target_N))
        base_BS, descendant_BS = base_logits(start, stop), descendant_logits(start, stop)
        size = _rows_in_cache(base_BS)
        for first in range(0, stop - start, size):
            rows = slice(first, first + size)
            parts.append(_block(base_BS[rows], descendant_BS[rows], target_N[start:stop][rows]))
    if not parts:
        return TokenDivergence(*(np.empty(0) for _ in fields(TokenDivergence)))
    columns = zip(*parts, strict=True)
    return TokenDivergence(
        *(np.concatenate([part.cpu().double().numpy() for part in column]) for column in columns)
    )


def _block(base_BS: Tensor, descendant_BS: Tensor, target_B: Tensor) -> tuple[Tensor, ...]:
    """The values of one block, in the order of the fields of ``TokenDivergence``.

    Sums over ids are divided by the sum of the same weights, so that a rounded normaliser does not count.
    With r = ln p - ln q, JS = ln 2 - [sum (p + q) softplus(-r) - KL(q || p)] / 2.
    """
    target_B1 = target_B.to(base_BS.device)[:, None]
    top_p_B1 = base_BS.argmax(1, keepdim=True)
    base_BS = base_BS - base_BS.gather(1, top_p_B1)
    descendant_BS = descendant_BS - descendant_BS.amax(1, keepdim=True)
    # 0 where the base's most likely id is the descendant's too
    at_top_p_B1 = descendant_BS.gather(1, top_p_B1)
    z_p_B, z_q_B = (logits.gather(1, target_B1)[:, 0].cpu().double() for logits in (base_BS, descendant_BS))
    above_B = (descendant_BS > at_top_p_B1).sum(1)
    p_BS, q_BS = base_BS.exp(), descendant_BS.exp()
    sum_p_B, sum_q_B = _sum(p_BS), _sum(q_BS)
    log_p_B, log_q_B = sum_p_B.log(), sum_q_B.log()
    entropy_p_B = log_p_B - _sum(p_BS * base_BS.clamp(min=-1e4)) / sum_p_B
    entropy_q_B = log_q_B - _sum(q_BS * descendant_BS.clamp(min=-1e4)) / sum_q_B
    shift_B = log_p_B - log_q_B
    # ids that both models exclude (-inf less -inf) carry no weight on either side
    r_BS = torch.nan_to_num(base_BS - descendant_BS, nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    kl_B = _weighted(p_BS, r_BS) / sum_p_B - shift_B
    reverse_B = shift_B - _weighted(q_BS, r_BS) / sum_q_B
    r_BS = softplus(shift_B.to(r_BS.dtype).to(r_BS.device)[:, None] - r_BS, threshold=30.0)
    js_B = math.log(2) - (_weighted(p_BS, r_BS) / sum_p_B + _weighted(q_BS, r_BS) / sum_q_B - reverse_B) / 2
    divergences = torch.stack([kl_B, reverse_B, js_B])
    below_B = (divergences < 0).sum(0)
    kl_B, reverse_B, js_B = divergences.clamp(min=0.0)
    log_p_target_B, log_q_target_B = z_p_B - log_p_B, z_q_B - log_q_B
    return (
        kl_B,
        reverse_B,
        js_B,
        -log_p_target_B,
        log_q_target_B - log_p_target_B,
        log_q_target_B.exp() - log_p_target_B.exp(),
        entropy_p_B,
        entropy_q_B - entropy_p_B,
        at_top_p_B1[:, 0] == 0,
        above_B < TOP,
        below_B,
    )


def _sum(values_BS: Tensor) -> Tensor:
    """Sums over ids in float64, on the CPU; a device that lacks float64 adds in float32."""
    dtype = torch.float64 if values_BS.device.type in {"cpu", "cuda"} else torch.float32
    return values_BS.sum(1, dtype=dtype).cpu().double()


def _weighted(weights_BS: Tensor, values_BS: Tensor) -> Tensor:
    """Weighted sums; an infinite value without weight counts nothing."""
    product_BS = weights_BS * values_BS
    return _sum(torch.nan_to_num(product_BS, nan=0.0, posinf=torch.inf, neginf=-torch.inf))

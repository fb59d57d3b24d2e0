"""The summed cross-entropy of a frozen head, a block of positions at a time: full logits never exist.

Axes: N positions, B positions of a block, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stemmatics.lm.scoring.discover import discover_head
from stemmatics.lm.scoring.head import LinearHead

# logits of a pass that are at most so many are computed at once, as the model computes them
WHOLE_ELEMENTS = 1 << 24
# elements of a block of logits in float32: 16 MB on a CPU, 256 MB elsewhere
_CPU_ELEMENTS, _GPU_ELEMENTS = 1 << 22, 1 << 26


class _BlockedLoss(torch.autograd.Function):
    """Loss and gradient of the states in one visit: of a sum, the gradient only needs a factor later."""

    @staticmethod
    def forward(ctx: Any, states_ND: Tensor, target_N: Tensor, head: LinearHead, rows: int) -> Tensor:
        """The sum over positions in nats, float32."""
        gradient_ND = torch.empty_like(states_ND) if ctx.needs_input_grad[0] else None
        total = torch.zeros((), dtype=torch.float64)
        for start in range(0, len(states_ND), rows):
            part = slice(start, start + rows)
            loss, gradient_BD = _block(states_ND[part], target_N[part], head, gradient_ND is not None)
            total += loss.double().cpu()
            if gradient_ND is not None:
                gradient_ND[part] = gradient_BD
        ctx.save_for_backward(gradient_ND)
        return total.to(states_ND.device, torch.float32)

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, None, None, None]:  # type: ignore[override]
        """The stored gradient times that of the sum."""
        (gradient_ND,) = ctx.saved_tensors
        return (None if gradient_ND is None else gradient_ND * factor.to(gradient_ND.dtype)), None, None, None


def _block(
    states_BD: Tensor, target_B: Tensor, head: LinearHead, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Summed loss of a block, and the gradient of its states; logits in float32."""
    scale, cap = head.transform.scale, head.transform.cap
    logits_BV = functional.linear(states_BD, head.weight, head.bias).float()
    if cap is not None:
        logits_BV.mul_(scale / cap).tanh_()
        slope_BV = scale * (1 - logits_BV.square()) if with_gradient else None
        logits_BV.mul_(cap)
    else:
        slope_BV = None
        if scale != 1.0:
            logits_BV.mul_(scale)
    target_B1 = target_B[:, None]
    log_z_B = logits_BV.logsumexp(1)
    loss = (log_z_B - logits_BV.gather(1, target_B1)[:, 0]).sum()
    if not with_gradient:
        return loss, None
    # softmax less one-hot
    logits_BV.sub_(log_z_B[:, None]).exp_()
    logits_BV.scatter_add_(1, target_B1, torch.full_like(target_B1, -1, dtype=logits_BV.dtype))
    if slope_BV is not None:
        logits_BV.mul_(slope_BV)
    elif scale != 1.0:
        logits_BV.mul_(scale)
    return loss, logits_BV.to(head.weight.dtype) @ head.weight


def blocked_loss(states_ND: Tensor, target_N: Tensor, head: LinearHead, *, rows: int | None = None) -> Tensor:
    """Summed cross-entropy of the targets in nats, differentiable by the states; the head is not trained.

    Args:
        states_ND: inputs of the head.
        target_N: next ids.
        head: as ``lm.scoring.discover`` gives it.
        rows: positions a block; by default as many as fit 16 MB on a CPU and 256 MB elsewhere.
    """
    elements = _CPU_ELEMENTS if states_ND.device.type == "cpu" else _GPU_ELEMENTS
    rows = rows or max(1, elements // head.num_ids)
    loss: Tensor = _BlockedLoss.apply(states_ND, target_N, head, rows)
    return loss


def frozen_head(model: nn.Module, context_length: int) -> LinearHead | None:
    """The head for blocks; None where it is trained, carries an adapter, or is not a linear one."""
    if any(weight.requires_grad for weight in model.get_output_embeddings().parameters()):
        return None
    return discover_head(model, context_length)

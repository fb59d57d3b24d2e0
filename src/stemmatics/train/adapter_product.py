"""The product of a linear layer with a low-rank adapter as a single step of autograd.

Axes: N positions, I inputs, O outputs, R rank.

PEFT computes ``x W' + s (x A') B'`` in five steps, each of which keeps what it needs for the backward pass;
for narrow models the steps themselves take most of the time. Here the layer keeps x and x A' alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional

ADAPTER = "default"


class _AdapterProduct(torch.autograd.Function):
    """The layer's product in the precision of its weights, the adapter's in the adapter's own."""

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any,
        x: Tensor,
        weight_OI: Tensor,
        bias_O: Tensor | None,
        a_RI: Tensor,
        b_OR: Tensor,
        scale: float,
    ) -> Tensor:
        """X W' + bias + s (X A') B'."""
        x_NI = x.reshape(-1, x.shape[-1])
        # autocast would compute the adapter in half precision, and the backward pass knows nothing of it
        with _without_autocast(x.device.type):
            low_NR = x_NI.to(a_RI.dtype) @ a_RI.T
            out_NO = functional.linear(x_NI.to(weight_OI.dtype), weight_OI, bias_O)
            if out_NO.dtype == b_OR.dtype:
                out_NO.addmm_(low_NR, b_OR.T, alpha=scale)
            else:
                out_NO = (out_NO + scale * (low_NR @ b_OR.T)).to(out_NO.dtype)
        ctx.save_for_backward(x_NI, low_NR, weight_OI, a_RI, b_OR)
        ctx.scale, ctx.shape = scale, x.shape
        return out_NO.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Gradients of x, A and B; the layer's own weights are frozen."""
        x_NI, low_NR, weight_OI, a_RI, b_OR = ctx.saved_tensors
        gradient_NO = gradient.reshape(-1, gradient.shape[-1])
        scaled_NO = gradient_NO.to(b_OR.dtype)
        low_gradient_NR = (scaled_NO @ b_OR).mul_(ctx.scale)
        b_gradient = (scaled_NO.T @ low_NR).mul_(ctx.scale)
        a_gradient = low_gradient_NR.T @ x_NI.to(a_RI.dtype)
        x_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = gradient_NO.to(weight_OI.dtype) @ weight_OI
            if x_gradient.dtype == a_RI.dtype:
                x_gradient.addmm_(low_gradient_NR, a_RI)
            else:
                x_gradient = x_gradient + low_gradient_NR @ a_RI
            x_gradient = x_gradient.to(x_NI.dtype).view(ctx.shape)
        return x_gradient, None, None, a_gradient, b_gradient, None


def _without_autocast(device_type: str) -> AbstractContextManager[None]:
    if not torch.amp.is_autocast_available(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)


def fuse_adapters(adapted: PeftModel) -> int:
    """Let every plain adapter of a linear layer compute in a single step; returns how many do.

    Layers with dropout, another variant, several adapters or a trained bias keep PEFT's own steps.
    """
    num_fused = 0
    for layer in adapted.modules():
        if type(layer) is LoraLinear and _is_plain(layer):
            layer.forward = _forward_of(layer)
            num_fused += 1
    return num_fused


def _is_plain(layer: Any) -> bool:
    base = layer.base_layer
    return (
        type(base) is nn.Linear
        and list(layer.lora_A) == [ADAPTER]
        and isinstance(layer.lora_dropout[ADAPTER], nn.Identity)
        and layer.lora_B[ADAPTER].bias is None
        and not layer.lora_variant
        and not any(weight.requires_grad for weight in base.parameters())
    )


def _forward_of(layer: Any) -> Any:
    base, scale = layer.base_layer, float(layer.scaling[ADAPTER])
    a, b = layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]

    def forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
        if layer.disable_adapters or layer.merged:
            return type(layer).forward(layer, x)
        out: Tensor = _AdapterProduct.apply(x, base.weight, base.bias, a.weight, b.weight, scale)
        return out

    return forward

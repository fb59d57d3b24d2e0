"""Determines how a model computes its logits from its hidden states, by probing the model.

There is no list of architectures: the head is temporarily replaced, by a function that captures its
input, or by known outputs that show what the model does after its head. The result is checked against
the model's own logits on a few tokens.

Axes: B rows, L positions of a row, D width, V vocabulary, G points of a grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.head import LinearHead, Transform

NUM_PROBE_TOKENS = 16


def call_arguments(model: nn.Module) -> dict[str, Any]:
    """Arguments that turn off the cache and auxiliary outputs, if the model has them."""
    known: Mapping[str, Any] = inspect.signature(model.forward).parameters
    return {name: False for name in ("use_cache", "output_router_logits") if name in known}


@contextmanager
def replaced_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace the module's ``forward`` inside the block."""
    before = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if before is not None:
            module.forward = before


def capture_hidden(model: nn.Module, input_BL: Tensor, **arguments: Any) -> Tensor:
    """The inputs of the model's head, ``hidden_BLD``; the head itself is not computed.

    No attention mask is passed, and positions only in ``arguments``: rows start at position 0 and are
    padded on the right, which a causal model's text tokens do not attend to.

    Raises:
        RuntimeError: the model does not call its output embedding once.
    """
    caught: list[Tensor] = []

    def catch(hidden_BLD: Tensor, *_: object, **__: object) -> Tensor:
        caught.append(hidden_BLD)
        return hidden_BLD.new_zeros((*hidden_BLD.shape[:-1], 1))

    with replaced_forward(model.get_output_embeddings(), catch):
        model(input_BL, **call_arguments(model), **arguments)
    if len(caught) != 1 or caught[0].shape[:2] != input_BL.shape:
        message = "the output embedding was not called once with a hidden state for each position"
        raise RuntimeError(message)
    return caught[0]


def read_transform(model: nn.Module, input_BL: Tensor) -> Transform | None:
    """What the model does to the head's output, found by replacing that output with known numbers.

    None if it is not a scale and soft cap.
    """
    powers = 2.0 ** torch.arange(-10, 15, dtype=torch.float32)
    grid_G = torch.cat([powers, -powers, torch.zeros(1)])

    def stand_in(hidden_BLD: Tensor, *_: object, **__: object) -> Tensor:
        return grid_G.to(hidden_BLD.device).expand(*hidden_BLD.shape[:-1], -1).clone()

    with replaced_forward(model.get_output_embeddings(), stand_in):
        logits = model(input_BL, **call_arguments(model)).logits
    if logits.shape[-1] != len(grid_G):
        return None
    logits_G = logits.reshape(-1, len(grid_G))[0].float().cpu()
    scale = float(logits_G[0] / grid_G[0])
    largest = float(logits_G[len(powers) - 1])
    linear = scale * float(powers[-1])
    transform = Transform(scale, None if abs(largest - linear) <= 1e-5 * abs(linear) else largest)
    ours_G = transform.apply_(grid_G.clone())
    return transform if torch.allclose(ours_G, logits_G, rtol=1e-5, atol=1e-5) else None


def _tolerance(logits: Tensor, dtype: torch.dtype) -> float:
    """Difference that rounding of the head's product in ``dtype`` can explain."""
    finite = logits[logits.isfinite()]
    largest = max(1.0, float(finite.abs().max())) if len(finite) else 1.0
    return largest * (2e-5 if dtype in (torch.float32, torch.float64) else 2.0**-6)


def discover_head(model: nn.Module, context_length: int) -> LinearHead | None:
    """The head that gives the model's own logits from its hidden states, checked on a few tokens.

    None if there is none (an unusual head, or something after it other than a scale and soft cap);
    callers then use the model's own logits.
    """
    module = model.get_output_embeddings()
    weight_VD = getattr(module, "weight", None)
    # A subclass may compute something else, and a quantised or adapted head does.
    if type(module) is not nn.Linear or not weight_VD.is_floating_point():
        return None
    num_tokens = min(NUM_PROBE_TOKENS, context_length)
    ids = (torch.arange(num_tokens, device=model.device) * 7919 + 1) % len(weight_VD)
    ids_1L = ids.remainder(model.get_input_embeddings().weight.shape[0])[None]
    with torch.inference_mode():
        expected = model(ids_1L, **call_arguments(model)).logits[0].float()
        try:
            transform = read_transform(model, ids_1L)
            hidden_LD = capture_hidden(model, ids_1L)[0]
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        if transform is None or expected.shape[-1] != len(weight_VD):
            return None
        bias_V = None if module.bias is None else module.bias.detach()
        head = LinearHead(weight_VD.detach(), bias_V, transform)
        ours = head.logits(hidden_LD).to(expected.device).float()
    # Where the model's own logits are NaN, ours must be too.
    agree = torch.allclose(ours, expected, rtol=0, atol=_tolerance(expected, weight_VD.dtype), equal_nan=True)
    return head if agree else None


def refuse_unless_causal(model: nn.Module, num_ids: int, context_length: int) -> None:
    """Raise UserError if later tokens change earlier logits: losses and padding rely on causality.

    Uses the median over positions, since in a mixture of experts other tokens may move a rounding
    error across a routing boundary.
    """
    num_text = min(8, context_length - 1)
    if num_text < 1 or num_ids < 2:
        return
    text_1L = (torch.arange(num_text, device=model.device)[None] * 31 + 3) % num_ids
    tail_2L = torch.tensor([[0], [num_ids - 1]], device=model.device).expand(
        -1, min(4, context_length - num_text)
    )
    with torch.inference_mode():
        # one pass for both tails: on a CPU a short pass costs as much as reading all weights
        rows_2L = torch.cat([text_1L.expand(2, -1), tail_2L], 1)
        ends = model(rows_2L, **call_arguments(model)).logits[:, :num_text]
    change = (ends[0].float() - ends[1].float()).abs().amax(1).median()
    if change > 1e-2 * max(1.0, float(ends[0].abs().max())):
        raise UserError(
            f"{type(model).__name__} is not a causal language model",
            "its predictions change with the tokens that come after them",
            "score a causal model (an encoder may need is_decoder in its config)",
        )

"""What memory a recovery takes, by part, from a config alone: no weight is read or made.

The model is built on torch's ``meta`` device, where tensors have shapes and no values, and one pass of it
tells which tensors autograd keeps for the backward pass. So every architecture is counted as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from stemmatics.core.stages import RecoveryRecipe
from stemmatics.train.adapter_product import fuse_adapters
from stemmatics.train.lora import with_adapters

_FLOAT = 4


@dataclass(frozen=True)
class RecoveryMemory:
    """Bytes by part at the peak of an update.

    ``optimizer`` is Adam's two moments and the gradients of the adapters, all float32. ``activations`` are
    what the forward pass keeps, ``work`` what the backward pass of one layer and the loss need beside them.
    """

    weights: int
    adapters: int
    optimizer: int
    activations: int
    work: int

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.adapters + self.beside_model

    @property
    def beside_model(self) -> int:
        """What comes to a model and adapters that are in memory."""
        return self.optimizer + self.activations + self.work


def is_checkpointing(model: Any) -> bool:
    """Whether activations are computed again in the backward pass."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return any(getattr(module, "gradient_checkpointing", False) for module in inner.modules())


def checkpoint_activations(model: Any) -> None:
    """Keep the inputs of layers only; the rest is computed again in the backward pass, with equal results."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def recovery_memory(
    config: Any,
    recipe: RecoveryRecipe,
    *,
    dtype: torch.dtype,
    num_positions: int,
    checkpointing: bool = False,
    trust_remote_code: bool = False,
) -> RecoveryMemory | None:
    """The parts for passes of ``num_positions`` tokens in rows of the recipe's length.

    Args:
        config: of transformers.
        recipe: its adapters and row length.
        dtype: of the frozen weights; adapters are float32.
        num_positions: tokens of a pass, at least one row.
        checkpointing: whether layers keep their inputs only.
        trust_remote_code: run code that comes with the checkpoint.

    None where the model needs values to know its shapes, as mixtures of experts do.
    """
    try:
        return _counted(
            config, recipe, dtype, num_positions, checkpointing=checkpointing, trust=trust_remote_code
        )
    except (RuntimeError, NotImplementedError):
        return None


def _counted(
    config: Any,
    recipe: RecoveryRecipe,
    dtype: torch.dtype,
    num_positions: int,
    *,
    checkpointing: bool,
    trust: bool,
) -> RecoveryMemory:
    text = config.get_text_config()
    length = min(recipe.max_length, num_positions)
    num_rows = max(1, num_positions // length)
    with torch.device("meta"), _flash_attention():
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa", trust_remote_code=trust
        )
        model.requires_grad_(requires_grad=False)
        weights = _size(model)
        adapted = with_adapters(model, recipe.lora)
        fuse_adapters(adapted)
        # adapters are float32 whatever the weights are
        adapters = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad) * _FLOAT
        adapted.train()
        kept = _kept_bytes(adapted, num_rows, length)
        if checkpointing:
            checkpoint_activations(adapted)
            activations = _kept_bytes(adapted, num_rows, length)
        else:
            activations = kept
    num_layers = int(text.num_hidden_layers)
    states = num_rows * length * int(text.hidden_size) * dtype.itemsize
    # a layer's activations are made again where they were not kept, and gradients pass through it
    layer = kept // num_layers
    work = (layer if checkpointing else layer // 2) + 3 * states
    return RecoveryMemory(weights, adapters, 3 * adapters, activations, work)


def _size(model: torch.nn.Module) -> int:
    tensors = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _kept_bytes(adapted: Any, num_rows: int, length: int) -> int:
    """Bytes that autograd keeps of one pass, each storage once and no weight."""
    model = adapted.get_base_model()
    weight_storages = {_identity(tensor) for tensor in [*model.parameters(), *model.buffers()]}
    kept: dict[int, Any] = {}

    def note(tensor: Tensor) -> Tensor:
        if _identity(tensor) not in weight_storages:
            kept[_identity(tensor)] = tensor.untyped_storage()
        return tensor

    ids = torch.zeros((num_rows, length), dtype=torch.long, device="meta")
    mask = torch.ones((num_rows, 1, length, length), dtype=torch.bool, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=mask, logits_to_keep=1, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


def _identity(tensor: Tensor) -> int:
    """Of a tensor's storage; on ``meta`` all pointers to data are 0."""
    return tensor.untyped_storage()._cdata  # noqa: SLF001 - torch has no public one


class _Attention(torch.autograd.Function):
    """Keeps what a fused kernel keeps: its inputs, its output and a normaliser a position."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """An output of the right shape."""
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:  # type: ignore[override]
        """Never called: nothing is computed on ``meta``."""
        raise NotImplementedError


@contextmanager
def _flash_attention() -> Iterator[None]:
    """Let torch's attention keep no matrix of positions by positions, as its kernels do on real devices."""
    original = functional.scaled_dot_product_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Tensor:
        out: Tensor = _Attention.apply(query, key, value)
        return out

    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original

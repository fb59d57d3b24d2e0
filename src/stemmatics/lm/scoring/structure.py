"""What is found out about a model before its first document: its head, causality, whether rows can be packed.

Each answer takes passes of the whole model, so it is remembered as long as the model lives.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from stemmatics.lm.scoring.discover import call_arguments, discover_head, refuse_unless_causal
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.packed import can_be_packed


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """``head`` is None where the model's own logits must be taken; ``num_ids`` is their width.

    ``packed``: rows of several lengths may share one pass. ``thresholds``: lengths at which the model changes
    how it computes a whole pass; rows on both sides of one never share a pass.
    """

    head: LinearHead | None
    num_embeddings: int
    num_ids: int
    packed: bool
    thresholds: tuple[int, ...] = ()


_KNOWN: WeakKeyDictionary[nn.Module, dict[Hashable, Structure]] = WeakKeyDictionary()


def structure_of(model: nn.Module, context_length: int, window_size: int) -> Structure:
    """The answers for windows of this size.

    They hold for other weights in the same place too; another head, attention, precision or device, or a
    forward of the model that was replaced, is examined again.

    Raises:
        UserError: the model is not causal.
    """
    known = _KNOWN.setdefault(model, {})
    state = (context_length, window_size, model.training, *_state(model))
    if state not in known:
        known[state] = _examine(model, context_length, window_size)
    return known[state]


def _state(model: nn.Module) -> tuple[Hashable, ...]:
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    return (
        id(head),
        None if weight is None else weight.data_ptr(),
        tuple(id(module.__dict__.get("forward")) for module in (model, head) if module is not None),
        str(model.dtype),
        str(model.device),
        getattr(model.config, "_attn_implementation", None),
    )


def _examine(model: nn.Module, context_length: int, window_size: int) -> Structure:
    head = discover_head(model, context_length)
    num_embeddings = int(model.get_input_embeddings().weight.shape[0])
    num_ids = head.num_ids if head else _own_width(model)
    num_known = min(num_ids, num_embeddings)
    refuse_unless_causal(model, num_known, context_length)
    thresholds = thresholds_of(model.config)
    packed = head is not None and can_be_packed(model, num_known, window_size, thresholds)
    return Structure(head, num_embeddings, num_ids, packed, thresholds)


def thresholds_of(config: Any) -> tuple[int, ...]:
    """Lengths that the config names as those of an earlier stage of training, in increasing order.

    Long RoPE chooses the frequencies of all positions by the longest row of a pass: over the original
    length they are others. Read from every RoPE setting, whatever its type and layer.
    """
    return tuple(sorted(set(_original_lengths(config.to_dict()))))


def _original_lengths(fields: Any) -> Iterator[int]:
    if isinstance(fields, dict):
        for name, value in fields.items():
            if name == "original_max_position_embeddings" and isinstance(value, int | float):
                yield int(value)
            else:
                yield from _original_lengths(value)


def _own_width(model: nn.Module) -> int:
    with torch.inference_mode():
        one_11 = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        return int(model(one_11, **call_arguments(model)).logits.shape[-1])

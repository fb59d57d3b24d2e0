"""Rows of several lengths in one forward pass, each with its own attention.

The rows are concatenated into a single row of positions, so that all products except attention work on
one long matrix with almost no padding; attention is computed by block, where a block is rows padded to
one length. Whether a model supports this is determined by probing it, not by a list.

Axes: N positions of a pass, H heads, D width.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from stemmatics.lm.scoring.discover import capture_hidden

# (rows, positions of each)
Block = tuple[int, int]
# transformers makes no mask for an attention without a registered mask function; none is needed here.
NAME = "stemmatics_blocks"
_BLOCKS: ContextVar[tuple[Block, ...]] = ContextVar("blocks")
_PROBE_BLOCKS = ((2, 5), (1, 3))


def _attention_by_block(
    module: nn.Module, query_1HND: Tensor, key_1HND: Tensor, value_1HND: Tensor, mask: object, **kwargs: Any
) -> tuple[Tensor, None]:
    """Causal attention within each row. Returns ``1 x N x H x D``, as transformers expects."""
    if mask is not None:
        message = "a mask was made for rows that need none"
        raise ValueError(message)
    done, at = [], 0
    for rows, length in _BLOCKS.get():
        parts = [
            state[0, :, at : at + rows * length].unflatten(1, (rows, length)).transpose(0, 1)
            for state in (query_1HND, key_1HND, value_1HND)
        ]
        done.append(sdpa_attention_forward(module, *parts, None, **kwargs)[0].flatten(0, 1))
        at += rows * length
    return torch.cat(done)[None], None


AttentionInterface.register(NAME, _attention_by_block)


@contextmanager
def _by_block(model: nn.Module, blocks: Sequence[Block]) -> Iterator[None]:
    before = model.config._attn_implementation  # noqa: SLF001 - the public setter walks all modules, each pass
    token = _BLOCKS.set(tuple(blocks))
    model.config._attn_implementation = NAME  # noqa: SLF001 - as above
    try:
        yield
    finally:
        model.config._attn_implementation = before  # noqa: SLF001 - as above
        _BLOCKS.reset(token)


def hidden_by_block(model: nn.Module, ids_N: Tensor, blocks: Sequence[Block]) -> Tensor:
    """The head's inputs at every position, ``hidden_ND``, of concatenated rows."""
    position_N = torch.cat([torch.arange(length).repeat(rows) for rows, length in blocks])
    with _by_block(model, blocks):
        return capture_hidden(model, ids_N[None], position_ids=position_N[None].to(ids_N.device))[0]


def can_be_packed(model: nn.Module, num_ids: int, longest: int, thresholds: Sequence[int] = ()) -> bool:
    """Whether concatenated rows are computed independently, each with its own positions.

    Examined with short rows, and with rows just over each threshold that rows can exceed. Only for sdpa
    attention on a CPU: on a GPU the many small calls would be slow. False for a window of
    attention shorter than the longest row, a model whose layers mix positions in other ways (state
    spaces, convolutions), and one without position ids.
    """
    config = model.config
    if model.device.type != "cpu" or config._attn_implementation != "sdpa":  # noqa: SLF001 - no public reader
        return False
    if "position_ids" not in inspect.signature(model.forward).parameters or _span(config) < longest:
        return False
    if longest < max(length for _, length in _PROBE_BLOCKS) or num_ids < 2:
        return False
    over = [((1, length + 1), (1, length + 2)) for length in thresholds if length + 2 <= longest]
    return all(_rows_are_apart(model, num_ids, blocks) for blocks in (_PROBE_BLOCKS, *over))


def _rows_are_apart(model: nn.Module, num_ids: int, blocks: Sequence[Block]) -> bool:
    """Whether packed rows have the states of rows in a pass of their own, and ignore one another."""
    num_positions, first = sum(rows * length for rows, length in blocks), blocks[0][1]
    ids_N = (torch.arange(num_positions) * 7919 + 1) % num_ids
    other_N = torch.cat([(ids_N[:first] + 1) % num_ids, ids_N[first:]])
    try:
        with torch.inference_mode():
            packed_ND = hidden_by_block(model, ids_N, blocks).float()
            moved_ND = hidden_by_block(model, other_N, blocks).float()
            sizes = [rows * length for rows, length in blocks]
            alone_ND = torch.cat(
                [
                    capture_hidden(model, ids_F.view(rows, length)).flatten(0, 1).float()
                    for ids_F, (rows, length) in zip(ids_N.split(sizes), blocks, strict=True)
                ]
            )
    # A model that fails on such positions or attention is run in the usual way.
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, LookupError):
        return False
    rounding = torch.finfo(model.dtype).eps * float(alone_ND.abs().max())
    same = (packed_ND - alone_ND).abs().max() <= 100 * rounding
    independent = (packed_ND[first:] - moved_ND[first:]).abs().max() <= 10 * rounding
    return bool(same and independent)


def _span(config: Any) -> float:
    """The shortest attention window of any layer."""
    fields = config.get_text_config().to_dict()
    sizes = [
        value for name, value in fields.items() if name.endswith(("window", "window_size", "chunk_size"))
    ]
    # a flag such as use_sliding_window is an int, too
    return min((size for size in sizes if type(size) is int and size > 0), default=float("inf"))

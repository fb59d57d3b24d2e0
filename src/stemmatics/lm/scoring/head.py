"""From hidden states to losses, one block of the vocabulary at a time.

A model's head is a matrix product, optionally with a scale and a soft cap. `LinearHead` computes it
with a running log-sum-exp, so that logits of all tokens and all ids never exist at once.

Axes: N scored positions, D width, V vocabulary, K ids of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Elements of one block of logits, and its ids: on a CPU few enough to stay in its cache between passes.
CPU_BLOCK_ELEMENTS = 1 << 20
CPU_BLOCK_IDS = 1024
GPU_BLOCK_ELEMENTS = 1 << 26
GPU_BLOCK_IDS = 4096


@dataclass(frozen=True, slots=True)
class Transform:
    """logit -> cap * tanh(scale * logit / cap), or scale * logit without a cap."""

    scale: float = 1.0
    cap: float | None = None

    def apply_(self, logits: Tensor) -> Tensor:
        """Change ``logits`` in place and return them."""
        if self.cap is not None:
            return logits.mul_(self.scale / self.cap).tanh_().mul_(self.cap)
        return logits if self.scale == 1.0 else logits.mul_(self.scale)


@dataclass(frozen=True, slots=True)
class HeadScores:
    """One value per scored position, float32 or better; None if not requested."""

    nll: Tensor
    excluded_nll: Tensor | None = None
    entropy: Tensor | None = None
    top_1: Tensor | None = None


class RunningScores:
    """Log-sum-exp and related sums, from one pass over blocks of logits.

    Sums are relative to the largest logit so far and rescaled when it grows (Milakov and
    Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3).
    """

    def __init__(
        self, target_N: Tensor, dtype: torch.dtype, support_V: Tensor | None, want: frozenset[str]
    ) -> None:
        self.target_N = target_N
        self.sides_V2 = None
        if support_V is not None:
            self.sides_V2 = torch.stack([support_V, ~support_V], dim=1).to(target_N.device, dtype)
        self.want = want
        # The smallest finite number, since -inf minus -inf is NaN.
        self.max_N = torch.full(target_N.shape, torch.finfo(dtype).min, dtype=dtype, device=target_N.device)
        self.sum_N = torch.zeros_like(self.max_N)
        self.logit_N = torch.full_like(self.max_N, torch.nan)
        self.sides_N2 = self.max_N.new_zeros((len(target_N), 2))
        self.weighted_N = torch.zeros_like(self.max_N)
        self.top_1_N = torch.zeros_like(target_N)

    def add(self, first_id: int, logits_NK: Tensor) -> None:
        """Add the logits of ids from ``first_id`` on. Overwrites ``logits_NK``."""
        num_ids = logits_NK.shape[1]
        offset_N = self.target_N - first_id
        inside_N = (offset_N >= 0) & (offset_N < num_ids)
        target_logit_N = logits_NK.gather(1, offset_N.clamp(0, num_ids - 1)[:, None])[:, 0]
        self.logit_N = torch.where(inside_N, target_logit_N, self.logit_N)
        if "top_1" in self.want:
            block_max_N, block_top_N = logits_NK.max(1)
            self.top_1_N = torch.where(block_max_N > self.max_N, block_top_N + first_id, self.top_1_N)
        else:
            block_max_N = logits_NK.amax(1)
        max_N = torch.maximum(self.max_N, block_max_N)
        rescale_N = (self.max_N - max_N).exp()
        logits_NK.sub_(max_N[:, None])
        if "entropy" in self.want:
            # 0 * -inf is NaN, while exp(-1e4) is 0 like exp(-inf).
            below_NK = logits_NK.clamp(min=-1e4)
            moved_N = rescale_N * (self.weighted_N + (self.max_N - max_N).clamp(min=-1e4) * self.sum_N)
            self.weighted_N = moved_N + below_NK.mul_(logits_NK.exp_()).sum(1)
        else:
            logits_NK.exp_()
        self.sum_N = self.sum_N * rescale_N + logits_NK.sum(1)
        if self.sides_V2 is not None:
            sides_K2 = self.sides_V2[first_id : first_id + num_ids]
            self.sides_N2 = self.sides_N2 * rescale_N[:, None] + logits_NK @ sides_K2
        self.max_N = max_N

    def result(self) -> HeadScores:
        """The scores after the last block."""
        excluded_N = None
        if self.sides_V2 is not None:
            # The difference of the two log-sum-exps, without cancellation.
            excluded_N = torch.log1p(self.sides_N2[:, 1] / self.sides_N2[:, 0])
        log_sum_N = self.sum_N.log()
        return HeadScores(
            nll=log_sum_N + (self.max_N - self.logit_N),
            excluded_nll=excluded_N,
            entropy=log_sum_N - self.weighted_N / self.sum_N if "entropy" in self.want else None,
            top_1=self.top_1_N if "top_1" in self.want else None,
        )


def _split(total: int, at_most: int) -> Iterator[tuple[int, int]]:
    """(first, size) of as few near-equal pieces of at most ``at_most`` as possible."""
    num_pieces = max(1, -(-total // at_most))
    size = max(1, -(-total // num_pieces))
    for first in range(0, total, size):
        yield first, min(size, total - first)


def _join(pieces: list[HeadScores]) -> HeadScores:
    names = ("nll", "excluded_nll", "entropy", "top_1")
    columns = {name: [getattr(piece, name) for piece in pieces] for name in names}
    return HeadScores(**{name: torch.cat(parts) for name, parts in columns.items() if parts[0] is not None})


@dataclass(frozen=True, slots=True)
class LinearHead:
    """A head's weights (``weight`` is V x D, ``bias`` V) and what the model does to the product."""

    weight: Tensor
    bias: Tensor | None = None
    transform: Transform = Transform()

    @property
    def num_ids(self) -> int:
        """Rows of the head, including padding rows."""
        return self.weight.shape[0]

    def score(
        self,
        hidden_ND: Tensor,
        target_N: Tensor,
        *,
        support_V: Tensor | None = None,
        want: frozenset[str] = frozenset(),
    ) -> HeadScores:
        """Losses of the targets, in nats.

        Args:
            hidden_ND: the head's inputs.
            target_N: the next ids.
            support_V: ids that may have probability; None for all.
            want: any of ``entropy`` and ``top_1``; each costs another pass over the logits.

        Returns:
            Natural-log losses over all ids, and ``excluded_nll``: log-sum-exp over all ids less
            that over the support.
        """
        device = self.weight.device
        hidden_ND, target_N = hidden_ND.to(device), target_N.to(device)
        on_cpu = device.type == "cpu"
        elements = CPU_BLOCK_ELEMENTS if on_cpu else GPU_BLOCK_ELEMENTS
        block_ids = min(CPU_BLOCK_IDS if on_cpu else GPU_BLOCK_IDS, elements)
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        buffer = hidden_ND.new_empty(elements, dtype=self.weight.dtype)
        pieces = []
        for first, size in _split(len(hidden_ND), max(1, elements // min(block_ids, self.num_ids))):
            running = RunningScores(target_N[first : first + size], dtype, support_V, want)
            for first_id, num_ids in _split(self.num_ids, block_ids):
                running.add(
                    first_id, self._logits(hidden_ND[first : first + size], first_id, num_ids, buffer)
                )
            pieces.append(running.result())
        return _join(pieces)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """All logits at once, float32 or better; for few positions only."""
        hidden_ND = hidden_ND.to(self.weight.device)
        buffer = hidden_ND.new_empty(len(hidden_ND) * self.num_ids, dtype=self.weight.dtype)
        return self._logits(hidden_ND, 0, self.num_ids, buffer)

    def _logits(self, hidden_ND: Tensor, first_id: int, num_ids: int, buffer: Tensor) -> Tensor:
        ids = slice(first_id, first_id + num_ids)
        hidden_ND = hidden_ND.to(self.weight.dtype)
        weight_DK = self.weight[ids].t()
        if hidden_ND.device.type == "cuda" and hidden_ND.dtype in (torch.float16, torch.bfloat16):
            logits_NK = torch.mm(hidden_ND, weight_DK, out_dtype=torch.float32)
        elif hidden_ND.dtype == torch.float16:
            # Logits may exceed 65,504, and on a CPU there is no product with float32 output.
            logits_NK = torch.mm(hidden_ND.float(), weight_DK.float())
        else:
            out_NK = buffer[: len(hidden_ND) * num_ids].view(len(hidden_ND), num_ids)
            logits_NK = torch.mm(hidden_ND, weight_DK, out=out_NK)
        logits_NK = logits_NK.to(torch.promote_types(logits_NK.dtype, torch.float32))
        if self.bias is not None:
            logits_NK.add_(self.bias[ids])
        return self.transform.apply_(logits_NK)


def score_logits(
    logits_NV: Tensor,
    target_N: Tensor,
    *,
    support_V: Tensor | None = None,
    want: frozenset[str] = frozenset(),
) -> HeadScores:
    """As `LinearHead.score`, from a model's own logits."""
    dtype = torch.promote_types(logits_NV.dtype, torch.float32)
    running = RunningScores(target_N.to(logits_NV.device), dtype, support_V, want)
    for first_id, num_ids in _split(logits_NV.shape[1], GPU_BLOCK_IDS):
        running.add(first_id, logits_NV[:, first_id : first_id + num_ids].to(dtype, copy=True))
    return running.result()

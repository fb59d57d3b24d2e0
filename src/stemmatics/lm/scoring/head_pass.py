"""From the head inputs of a corpus to the statistics for fits of a correction, in bounded memory.

Axes: N positions, B rows of a block, D width, V vocabulary, S supported ids, K columns, J inverse
temperatures.

Ids are compact here: 0..S-1 are the ids of the support, in the order of ``ids_S``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.device_passes import passes_on
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_states import States
from stemmatics.math.prior import (
    IN_REST,
    NODES_PER_DOUBLING,
    Rest,
    Statistics,
    node_inverse_temperatures,
    uncorrected_node,
)

# Elements of one block of logits: 64 MB on a CPU.
_CPU_ELEMENTS = 1 << 24
_GPU_ELEMENTS = 1 << 28
# Elements that are raised to all powers at once, so that they stay in a core's cache.
_POWER_ELEMENTS = 1 << 19
# Adds nothing to a sum whose largest term is 1, and its square is not subnormal, which would be slow.
_NOTHING = 2.0**-60
# Columns are stored in float32 up to here, above in float16: log-probabilities are accurate near 0.
FLOAT32_BYTES = 1 << 31
# Logits of all ids are stored in memory up to here, above they are recomputed on demand.
DENSE_BYTES = 1 << 28


def restricted(head: LinearHead, ids_S: NDArray[np.int64]) -> LinearHead:
    """The head restricted to the rows of some ids, in their order."""
    if len(ids_S) == head.num_ids:
        return head
    ids = torch.from_numpy(ids_S).to(head.weight.device)
    return replace(head, weight=head.weight[ids], bias=None if head.bias is None else head.bias[ids])


@dataclass(frozen=True, eq=False)
class Positions:
    """Scored positions of one split, documents in order: inputs of the head and next ids.

    ``index_D`` are the documents' indices in the corpus; documents without a position are left out.
    """

    states: States
    target_N: NDArray[np.int64]
    document_N: NDArray[np.int64]
    index_D: NDArray[np.int64]

    @property
    def num_positions(self) -> int:
        """N."""
        return len(self.target_N)

    def mean_state(self) -> tuple[NDArray[np.float64], float]:
        """Mean state (D,) and mean squared norm, in float64, a block at a time."""
        total_D, squares, size = np.zeros(self.states.width), 0.0, 4096
        for start in range(0, self.num_positions, size):
            rows_BD = self.states.rows(start, min(start + size, self.num_positions)).numpy()
            total_D += rows_BD.sum(0, dtype=np.float64)
            squares += float(np.square(rows_BD, dtype=np.float64).sum())
        return total_D / self.num_positions, squares / self.num_positions


class HeadRows:
    """Logits of all ids on demand, one block of rows at a time; the last block is cached.

    Small requests for neighbouring rows, as fits make them, share one product with the head.
    """

    def __init__(self, head: LinearHead, states: States) -> None:
        self._head = head
        self._states = states
        self._size = rows_of_block(head)
        self._start = self._stop = 0
        self._block_BS: NDArray[np.float32] = np.empty((0, head.num_ids), dtype=np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """(positions, ids)."""
        return (self._states.num_positions, self._head.num_ids)

    @property
    def dtype(self) -> Any:
        """float32."""
        return np.dtype(np.float32)

    def __getitem__(self, rows: slice, /) -> NDArray[np.float32]:
        """Logits of a range of rows, (B, S)."""
        if not (self._start <= rows.start and rows.stop <= self._stop):
            self._start = rows.start
            self._stop = min(max(rows.stop, rows.start + self._size), self._states.num_positions)
            self._block_BS = _logits(self._head, self._states, self._start, self._stop).cpu().numpy()
        return self._block_BS[rows.start - self._start : rows.stop - self._start]


def rows_of_block(head: LinearHead) -> int:
    """Number of rows whose logits fit into a block."""
    elements = _CPU_ELEMENTS if head.weight.device.type == "cpu" else _GPU_ELEMENTS
    return max(1, elements // head.num_ids)


@torch.inference_mode()
def _logits(head: LinearHead, states: States, start: int, stop: int) -> Tensor:
    return head.logits(states.rows(start, stop)).float()


def dense(head: LinearHead, positions: Positions) -> Statistics:
    """Every id as a column: stored if small, else recomputed in each pass."""
    num, num_ids = positions.num_positions, head.num_ids
    rows: Any = HeadRows(head, positions.states)
    if num * num_ids * 4 <= DENSE_BYTES:
        logits_NS = np.empty((num, num_ids), dtype=np.float32)
        size = rows_of_block(head)
        for start in range(0, num, size):
            logits_NS[start : start + size] = rows[slice(start, min(start + size, num))]
        rows = logits_NS
    return Statistics(
        rows,
        positions.target_N,
        positions.document_N,
        np.arange(num_ids, dtype=np.int64),
        num_documents=len(positions.index_D),
        make_passes=passes_on(head.weight.device),
    )


@torch.inference_mode()
def reduced(head: LinearHead, positions: Positions, ids_K: NDArray[np.int64], path: Path) -> Statistics:
    """K columns as a memory-mapped file at ``path``, and the log-partition of all other ids.

    One pass over the states: for each block of rows the logits of all ids are computed and the columns
    are written. Besides the file, memory has one block of logits and J numbers per position.
    """
    num, num_ids = positions.num_positions, head.num_ids
    if not num:
        raise UserError("A split of the corpus is empty", "no position is scored", "use more documents")
    if len(ids_K) == num_ids:
        return dense(head, positions)
    columns = Columns(positions, ids_K, num_ids, path)
    size = rows_of_block(head)
    for start in range(0, num, size):
        part = slice(start, min(start + size, num))
        columns.add(part, _logits(head, positions.states, part.start, part.stop))
    return columns.statistics()


class Columns:
    """Statistics that are made block by block from logits of all ids; the columns go to a file."""

    def __init__(self, positions: Positions, ids_K: NDArray[np.int64], num_ids: int, path: Path) -> None:
        num = positions.num_positions
        self._positions, self._ids_K, self._path = positions, ids_K, path
        self._dtype = np.float32 if num * len(ids_K) * 4 <= FLOAT32_BYTES else np.float16
        self._columns_NK = np.memmap(path, self._dtype, "w+", shape=(num, len(ids_K)))
        self._column_S = np.full(num_ids, IN_REST, dtype=np.int64)
        self._column_S[ids_K] = np.arange(len(ids_K))
        self._log_z_NJ = np.empty((num, len(node_inverse_temperatures())))
        self._target_logit_N = np.empty(num)
        self._device = torch.device("cpu")

    def add(self, part: slice, logits_BS: Tensor) -> None:
        """The logits of a range of rows; they are overwritten. Fits run on the device that they are on."""
        self._device = logits_BS.device
        ids = torch.from_numpy(self._ids_K).to(logits_BS.device)
        target_B1 = torch.from_numpy(self._positions.target_N[part]).to(logits_BS.device)[:, None]
        target_B = logits_BS.gather(1, target_B1)[:, 0].cpu().double().numpy()
        columns_BK = logits_BS.index_select(1, ids)
        # log-probabilities: the values that matter are then near 0, where storage is most accurate
        columns_B = columns_BK.logsumexp(1).cpu().double().numpy()
        if len(ids) == logits_BS.shape[1]:
            log_total_B = columns_B.astype(np.float32)
        else:
            log_z_BJ = _rest(logits_BS.index_fill_(1, ids, -torch.inf))
            # one shift for columns, target and rest, rounded to float32
            log_total_B = np.logaddexp(columns_B, log_z_BJ[:, uncorrected_node()]).astype(np.float32)
            self._log_z_NJ[part] = log_z_BJ - log_total_B[:, None] * node_inverse_temperatures()
        self._columns_NK[part] = columns_BK.cpu().numpy() - log_total_B[:, None]
        self._target_logit_N[part] = target_B - log_total_B

    def statistics(self) -> Statistics:
        """What was added."""
        self._columns_NK.flush()
        shape = self._columns_NK.shape
        rows_NK = np.memmap(self._path, self._dtype, "r", shape=shape)
        complete = shape[1] == len(self._column_S)
        return Statistics(
            rows_NK,
            self._column_S[self._positions.target_N],
            self._positions.document_N,
            self._ids_K,
            num_documents=len(self._positions.index_D),
            target_logit_N=None if complete else self._target_logit_N,
            rest=None if complete else Rest(self._log_z_NJ),
            make_passes=passes_on(self._device),
        )


def _rest(rest_BS: Tensor) -> NDArray[np.float64]:
    """The log of sum exp(beta z) at each node, (B, J). Overwrites ``rest_BS``, in which columns are -inf.

    exp is taken at the first ``NODES_PER_DOUBLING`` nodes; every later one is twice an earlier one, and
    its terms are squares.
    """
    beta_J = node_inverse_temperatures()
    top_B1 = rest_BS.amax(1, keepdim=True)
    rest_BS -= top_B1
    on_cpu = rest_BS.device.type == "cpu"
    size = max(1, _POWER_ELEMENTS // rest_BS.shape[1]) if on_cpu else len(rest_BS)
    scratch_bS = torch.empty_like(rest_BS[:size])
    sums_BJ = rest_BS.new_empty((len(rest_BS), len(beta_J)))
    for start in range(0, len(rest_BS), size):
        rest_bS = rest_BS[start : start + size]
        sums_bJ = sums_BJ[start : start + size]
        power_bS = scratch_bS[: len(rest_bS)]
        for first in range(NODES_PER_DOUBLING):
            torch.mul(rest_bS, float(beta_J[first]), out=power_bS).clamp_(min=math.log(_NOTHING)).exp_()
            torch.sum(power_bS, 1, out=sums_bJ[:, first])
            for node in range(first + NODES_PER_DOUBLING, len(beta_J), NODES_PER_DOUBLING):
                power_bS.square_().clamp_(min=_NOTHING)
                torch.sum(power_bS, 1, out=sums_bJ[:, node])
    # a device may lack float64
    log_sums_BJ = sums_BJ.cpu().double().log().numpy()
    log_z_BJ: NDArray[np.float64] = log_sums_BJ + top_B1.cpu().double().numpy() * beta_J
    return log_z_BJ


@torch.inference_mode()
def nll_sum(head: LinearHead, positions: Positions) -> float:
    """Nats of all positions, summed in float64, in one pass."""
    total, size = 0.0, 4096
    for start in range(0, positions.num_positions, size):
        part = slice(start, min(start + size, positions.num_positions))
        states_BD = positions.states.rows(part.start, part.stop)
        nll_B = head.score(states_BD, torch.from_numpy(positions.target_N[part])).nll
        total += float(nll_B.cpu().double().sum())
    return total


@torch.inference_mode()
def excluded_nll(
    head: LinearHead, positions: Positions, ids_N: NDArray[np.int64], support_V: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The nats that a support leaves out, by document, from the whole head: one pass of it, nothing kept.

    ``ids_N`` are the targets by the ids of ``head``.
    """
    excluded_N, size = np.empty(positions.num_positions), 4096
    support = torch.from_numpy(support_V)
    for start in range(0, positions.num_positions, size):
        part = slice(start, min(start + size, positions.num_positions))
        states_BD = positions.states.rows(part.start, part.stop)
        result = head.score(states_BD, torch.from_numpy(ids_N[part]), support_V=support)
        assert result.excluded_nll is not None, "a support was given"
        excluded_N[part] = result.excluded_nll.cpu().double().numpy()
    return np.bincount(positions.document_N, excluded_N, len(positions.index_D)).astype(np.float64)

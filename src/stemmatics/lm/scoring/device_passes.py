"""Passes of a fit over rows of logits on the model's device.

Axes: N positions, B rows of a block, K columns, F free columns.

The same sums as ``math.prior.row_passes.ArrayPasses``. Rows are moved to the device once where they fit into
a share of its free memory, else block by block in every pass. Products are in the computing type of the
statistics; sums over blocks are float64 on the CPU, since some devices have no float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from stemmatics.math.prior.corrected import Correction
from stemmatics.math.prior.row_passes import PassSums
from stemmatics.math.prior.statistics import IN_REST, Floats, Integers, Statistics

# elements of a block: 256 MB in float32
_BLOCK_ELEMENTS = 1 << 26
# of the device's free memory, what the rows of one fit may take, and its probabilities as much again
_FREE_SHARE = 0.25
# where a device does not tell how much memory it has
_UNKNOWN_BYTES = 1 << 30


def passes_on(device: torch.device) -> Callable[[Statistics, int], DevicePasses] | None:
    """What makes passes on a device; None on a CPU, where NumPy computes."""
    if device.type == "cpu":
        return None
    return lambda statistics, _cache_bytes: DevicePasses(statistics, device, _bytes_for_rows(device))


def _bytes_for_rows(device: torch.device) -> int:
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        return int(_FREE_SHARE * free)
    return _UNKNOWN_BYTES


class DevicePasses:
    """Passes over rows on a device; ``most_bytes`` bounds the stored rows, and the probabilities."""

    def __init__(
        self,
        statistics: Statistics,
        device: torch.device,
        most_bytes: int,
        block_elements: int = _BLOCK_ELEMENTS,
    ) -> None:
        self.statistics = statistics
        self._device = device
        self._dtype = torch.float64 if statistics.dtype is np.float64 else torch.float32
        self._block_rows = max(1, block_elements // max(1, statistics.num_columns))
        size = statistics.num_positions * statistics.num_columns * self._dtype.itemsize
        self._stores = size <= most_bytes
        self._rows: list[Tensor] = []
        self._p: list[Tensor] = []
        self._correction: Correction | None = None

    @torch.inference_mode()
    def evaluate(self, correction: Correction, weight_N: Floats) -> PassSums:
        """One pass under a correction; its probabilities are stored if the rows are."""
        num_columns = self.statistics.num_columns
        self._p = []
        stored: list[Tensor] = []
        rest_N3 = self._rest(correction)
        nll_N = np.empty(self.statistics.num_positions)
        expected_K, squares_K, cross_K = (np.zeros(num_columns) for _ in range(3))
        slope = curvature = 0.0
        for part, logits_BK in self._blocks():
            log_rest_B, rest_slope_B, rest_bend_B = (values_N[part] for values_N in rest_N3)
            p_BK, log_z_B = self._probabilities_of(logits_BK, correction, log_rest_B)
            weight_B = weight_N[part]
            weight_b = self._tensor(weight_B)
            target_B = self._target_logits(part, logits_BK)
            nll_N[part] = log_z_B - self._target_scores(part, target_B, correction)
            in_rest_B = np.exp(log_rest_B - log_z_B)
            mean_B = _array((p_BK * logits_BK).sum(1)) + in_rest_B * rest_slope_B
            slope += float(weight_B @ (mean_B - target_B))
            # centred before the squares: float32 keeps the digits of a variance this way
            centred_BK = logits_BK - self._tensor(mean_B)[:, None]
            moment_BK = p_BK * centred_BK
            inside_B = _array((moment_BK * centred_BK).sum(1))
            variance_B = inside_B + in_rest_B * (rest_bend_B + (rest_slope_B - mean_B) ** 2)
            curvature += float(weight_B @ variance_B)
            expected_K += _array(weight_b @ p_BK)
            cross_K += _array(weight_b @ moment_BK)
            squares_K += _array(weight_b @ p_BK.square())
            if self._stores:
                stored.append(p_BK)
        self._p, self._correction = stored, correction
        return PassSums(nll_N, slope, curvature, expected_K, squares_K, cross_K)

    @torch.inference_mode()
    def pull(self, correction: Correction, weight_N: Floats, vector_K: Floats) -> Floats:
        """P' diag(w) P v."""
        vector_k = self._tensor(vector_K)
        pulled_K = np.zeros(self.statistics.num_columns)
        for part, p_BK in self._probabilities(correction):
            pulled_K += _array((self._tensor(weight_N[part]) * (p_BK @ vector_k)) @ p_BK)
        return pulled_K

    @torch.inference_mode()
    def gram(self, correction: Correction, weight_N: Floats, column_F: Integers) -> Floats:
        """P' diag(w) P of some columns."""
        columns = torch.from_numpy(column_F).to(self._device)
        some = len(column_F) < self.statistics.num_columns
        sums_FF = np.zeros((len(column_F), len(column_F)))
        for part, p_BK in self._probabilities(correction):
            p_BF = p_BK.index_select(1, columns) if some else p_BK
            sums_FF += _array((p_BF * self._tensor(weight_N[part])[:, None]).T @ p_BF)
        return sums_FF

    def _probabilities(self, correction: Correction) -> Iterator[tuple[slice, Tensor]]:
        """Probabilities under a correction, stored or computed again."""
        if self._correction is correction and self._p:
            start = 0
            for p_BK in self._p:
                yield slice(start, start + len(p_BK)), p_BK
                start += len(p_BK)
            return
        log_rest_N = self._rest(correction)[0]
        for part, logits_BK in self._blocks():
            yield part, self._probabilities_of(logits_BK, correction, log_rest_N[part])[0]

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of rows on the device, in order."""
        num, start = self.statistics.num_positions, 0
        if self._rows:
            for rows_BK in self._rows:
                yield slice(start, start + len(rows_BK)), rows_BK
                start += len(rows_BK)
            return
        moved: list[Tensor] = []
        for start in range(0, num, self._block_rows):
            part = slice(start, min(start + self._block_rows, num))
            rows_BK = self._tensor(self.statistics.stored_rows(part))
            if self._stores:
                moved.append(rows_BK)
            yield part, rows_BK
        self._rows = moved

    def _probabilities_of(
        self, logits_BK: Tensor, correction: Correction, log_rest_B: Floats
    ) -> tuple[Tensor, Floats]:
        """Probabilities of the columns, and the log-partition (B,) in float64."""
        score_BK = logits_BK * correction.inverse_temperature + self._tensor(correction.bias_K)
        top_B = torch.maximum(score_BK.amax(1), self._tensor(log_rest_B))
        p_BK = torch.exp(score_BK - top_B[:, None])
        shift_B = _array(top_B)
        total_B = _array(p_BK.sum(1)) + np.exp(log_rest_B - shift_B)
        return p_BK / self._tensor(total_B)[:, None], shift_B + np.log(total_B)

    def _rest(self, correction: Correction) -> tuple[Floats, Floats, Floats]:
        """Log-sum-exp of the other ids and its first two derivatives by beta, (N,) each."""
        rest, num = self.statistics.rest, self.statistics.num_positions
        if rest is not None and correction.keep_rest:
            return rest.at(correction.inverse_temperature)
        return np.full(num, -np.inf), np.zeros(num), np.zeros(num)

    def _target_logits(self, part: slice, logits_BK: Tensor) -> Floats:
        column_B = self.statistics.target_column_N[part]
        columns = torch.from_numpy(np.maximum(column_B, 0)).to(self._device)
        target_B = _array(logits_BK.gather(1, columns[:, None])[:, 0])
        if self.statistics.target_logit_N is not None:
            outside_B = column_B == IN_REST
            target_B[outside_B] = self.statistics.target_logit_N[part][outside_B]
        return target_B

    def _target_scores(self, part: slice, target_B: Floats, correction: Correction) -> Floats:
        column_B = self.statistics.target_column_N[part]
        bias_B = np.where(column_B == IN_REST, 0.0, correction.bias_K[np.maximum(column_B, 0)])
        score_B: Floats = correction.inverse_temperature * target_B + bias_B
        return score_B

    def _tensor(self, values: np.typing.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device, self._dtype)


def _array(values: Tensor) -> Floats:
    """Values on the CPU in float64."""
    return values.cpu().to(torch.float64).numpy()

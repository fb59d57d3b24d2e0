"""The inputs of a model's head for a whole corpus, on disk.

Axes: N positions, T tokens of one document, B rows of a block, D width.

One forward pass writes them, one document at a time. Everything that depends on the head alone (another
bias, a damaged head) is then computed from the file, without the rest of the model.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class States:
    """Stored states: rows by position, read one block at a time.

    bfloat16 is stored as the upper half of a float32, which is exact.
    """

    def __init__(self, path: Path, num_positions: int, width: int, dtype: torch.dtype) -> None:
        self.num_positions = num_positions
        self.width = width
        self._stored = _storage(dtype)
        shape = (num_positions, width)
        # an empty file can't be mapped
        self._rows_ND: NDArray[Any] = (
            np.memmap(path, self._stored, "r", shape=shape)
            if num_positions
            else np.empty(shape, self._stored)
        )

    def rows(self, start: int, stop: int) -> Tensor:
        """States of positions start..stop-1, (B, D) float32."""
        rows_BD = np.asarray(self._rows_ND[start:stop])
        if self._stored == np.uint16:
            return torch.from_numpy((rows_BD.astype(np.uint32) << 16).view(np.float32))
        return torch.from_numpy(rows_BD.astype(np.float32))


class StateWriter:
    """Appends documents' states to a file; ``with`` closes it."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        self.path = path
        self.dtype = dtype
        self._num_positions = 0
        self._width = 0
        self._stream: IO[bytes] = path.open("wb")

    def __enter__(self) -> Self:
        """Ready for ``append``."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._stream.close()

    def append(self, hidden_TD: NDArray[np.float32]) -> None:
        """Rows of one document, float32 as in the scoring engine's output."""
        stored = _storage(self.dtype)
        rows_TD = np.ascontiguousarray(hidden_TD, dtype=np.float32)
        if stored == np.uint16:
            rows_TD = (rows_TD.view(np.uint32) >> 16).astype(np.uint16)
        self._stream.write(rows_TD.astype(stored, copy=False).tobytes())
        self._num_positions += len(rows_TD)
        self._width = rows_TD.shape[1]

    def states(self) -> States:
        """The written states; the file must be closed."""
        return States(self.path, self._num_positions, self._width, self.dtype)


def _storage(dtype: torch.dtype) -> Any:
    """float16 and bfloat16 take two bytes, other types four."""
    return {torch.float16: np.dtype(np.float16), torch.bfloat16: np.dtype(np.uint16)}.get(
        dtype, np.dtype(np.float32)
    )

"""The inputs of a model's head for a whole corpus, on disk.

Axes: N positions, M rows of the file, T tokens of one document, B rows of a block, D width.

One forward pass writes them, one document at a time. Everything that depends on the head alone (another
bias, a damaged head) is then computed from the file, without the rest of the model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class States:
    """Stored states: rows by position, read one block at a time.

    bfloat16 is stored as the upper half of a float32, which is exact. ``row_N`` gives the row of the file
    of each position; None if all rows are positions, in order.
    """

    def __init__(self, stored_MD: NDArray[Any], row_N: NDArray[np.int64] | None = None) -> None:
        self._stored_MD = stored_MD
        self._row_N = row_N
        self.num_positions = len(stored_MD if row_N is None else row_N)
        self.width = stored_MD.shape[1]

    def take(self, row_N: NDArray[np.int64]) -> States:
        """Some positions of a file that is whole, without a copy."""
        if self._row_N is not None:
            row_N = self._row_N[row_N]
        whole = len(row_N) == len(self._stored_MD) and np.array_equal(row_N, np.arange(len(row_N)))
        return States(self._stored_MD, None if whole else row_N)

    def rows(self, start: int, stop: int) -> Tensor:
        """States of positions start..stop-1, (B, D) float32."""
        part: Any = slice(start, stop) if self._row_N is None else self._row_N[start:stop]
        rows_BD = np.asarray(self._stored_MD[part])
        if rows_BD.dtype == np.uint16:
            return torch.from_numpy((rows_BD.astype(np.uint32) << 16).view(np.float32))
        return torch.from_numpy(rows_BD.astype(np.float32))


class StateWriter:
    """Appends documents' states to a file; ``with`` closes it.

    ``path`` is a file, or a folder in which the system keeps one without a name, gone with its last reader.
    """

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        self._stored = _storage(dtype)
        self._num_positions = 0
        self._width = 0
        # kept open for what reads it
        self._stream: IO[bytes] = tempfile.TemporaryFile(dir=path) if path.is_dir() else path.open("w+b")  # noqa: SIM115

    def __enter__(self) -> Self:
        """Ready for ``append``."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is written any more."""
        self._stream.flush()

    def append(self, hidden_TD: NDArray[np.float32]) -> None:
        """Rows of one document, float32 as in the scoring engine's output."""
        rows_TD = np.ascontiguousarray(hidden_TD, dtype=np.float32)
        if self._stored == np.uint16:
            rows_TD = (rows_TD.view(np.uint32) >> 16).astype(np.uint16)
        self._stream.write(rows_TD.astype(self._stored, copy=False).tobytes())
        self._num_positions += len(rows_TD)
        self._width = rows_TD.shape[1]

    @property
    def num_bytes(self) -> int:
        """What was written."""
        return self._num_positions * self._width * self._stored.itemsize

    def states(self) -> States:
        """What was written, mapped."""
        shape = (self._num_positions, self._width)
        self._stream.flush()
        # an empty file can't be mapped
        stored_MD: NDArray[Any] = (
            np.memmap(self._stream, self._stored, "r", shape=shape)  # type: ignore[call-overload]
            if self._num_positions
            else np.empty(shape, self._stored)
        )
        return States(stored_MD)


def _storage(dtype: torch.dtype) -> Any:
    """float16 and bfloat16 take two bytes, other types four."""
    return {torch.float16: np.dtype(np.float16), torch.bfloat16: np.dtype(np.uint16)}.get(
        dtype, np.dtype(np.float32)
    )

"""Cuts a document's tokens into windows so that every token is scored exactly once.

Uses no model and no tokenizer.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.scoring import Windows

DEFAULT_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Window:
    """One input row of the model.

    Input: the prefix id if ``prefixed``, then ``ids[start : stop - 1]``. Scored:
    ``ids[first_scored : stop]``; the prediction of text token t is at row position
    ``t - start - 1 + prefixed``.
    """

    start: int
    stop: int
    first_scored: int
    prefixed: bool

    @property
    def num_fed(self) -> int:
        """Input positions, including the prefix."""
        return self.stop - 1 - self.start + self.prefixed

    @property
    def num_scored(self) -> int:
        """Text tokens that are scored in this window."""
        return self.stop - self.first_scored


def cut_tokens(num_tokens: int, size: int, stride: int, *, has_prefix: bool) -> list[Window]:
    """Windows of ``size`` positions that advance by ``stride`` tokens.

    With a prefix every window starts with it. After the first window each scored token has at
    least ``size - stride`` text tokens before it. The last window is only as long as necessary, so
    that a token's context does not depend on the end of the document. Without a prefix the first
    token is not scored.
    """
    first = 0 if has_prefix else 1
    windows: list[Window] = []
    # The prefix takes one position of the first window, and the target of the last input is one
    # past the input tokens: so the first window has `size` targets either way.
    stop = min(first + size, num_tokens)
    start = 0
    while first < num_tokens:
        windows.append(Window(start, stop, first, has_prefix))
        first = stop
        start = first - (size - stride)
        stop = min(first + stride, num_tokens)
    return windows


def cut_harness(num_tokens: int, size: int) -> list[Window]:
    """The rolling windows of lm-evaluation-harness 0.4 (``lm_eval/utils.py``).

    ``get_rolling_token_windows`` with ``context_len=1``, then ``make_disjoint_window``: only the
    first window has the prefix, later windows repeat one token, and the last one is filled up with
    earlier tokens.
    """
    if num_tokens == 0:
        return []
    first = min(size, num_tokens)
    windows = [Window(0, first, 0, prefixed=True)]
    while first < num_tokens:
        stop = min(first + size, num_tokens)
        windows.append(Window(stop - size - 1, stop, first, prefixed=False))
        first = stop
    return windows


def cut_bytes(starts: Sequence[int], size: int, stride: int, *, has_prefix: bool) -> list[Window]:
    """Windows with cut points at the same bytes under every tokenizer.

    ``starts`` are the byte offsets at which the tokens begin. Cut points are the bytes ``size``,
    ``size + stride``, ... A window scores the tokens that begin in its byte span, and its
    context begins with the first token that begins at or after ``size - stride`` bytes before
    the span. Without a prefix at least one token is repeated, and the first token of the document is
    not scored.
    """
    num_tokens = len(starts)
    # A token of a character that spans tokens may begin where the one before it does, never earlier.
    ordered = np.maximum.accumulate(np.asarray(starts, dtype=np.int64)).tolist()
    windows: list[Window] = []
    cut, stop = 0, 0
    while stop < num_tokens:
        next_cut = cut + (stride if cut else size)
        first, stop = stop, bisect.bisect_left(ordered, next_cut, lo=stop)
        start = bisect.bisect_left(ordered, cut - (size - stride), hi=first) if cut else 0
        cut = next_cut
        if not has_prefix:
            if first == 0:
                first = min(1, stop)
            start = min(start, max(first - 1, 0))
        if first < stop:
            windows.append(Window(start, stop, first, has_prefix))
    return windows


@dataclass(frozen=True, slots=True)
class Cutter:
    """The window settings of a study, resolved for one model."""

    rule: Literal["tokens", "harness", "bytes"]
    size: int
    stride: int
    context_length: int
    has_prefix: bool

    @classmethod
    def of(cls, windows: Windows, *, context_length: int, has_prefix: bool) -> Self:
        """Resolve defaults and check the settings.

        Raises:
            UserError: the window exceeds the model's context, the stride the window, or the rule
                needs a prefix that the model does not have.
        """
        by_bytes = windows.rule == "bytes"
        # In bytes the default may not depend on the model, or two models would have other cut points.
        size = windows.size or (DEFAULT_SIZE if by_bytes else min(context_length, DEFAULT_SIZE))
        if windows.rule == "harness":
            stride = windows.stride or size
        else:
            largest = size if has_prefix else size - 1
            stride = windows.stride or min(size - size // 8, largest)
        cutter = cls(windows.rule, size, stride, context_length, has_prefix)
        cutter._check()
        return cutter

    def _check(self) -> None:
        if self.rule != "bytes" and self.size > self.context_length:
            raise UserError(
                f"a window of {self.size} positions does not fit the model",
                f"its context is {self.context_length}",
                f"set windows.size to {self.context_length} or less",
                code=2,
            )
        if self.rule == "harness" and not self.has_prefix:
            raise UserError(
                "the harness's windows need a prefix token",
                "lm-evaluation-harness always starts a document with one",
                "score with prefix: always, or with windows.rule: tokens",
                code=2,
            )
        if self.rule == "harness" and self.stride != self.size:
            raise UserError(
                f"the harness's windows have no stride of {self.stride}",
                "lm-evaluation-harness scores a whole window at a time",
                "leave windows.stride out",
                code=2,
            )
        largest = self.size if self.has_prefix else self.size - 1
        if not 1 <= self.stride <= largest:
            without = "" if self.has_prefix else " without a prefix"
            raise UserError(
                f"stride {self.stride} does not fit a window of {self.size}{without}",
                f"it must be between 1 and {largest}, or tokens would be lost",
                f"set windows.stride to {max(largest, 1)} or less"
                if largest
                else "set windows.size to 2 or more, or score with prefix: always",
                code=2,
            )

    def cut(self, starts: Sequence[int], doc_id: str) -> list[Window]:
        """Windows of the document whose tokens begin at the bytes ``starts``.

        Raises:
            UserError: a window cut at bytes has more tokens than the model's context.
        """
        if self.rule == "harness":
            return cut_harness(len(starts), self.size)
        if self.rule == "tokens":
            return cut_tokens(len(starts), self.size, self.stride, has_prefix=self.has_prefix)
        windows = cut_bytes(starts, self.size, self.stride, has_prefix=self.has_prefix)
        longest = max((window.num_fed for window in windows), default=0)
        if longest > self.context_length:
            raise UserError(
                f"document {doc_id} has {longest} tokens in a window of {self.size} bytes",
                f"the model's context is {self.context_length}",
                "set a smaller windows.size, for all models that are to be compared",
            )
        return windows

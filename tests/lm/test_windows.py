from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from stemmatics.core.errors import UserError
from stemmatics.core.scoring import Windows
from stemmatics.lm.scoring.batches import (
    BLOCK_PADDING,
    BLOCK_SHARE,
    MAX_PADDING,
    look_ahead,
    make_batches,
    make_blocks,
)
from stemmatics.lm.tokens.windows import Cutter, Window, cut_bytes, cut_harness, cut_tokens

# A busy machine is no fault of the code.
ANY_TIME = settings(deadline=None)


def scored(windows: list[Window]) -> list[int]:
    return [token for window in windows for token in range(window.first_scored, window.stop)]


@ANY_TIME
@given(num_tokens=st.integers(0, 90), size=st.integers(1, 20), data=st.data(), has_prefix=st.booleans())
def test_every_token_once_with_its_context(num_tokens, size, data, has_prefix):
    if not has_prefix and size == 1:
        size = 2
    stride = data.draw(st.integers(1, size if has_prefix else size - 1))
    windows = cut_tokens(num_tokens, size, stride, has_prefix=has_prefix)
    assert scored(windows) == list(range(0 if has_prefix else 1, num_tokens))
    for window in windows:
        assert 1 <= window.num_fed <= size
        assert window.prefixed is has_prefix
        assert window.start >= 0
    for window in windows[1:]:
        assert window.first_scored - window.start >= size - stride


def test_full_windows_feed_all_positions():
    assert cut_tokens(10, 4, 3, has_prefix=True) == [
        Window(0, 4, 0, True),
        Window(3, 7, 4, True),
        Window(6, 10, 7, True),
    ]
    assert cut_tokens(8, 4, 3, has_prefix=False) == [Window(0, 5, 1, False), Window(4, 8, 5, False)]
    assert [window.num_fed for window in cut_tokens(10, 4, 3, has_prefix=True)] == [4, 4, 4]


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_lengths_at_the_limit(extra):
    num_windows = {-1: 1, 0: 1, 1: 2}[extra]
    windows = cut_tokens(16 + extra, 16, 14, has_prefix=True)
    assert len(windows) == num_windows
    assert scored(windows) == list(range(16 + extra))
    assert scored(cut_tokens(32, 16, 14, has_prefix=True)) == list(range(32))


@ANY_TIME
@given(num_tokens=st.integers(0, 90), size=st.integers(1, 20))
def test_harness_rule_is_the_harness(num_tokens, size):
    ids, prefix = list(range(100, 100 + num_tokens)), 1
    theirs = map(make_disjoint_window, get_rolling_token_windows(ids, prefix, size, 1))
    # The model is fed (context + continuation)[:-1] and the continuation is scored.
    fed_and_scored = [((context + continuation)[:-1], continuation) for context, continuation in theirs]
    ours = [
        (
            [prefix] * window.prefixed + ids[window.start : window.stop - 1],
            ids[window.first_scored : window.stop],
        )
        for window in cut_harness(num_tokens, size)
    ]
    assert ours == fed_and_scored


@ANY_TIME
@given(
    lengths=st.lists(st.integers(0, 9), max_size=60),
    size=st.integers(2, 40),
    data=st.data(),
    has_prefix=st.booleans(),
)
def test_cuts_at_bytes(lengths, size, data, has_prefix):
    stride = data.draw(st.integers(1, size - 1))
    starts = np.concatenate([[0], np.cumsum(lengths)])[: len(lengths)].tolist()
    windows = cut_bytes(starts, size, stride, has_prefix=has_prefix)
    assert scored(windows) == list(range(0 if has_prefix else 1, len(starts)))
    for window in windows:
        firsts = [starts[token] for token in range(window.first_scored, window.stop)]
        # All scored tokens begin in one span of the grid size, size + stride, size + 2 stride, ...
        spans = {0 if byte < size else (byte - size) // stride + 1 for byte in firsts}
        assert len(spans) == 1
        span = spans.pop()
        if span and has_prefix and window.start < window.first_scored:
            assert starts[window.start] >= size + (span - 1) * stride - (size - stride)


def test_two_tokenizers_are_cut_at_the_same_bytes():
    fine = cut_bytes(list(range(24)), 12, 6, has_prefix=True)
    coarse = cut_bytes(list(range(0, 24, 3)), 12, 6, has_prefix=True)
    assert [(w.start, w.first_scored, w.stop) for w in fine] == [(0, 0, 12), (6, 12, 18), (12, 18, 24)]
    assert [(w.start * 3, w.first_scored * 3, w.stop * 3) for w in coarse] == [
        (0, 0, 12),
        (6, 12, 18),
        (12, 18, 24),
    ]


@pytest.mark.parametrize(
    ("windows", "has_prefix", "words"),
    [
        (Windows(size=65), True, "does not fit the model"),
        (Windows(size=4, stride=4), False, "stride 4"),
        (Windows(size=1), False, "without a prefix"),
        (Windows(stride=65), True, "stride 65"),
        (Windows(rule="harness"), False, "need a prefix"),
        (Windows(rule="harness", size=8, stride=4), True, "no stride"),
    ],
)
def test_windows_that_would_lose_tokens_are_refused(windows, has_prefix, words):
    with pytest.raises(UserError, match=words):
        Cutter.of(windows, context_length=64, has_prefix=has_prefix)


def test_defaults():
    def sizes(windows, context_length, has_prefix):
        cutter = Cutter.of(windows, context_length=context_length, has_prefix=has_prefix)
        return cutter.size, cutter.stride

    assert sizes(Windows(), 8192, True) == (2048, 1792)
    assert sizes(Windows(), 64, True) == (64, 56)
    assert sizes(Windows(), 4, False) == (4, 3)
    # In bytes the default may not depend on the model.
    assert sizes(Windows(rule="bytes"), 64, True) == sizes(Windows(rule="bytes"), 8192, True)


def test_more_tokens_than_context_in_a_byte_window_is_an_error():
    cutter = Cutter.of(Windows(rule="bytes", size=20, stride=10), context_length=8, has_prefix=True)
    with pytest.raises(UserError, match="document d7 has 20 tokens"):
        cutter.cut(list(range(30)), "d7")


class Row:
    def __init__(self, length):
        self.length = length


@ANY_TIME
@given(lengths=st.lists(st.integers(1, 50), max_size=80), budget=st.integers(1, 200))
def test_batches_hold_each_row_once_within_the_budget(lengths, budget):
    rows = [Row(length) for length in lengths]
    batches = list(make_batches(rows, budget))
    assert sorted(id(row) for batch in batches for row in batch) == sorted(id(row) for row in rows)
    for batch in batches:
        padded = len(batch) * batch[0].length
        assert len(batch) == 1 or padded <= budget
        assert padded - sum(row.length for row in batch) <= MAX_PADDING * padded
    firsts = [batch[0].length for batch in batches]
    assert firsts == sorted(firsts, reverse=True)


@ANY_TIME
@given(lengths=st.lists(st.integers(1, 300), max_size=80), budget=st.integers(1, 600))
def test_blocks_hold_each_row_once_within_the_budget_and_pad_little(lengths, budget):
    rows = [Row(length) for length in lengths]
    batches = list(make_blocks(rows, budget))
    flat = [row for batch in batches for block in batch for row in block]
    assert sorted(id(row) for row in flat) == sorted(id(row) for row in rows)
    assert [row.length for row in flat] == sorted(lengths, reverse=True)
    for batch in batches:
        padded = sum(len(block) * block[0].length for block in batch)
        assert padded <= budget or sum(map(len, batch)) == 1
        for block in batch:
            longest = block[0].length
            assert longest - block[-1].length <= max(BLOCK_PADDING, longest // BLOCK_SHARE)


def test_a_batch_of_blocks_is_filled_up():
    batches = list(make_blocks([Row(length) for length in (60, 40, 39, 21, 20)], 100))
    assert [[[row.length for row in block] for block in batch] for batch in batches] == [
        [[60], [40]],
        [[39], [21, 20]],
    ]


def test_the_look_ahead_is_bounded():
    read = []

    def stream():
        for _ in range(1000):
            read.append(10)
            yield Row(10)

    held = next(look_ahead(stream(), 95))
    assert len(held) == len(read) == 10

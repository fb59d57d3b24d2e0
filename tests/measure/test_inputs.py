"""Stored sums as arrays: what is compared with what, and ratios of sums against direct arithmetic."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.measure.made_sums import METADATA, MadeTables, doc_id, documents, parts, pinned, scores

from stemmatics.facts.score import score_fact
from stemmatics.math.rates import loss_rates
from stemmatics.measure.inputs import (
    Batch,
    Mismatch,
    Scores,
    bin_order,
    byte_mismatch,
    comparable_by_byte,
    comparable_by_token,
    names,
    numbers,
    parts_of,
    read_scores,
    spread,
    token_mismatch,
)

FIRST_BYTE = "set scoring.prefix to always, so that every model scores the first byte"


def scored(**changes):
    """Three documents of 10, 20 and 30 tokens, two bytes a token, the longest exactly one window long."""
    num_tokens_N = np.array([10.0, 20.0, 30.0])
    made = Scores(
        index_N=np.array([0, 1, 2]),
        doc_id_N=np.array(["a", "b", "c"]),
        nll_N=np.array([5.0, 7.0, 9.0]),
        num_tokens_N=num_tokens_N,
        num_bytes_N=num_tokens_N * 2,
        register_N=np.array(["prose", "code", "prose"]),
        group_N=np.array(["a", "b", "c"]),
        token_ids="ids",
        prefix_id=1,
        support="full",
        windows=("tokens", 30, 20),
        dtype="float32",
    )
    return replace(made, **changes)


CUT = {"windows": ("tokens", 29, 20)}


@pytest.mark.parametrize(
    ("first", "second", "reason", "fix"),
    [
        ({}, {"nll_N": np.zeros(3)}, None, None),
        ({}, {"index_N": np.array([0, 1, 3])}, "same bytes", FIRST_BYTE),
        ({}, {"num_bytes_N": np.array([20.0, 40.0, 61.0])}, "same bytes", FIRST_BYTE),
        ({}, {"dtype": "bfloat16"}, "different precision (float32 and bfloat16)", "set numerics.dtype"),
        # both cut nothing: a document as long as the window is not cut
        ({}, {"windows": ("tokens", 31, 5)}, None, None),
        ({}, {"windows": ("bytes", 60, 5)}, None, None),
        ({}, {"token_ids": "others"}, None, None),
        # one of them cuts
        ({}, CUT, "(30 tokens, stride 20 and 29 tokens, stride 20)", "set scoring.windows.size"),
        (CUT, {}, "(29 tokens, stride 20 and 30 tokens, stride 20)", "set scoring.windows.size"),
        (CUT, {"windows": ("tokens", 29, 21)}, "29 tokens, stride 21", "set scoring.windows.size"),
        # a window of 59 bytes cuts a document of 60 bytes and 30 tokens
        ({}, {"windows": ("bytes", 59, 20)}, "and 59 bytes, stride 20)", "set scoring.windows.size"),
        # both cut, in the same windows
        (CUT, CUT, None, None),
        (CUT, CUT | {"token_ids": "others"}, "cut at different places", "set scoring.windows.rule to bytes"),
        (
            {"windows": ("bytes", 59, 20)},
            {"windows": ("bytes", 59, 20), "token_ids": "others"},
            None,
            None,
        ),
        # prefixes matter to tokens only
        ({}, {"prefix_id": 2}, None, None),
    ],
)
def test_comparable_in_nats_per_byte(first, second, reason, fix):
    pair = scored(**first), scored(**second)
    mismatch = byte_mismatch(*pair)
    if reason is None:
        assert mismatch is None
        assert comparable_by_byte(*pair) == ""
    else:
        assert reason in mismatch.reason
        assert mismatch.fix == fix
        assert comparable_by_byte(*pair) == f"{mismatch.reason}: {fix}"


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ({}, ""),
        ({"token_ids": "others"}, "their token ids differ"),
        ({"prefix_id": 2}, "their prefixes differ (ids 1 and 2)"),
        ({"prefix_id": None}, "their prefixes differ (ids 1 and None)"),
        ({"token_ids": "others", "prefix_id": 2}, "their token ids differ"),
        (
            {"dtype": "float16"},
            "they were scored in different precision (float32 and float16): set numerics.dtype",
        ),
    ],
)
def test_comparable_in_nats_per_token(second, text):
    pair = scored(), scored(**second)
    assert comparable_by_token(*pair) == text
    mismatch = token_mismatch(*pair)
    assert ("" if mismatch is None else mismatch.text) == text


def test_a_mismatch_without_a_fix_is_its_reason():
    assert Mismatch("why").text == "why"
    assert Mismatch("why", "what to do").text == "why: what to do"


def test_registers_and_their_rows():
    assert scored().registers() == ["all", "code", "prose"]
    assert scored().rows("prose").tolist() == [True, False, True]
    assert scored().rows("all").tolist() == [True, True, True]
    one = scored(register_N=np.array(["prose"] * 3))
    assert one.registers() == ["all"]
    assert one.rows("poems").tolist() == [False] * 3


@pytest.fixture
def stored():
    """A scoring of four documents, of which index 2 is empty, and the fact that it belongs to."""
    study = pinned({"base": None}, {"text": "text"}, scoring={"windows": {"rule": "bytes", "size": 64}})
    fact = score_fact(study, "base", "text", study.stemma.scoring)
    tables = MadeTables()
    # the corpus lists its documents in another order, and has one that was not scored
    rows = documents(["prose", "code", "poems", "news", "left out"], ["g", "h", "i", "g", "j"])
    tables.put(fact.needs["corpus"], documents=rows[::-1])
    tables.put(
        fact,
        scores=scores([1.5, 2.5, 0.0, 4.5], [1, 4, 0, 5], [6, 8, 0, 10]),
        scoring=[{**METADATA, "prefix_id": None, "dtype": "float64"}],
        score_parts=parts("position", {"1024-4095": {0: 0.5}, "64-255": {0: 1.0, 3: 4.5}})
        + parts("frequency", {"10-99": {1: 2.5}, "0": {3: 1.0}}),
    )
    return fact, tables


def test_scores_are_matched_with_their_documents(stored):
    found = read_scores(*stored)
    assert found.index_N.tolist() == [0, 1, 3]
    assert found.doc_id_N.tolist() == [doc_id(index) for index in (0, 1, 3)]
    assert found.nll_N.tolist() == [1.5, 2.5, 4.5]
    assert found.num_tokens_N.tolist() == [1, 4, 5]
    assert found.num_bytes_N.tolist() == [6, 8, 10]
    assert found.register_N.tolist() == ["prose", "code", "news"]
    assert found.group_N.tolist() == ["g", "h", "g"]
    assert (found.token_ids, found.prefix_id) == ("same ids", None)
    assert (found.windows, found.support, found.dtype) == (("bytes", 100, 90), "full", "float64")


def test_parts_are_read_by_axis_and_bin_in_numeric_order(stored):
    found = parts_of(*stored)
    assert list(found) == [
        ("frequency", "0"),
        ("frequency", "10-99"),
        ("position", "64-255"),
        ("position", "1024-4095"),
    ]
    assert found["position", "64-255"]["index"].tolist() == [0, 3]
    assert found["position", "64-255"]["nll_sum"].tolist() == [1.0, 4.5]
    assert found["frequency", "0"]["num_bytes"].tolist() == [1]


def test_bins_are_ordered_by_their_first_number_and_words_by_letter():
    bins = ["1000-9999", "4096+", "64-255", "256-1023", "0-63", "0", "1-9", "10-99"]
    assert [name for _, name in sorted((("a", name) for name in bins), key=bin_order)] == [
        "0", "0-63", "1-9", "10-99", "64-255", "256-1023", "1000-9999", "4096+",
    ]  # fmt: skip
    words = [("b", "1"), ("a", "word_start"), ("a", "number")]
    assert sorted(words, key=bin_order) == [("a", "number"), ("a", "word_start"), ("b", "1")]
    # on one axis words come before every number but 0
    assert sorted([("a", "1-9"), ("a", "rare")], key=bin_order) == [("a", "rare"), ("a", "1-9")]


def test_a_bin_is_spread_over_all_documents():
    part = {"index": np.array([7.0, 3.0, 99.0]), "nll_sum": np.array([1.5, 2.5, 8.0])}
    assert spread(part, "nll_sum", np.array([3, 5, 7])).tolist() == [2.5, 0.0, 1.5]
    assert spread({"index": [], "nll_sum": []}, "nll_sum", np.array([3, 5])).tolist() == [0.0, 0.0]


def test_columns_as_arrays():
    table = pa.table({"n": pa.array([1, None], pa.int64()), "s": ["a", "bcd"]})
    assert np.array_equal(numbers(table, "n"), [1.0, np.nan], equal_nan=True)
    assert numbers(table, "n").dtype == np.float64
    assert names(table, "s").tolist() == ["a", "bcd"]


def twelve():
    rng = np.random.default_rng(5)
    num_tokens_N = rng.integers(5, 40, 12).astype(float)
    return scored(
        index_N=np.arange(12),
        nll_N=num_tokens_N * rng.normal(2.0, 0.3, 12),
        num_tokens_N=num_tokens_N,
        num_bytes_N=num_tokens_N * 3 + 1,
        register_N=np.array(["prose", "code"] * 6),
        group_N=np.array(["twins", "twins", *"abcdefghij"]),
    )


def test_a_batch_gives_ratios_of_sums_in_the_order_of_adding():
    made = twelve()
    batch = Batch(np.random.default_rng(3))
    common = {"measure": "loss", "units": "nats/byte"}
    jobs = [("all", made.num_bytes_N), ("prose", made.num_bytes_N), ("all", made.num_tokens_N)]
    for place, (register, denominator_N) in enumerate(jobs):
        batch.add(
            made,
            made.rows(register),
            made.nll_N,
            denominator_N,
            quantity=f"loss.{place}",
            subject={"register": register},
            **common,
        )
    first, second, third = batch.estimates()
    assert [one.id for one in (first, second, third)] == [
        "loss.0/register=all", "loss.1/register=prose", "loss.2/register=all",
    ]  # fmt: skip
    prose_N = made.rows("prose")
    assert first.value == pytest.approx(made.nll_N.sum() / made.num_bytes_N.sum(), rel=1e-12)
    assert second.value == pytest.approx(made.nll_N[prose_N].sum() / made.num_bytes_N[prose_N].sum())
    assert third.value == pytest.approx(made.nll_N.sum() / made.num_tokens_N.sum(), rel=1e-12)
    # near-duplicates are one unit
    assert (first.n, second.n) == (11, 6)

    # those on the same documents share their resamples, in the order in which they first came
    rng = np.random.default_rng(3)
    both = np.stack([made.nll_N, made.nll_N], axis=1)
    denominators = np.stack([made.num_bytes_N, made.num_tokens_N], axis=1)
    same = loss_rates(both, denominators, rng=rng, groups=made.group_N)
    (apart,) = loss_rates(
        made.nll_N[prose_N, None], made.num_bytes_N[prose_N, None], rng=rng, groups=made.group_N[prose_N]
    )
    for estimate, interval in zip((first, second, third), (same[0], apart, same[1]), strict=True):
        assert (estimate.lo, estimate.hi) == (interval.lo, interval.hi)
        assert estimate.smallest_effect == interval.smallest_effect


def test_documents_in_other_groups_have_their_own_resamples():
    made = twelve()
    other = replace(made, group_N=np.array(list("abcdefghijkl")))
    batch = Batch(np.random.default_rng(0))
    for place, one in enumerate((made, other)):
        batch.add(
            one, one.rows("all"), one.nll_N, one.num_bytes_N,
            measure="loss", quantity=f"loss.{place}", subject={}, units="",
        )  # fmt: skip
    assert [estimate.n for estimate in batch.estimates()] == [11, 12]


def test_an_empty_batch_gives_nothing():
    assert Batch(np.random.default_rng(0)).estimates() == []

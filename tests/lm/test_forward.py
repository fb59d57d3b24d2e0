"""Axes: V vocabulary."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import transformers
from tests.lm.architectures import ARCHITECTURES, CONTEXT
from tests.lm.oracles import BOS, as_document, bigram_model, flat_model, sums_of, tiny_llama
from tests.lm.parity import own_sum, texts

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.scoring import engine as engine_module
from stemmatics.lm.scoring import head as head_module
from stemmatics.lm.scoring.batches import LOOKAHEAD_BATCHES
from stemmatics.lm.scoring.discover import discover_head
from stemmatics.lm.scoring.forward import score

LN64 = math.log(64)


@pytest.fixture(scope="module")
def model():
    return tiny_llama(num_ids=96)


@pytest.fixture(scope="module")
def documents():
    return [as_document(i, ids) for i, ids in enumerate(texts() * 2)]


def nll_sums(rows) -> list[float]:
    return [row.nll_sum for row in rows]


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_windows_drop_and_double_nothing(stride):
    rows = sums_of(flat_model(), [as_document(0, range(10))], windows=Windows(size=4, stride=stride))
    assert rows[0].nll_sum == pytest.approx(41.5888, abs=1e-4)
    assert (rows[0].num_tokens, rows[0].num_bytes) == (10, 10)


@pytest.mark.parametrize("rule", ["tokens", "harness", "bytes"])
@pytest.mark.parametrize("length", [15, 16, 17, 32])
def test_lengths_at_the_limit_are_scored_whole(rule, length):
    rows = sums_of(flat_model(), [as_document(0, range(length))], windows=Windows(rule=rule, size=16))
    assert rows[0].nll_sum == pytest.approx(length * LN64, abs=1e-4)


def test_loss_is_positive_and_in_nats():
    row = sums_of(flat_model(), [as_document(0, [10, 11, 12, 13])])[0]
    assert row.nll_sum / row.num_bytes == pytest.approx(4.1589, abs=1e-4)
    assert row.nll_sum / row.num_bytes / math.log(2) == pytest.approx(6.0, abs=1e-4)


def bigram_log_p() -> torch.Tensor:
    logits_VV = torch.randn(64, 64, generator=torch.Generator().manual_seed(3))
    logits_VV[BOS] = -20.0
    logits_VV[BOS, 5] = logits_VV[BOS, 6] = 0.0
    return logits_VV.log_softmax(1)


def test_one_token_after_the_prefix_by_hand():
    rows = sums_of(bigram_model(bigram_log_p()), [as_document(0, [5]), as_document(1, [5, 6])])
    log_p = bigram_log_p()
    assert rows[0].nll_sum == pytest.approx(0.6931, abs=1e-4)
    assert rows[1].num_tokens == 2
    assert rows[1].nll_sum == pytest.approx(math.log(2) - float(log_p[5, 6]), abs=1e-4)


@pytest.mark.parametrize(
    ("windows", "prefix_id", "context_of_4"),
    [
        (Windows(size=4, stride=4), BOS, BOS),
        (Windows(size=4, stride=3), BOS, 6),
        (Windows(rule="harness", size=4), BOS, 6),
        (Windows(size=4, stride=3), None, 6),
    ],
)
def test_what_each_window_begins_with(windows, prefix_id, context_of_4):
    """Every window starts with the prefix, but under the harness's rule only the first does."""
    ids = [5, 9, 8, 6, 5, 7, 11]
    log_p = bigram_log_p()
    before = [prefix_id, 5, 9, 8, context_of_4, 5, 7]
    pairs = list(zip(before, ids, strict=True))[0 if prefix_id else 1 :]
    row = sums_of(bigram_model(log_p), [as_document(0, ids)], windows=windows, prefix_id=prefix_id)[0]
    assert row.nll_sum == pytest.approx(-sum(float(log_p[a, b]) for a, b in pairs), abs=1e-4)


def test_without_a_prefix_the_first_token_is_not_scored():
    documents = [as_document(0, []), as_document(1, [5]), as_document(2, [5, 6, 7])]
    rows = sums_of(flat_model(), documents, prefix_id=None)
    assert [(row.num_tokens, row.num_bytes) for row in rows] == [(0, 0), (0, 0), (2, 2)]
    assert nll_sums(rows) == [0.0, 0.0, pytest.approx(2 * LN64, abs=1e-4)]


def test_rows_come_in_input_order_and_empty_ones_are_kept(model, documents):
    rows = sums_of(model, documents, token_budget=50)
    assert [row.index for row in rows] == list(range(len(documents)))
    assert [row.num_tokens for row in rows] == [len(document.ids) for document in documents]
    assert np.isfinite(nll_sums(rows)).all()
    half = len(rows) // 2
    assert nll_sums(rows[:half]) == pytest.approx(nll_sums(rows[half:]), abs=1e-4)


@pytest.mark.parametrize("token_budget", [1, 7, 64, 100, 129, 8192])
def test_sums_do_not_depend_on_the_batch(model, documents, token_budget):
    alone = [own_sum(model, document.ids.tolist()) for document in documents]
    assert nll_sums(sums_of(model, documents, token_budget=token_budget)) == pytest.approx(alone, abs=1e-4)


def test_the_padding_id_changes_nothing(model, documents, monkeypatch):
    before = nll_sums(sums_of(model, documents))
    monkeypatch.setattr(engine_module, "PADDING_ID", 77)
    assert nll_sums(sums_of(model, documents)) == before


def test_pieces_of_the_head_equal_the_whole(model, documents, monkeypatch):
    whole = nll_sums(sums_of(model, documents))
    monkeypatch.setattr(head_module, "CPU_BLOCK_ELEMENTS", 11 * 13)
    monkeypatch.setattr(head_module, "CPU_BLOCK_IDS", 13)
    assert nll_sums(sums_of(model, documents)) == pytest.approx(whole, rel=1e-6)


def token_losses(model, ids: list[int]) -> np.ndarray:
    collected = []
    sums_of(model, [as_document(0, ids)], token_sink=collected.append)
    return collected[0].nll


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_sliding_window_does_not_see_past_itself(attention):
    config = transformers.MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
        initializer_range=0.5,
        attn_implementation=attention,
    )
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(config)
    ids = np.random.default_rng(0).integers(3, 64, 30)
    first = token_losses(model, ids.tolist())
    second = token_losses(model, [(ids[0] + 1) % 64, *ids[1:]])
    # Token 0 is at position 1; position p attends to p - 7 and on, and its loss is that of text token p.
    assert np.abs(first - second)[1:9].min() > 1e-6
    assert np.abs(first - second)[9:].max() == 0


def test_a_cut_document_counts_the_same_span_twice(model):
    ids = list(range(10, 30))
    whole = as_document(0, ids, ends=np.arange(20) * 3 + 3, starts=np.arange(20) * 3)
    cut, short = sums_of(model, [whole, as_document(1, ids[:8])], max_doc_tokens=8)
    assert cut.flags == ("cut",)
    assert short.flags == ()
    assert (cut.num_tokens, cut.num_bytes) == (8, 24)
    assert cut.nll_sum == pytest.approx(short.nll_sum, abs=1e-4)


def test_only_requested_tokens_are_scored_and_the_rest_is_context(model):
    ids = list(range(10, 22))
    requested = np.arange(12) >= 7
    document = as_document(
        0, ids, starts=np.arange(12) * 3, ends=np.arange(12) * 3 + 3, scored_mask=requested
    )
    collected = []
    row = sums_of(model, [document], token_sink=collected.append)[0]
    assert (row.num_tokens, row.num_bytes) == (5, 15)
    assert row.nll_sum == pytest.approx(own_sum(model, ids) - own_sum(model, ids[:7]), abs=1e-4)
    assert np.isnan(collected[0].nll).tolist() == (~requested).tolist()
    cut = sums_of(model, [document], max_doc_tokens=9)[0]
    assert (cut.num_tokens, cut.num_bytes) == (2, 6)


def test_full_is_shared_plus_excluded(model, documents):
    support = np.arange(90) >= 3
    support[50] = False
    ids = documents[0].ids.tolist()
    row = sums_of(model, [as_document(0, ids)], support_mask=support)[0]
    fed = torch.tensor([[BOS, *ids[:-1]]])
    inside = torch.zeros(96, dtype=torch.bool)
    inside[:90] = torch.from_numpy(support)
    with torch.inference_mode():
        logits = model(fed).logits[0].double()
    excluded = (logits.logsumexp(1) - logits[:, inside].logsumexp(1)).sum()
    assert row.excluded_nll_sum == pytest.approx(float(excluded), abs=1e-4)
    assert row.num_outside_support == sum(not inside[i] for i in ids) > 0
    assert row.nll_sum == pytest.approx(own_sum(model, ids), abs=1e-4)


def test_parts_add_up_to_the_whole(model):
    length = 60
    frequencies = np.zeros(96, dtype=np.int64)
    frequencies[10:20], frequencies[20:40], frequencies[40:] = 9, 10, 1000
    document = as_document(
        0,
        np.arange(length) + 3,
        starts=np.arange(length) * 20,
        ends=np.arange(length) * 20 + 20,
        classes=(np.arange(length) % 6).astype(np.int8),
    )
    row = sums_of(model, [document], frequencies=frequencies)[0]
    for axis in ("token_class", "position", "frequency"):
        parts = [part for part in row.parts if part.axis == axis]
        assert sum(part.nll_sum for part in parts) == pytest.approx(row.nll_sum, rel=1e-12)
        assert sum(part.num_tokens for part in parts) == row.num_tokens == length
        assert sum(part.num_bytes for part in parts) == row.num_bytes == 1200
    counts = {(part.axis, part.bin): part.num_tokens for part in row.parts}
    assert counts["token_class", "word_start"] == 10
    assert counts["position", "0-63"] == 4
    assert counts["position", "64-255"] == 9
    assert counts["position", "1024-4095"] == 8
    assert {bin_: count for (axis, bin_), count in counts.items() if axis == "frequency"} == {
        "0": 7,
        "1-9": 10,
        "10-99": 20,
        "1000-9999": 23,
    }


def test_the_sink_gets_values_that_fit_together(model):
    head = discover_head(model, CONTEXT)
    collected = []
    documents = [as_document(0, [5, 6, 7]), as_document(1, []), as_document(2, range(10, 40))]
    want = ("nll", "entropy", "top_1", "hidden")
    rows = sums_of(model, documents, prefix_id=None, want=want, token_sink=collected.append)
    assert [scores.document.index for scores in collected] == [0, 1, 2]
    assert collected[0].scored.tolist() == [False, True, True]
    assert math.isnan(collected[0].nll[0])
    assert collected[0].extra["top_1"][0] == -1
    scores = collected[2]
    keep = scores.scored
    assert -scores.log_probability[keep].sum() == pytest.approx(rows[2].nll_sum)
    logits_NV = head.logits(torch.from_numpy(scores.extra["hidden"][keep]))
    assert scores.extra["top_1"][keep].tolist() == logits_NV.argmax(1).tolist()
    p_NV = logits_NV.double().softmax(1)
    assert scores.extra["entropy"][keep] == pytest.approx(-(p_NV * p_NV.log()).sum(1).numpy(), abs=1e-5)


def test_documents_are_read_as_they_are_needed(model):
    read = []

    def stream():
        for index in range(400):
            read.append(index)
            yield as_document(index, range(10, 30))

    scoring, numerics = Scoring(), Numerics(token_budget=40)
    rows = score(model, stream(), scoring, numerics, prefix_id=BOS, context_length=CONTEXT)
    next(rows)
    assert len(read) <= 40 * LOOKAHEAD_BATCHES / 20 + 1
    assert len(list(rows)) == 399


def test_progress_counts_scored_tokens(model, documents):
    events = []
    rows = sums_of(model, documents, token_budget=64, on_event=events.append)
    done = [event["done"] for event in events]
    assert done == sorted(done)
    assert done[-1] == events[-1]["total"] == sum(row.num_tokens for row in rows)


def test_experts_are_scored_without_their_auxiliary_loss():
    entry = next(entry for entry in ARCHITECTURES if entry.name == "olmoe")
    model = entry.build()
    assert model.config.output_router_logits
    ids = texts()[0]
    assert sums_of(model, [as_document(0, ids)])[0].nll_sum == pytest.approx(own_sum(model, ids), abs=1e-4)


def test_dropout_is_off_and_the_mode_restored(documents):
    model = tiny_llama(num_ids=96, attention_dropout=0.5)
    model.train()
    first, second = (nll_sums(sums_of(model, documents)) for _ in range(2))
    assert first == second
    assert model.training


def test_unknown_outputs_are_refused(model):
    with pytest.raises(ValueError, match="entropi"):
        sums_of(model, [], want=("entropi",))

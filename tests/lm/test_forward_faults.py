"""Failures in a pass are handled, reported or refused."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import transformers
from tests.lm.oracles import as_document, sums_of, tiny_llama
from tests.lm.parity import own_sum, texts

from stemmatics.core.errors import UserError


@pytest.fixture(scope="module")
def model():
    return tiny_llama(num_ids=96)


@pytest.fixture(scope="module")
def documents():
    return [as_document(i, ids) for i, ids in enumerate(texts() * 2)]


def nll_sums(rows) -> list[float]:
    return [row.nll_sum for row in rows]


def out_of_memory_above(model, limit: int, error: Exception):
    """The model's forward, failing for batches of more than ``limit`` positions."""
    forward = model.forward

    def failing(input_ids, **given):
        if input_ids.numel() > limit:
            raise error
        return forward(input_ids, **given)

    return failing


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: not enough memory"),
    ],
)
def test_out_of_memory_halves_the_budget_and_loses_nothing(documents, monkeypatch, error):
    model = tiny_llama(num_ids=96)
    before = nll_sums(sums_of(model, documents))
    events = []
    monkeypatch.setattr(model, "forward", out_of_memory_above(model, 70, error))
    rows = sums_of(model, documents, on_event=events.append)
    assert nll_sums(rows) == pytest.approx(before, abs=1e-4)
    assert [row.index for row in rows] == list(range(len(documents)))
    budgets = [event["token_budget"] for event in events if event["kind"] == "out_of_memory"]
    assert budgets
    assert all(later <= earlier / 2 for earlier, later in itertools.pairwise(budgets))


def test_a_window_that_never_fits_is_the_users_to_mend(documents, monkeypatch):
    model = tiny_llama(num_ids=96)
    monkeypatch.setattr(model, "forward", out_of_memory_above(model, 30, MemoryError()))
    with pytest.raises(UserError, match="does not fit into memory"):
        sums_of(model, documents)


def test_other_errors_are_not_treated_as_out_of_memory(documents, monkeypatch):
    model = tiny_llama(num_ids=96)
    monkeypatch.setattr(model, "forward", out_of_memory_above(model, 30, RuntimeError("shapes")))
    with pytest.raises(RuntimeError, match="shapes"):
        sums_of(model, documents)


def test_a_loss_that_is_not_finite_is_reported_for_its_document_only(documents):
    model = tiny_llama(num_ids=96)
    with torch.no_grad():
        model.model.embed_tokens.weight[77] = torch.nan
    bad = as_document(len(documents), [5, 77, 6])
    events = []
    rows = sums_of(model, [*documents, bad], on_event=events.append)
    holds_77 = [77 in document.ids[:-1] for document in [*documents, bad]]
    assert [math.isnan(row.nll_sum) for row in rows] == holds_77
    assert ["non_finite" in row.flags for row in rows] == holds_77
    named = [event["doc_id"] for event in events if event["kind"] == "non_finite"]
    assert named == [row.doc_id for row in rows if math.isnan(row.nll_sum)]
    assert 1 <= len(named) < len(rows)


@pytest.mark.parametrize("wrong", [96, -1])
def test_an_id_beyond_the_table_is_named(model, wrong):
    with pytest.raises(UserError, match=rf"document 3 \(doc3\) has the token id {wrong}"):
        sums_of(model, [as_document(3, [5, wrong, 6])])


def test_a_model_that_looks_ahead_is_refused():
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.5,
        is_decoder=False,
    )
    torch.manual_seed(0)
    with pytest.raises(UserError, match="not a causal language model"):
        sums_of(transformers.BertLMHeadModel(config), [as_document(0, [5, 6])])


def test_the_models_own_logits_serve_where_the_head_is_not_understood(documents, monkeypatch):
    model = tiny_llama(num_ids=96)
    forward = model.forward

    def shifted(input_ids, **given):
        output = forward(input_ids, **given)
        output.logits = output.logits + torch.linspace(0, 3, output.logits.shape[-1])
        return output

    monkeypatch.setattr(model, "forward", shifted)
    events = []
    rows = sums_of(model, documents, on_event=events.append)
    assert nll_sums(rows) == pytest.approx([own_sum(model, d.ids.tolist()) for d in documents], abs=1e-4)
    assert all(row.flags == ("full_logits",) for row in rows)
    assert events[0] == {"kind": "warning", "flag": "full_logits", "num_ids": 96}
    with pytest.raises(UserError, match="hidden states"):
        sums_of(model, documents, want=("hidden",))

"""Rows of several lengths in one pass: independent of one another, or not packed."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, CONTEXT, VOCABULARY
from oracles import as_document, sums_of

from stemmatics.lm.scoring.discover import capture_hidden
from stemmatics.lm.scoring.packed import can_be_packed, hidden_by_block

BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}
BLOCKS = [(2, 17), (1, 9), (3, 1)]
# Attention within a window, positions from the mask, layers that carry a state past a row's end.
NOT_PACKED = {
    "mistral_sliding",
    "olmo3_sliding",
    "gemma3",
    "cohere2_sliding",
    "falcon",
    "falcon_alibi",
    "falcon_h1",
}
SDPA = [architecture.name for architecture in ARCHITECTURES if architecture.sdpa]


def ids_of(blocks):
    total = sum(rows * length for rows, length in blocks)
    return torch.randint(0, VOCABULARY, (total,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", SDPA)
def test_what_is_packed_equals_each_row_alone(name):
    model = BY_NAME[name].build("sdpa").eval()
    packed = can_be_packed(model, VOCABULARY, CONTEXT)
    assert packed == (name not in NOT_PACKED)
    if packed:
        ids_N = ids_of(BLOCKS)
        rows = ids_N.split([length for rows, length in BLOCKS for _ in range(rows)])
        with torch.inference_mode():
            together_ND = hidden_by_block(model, ids_N, BLOCKS)
            alone_ND = torch.cat([capture_hidden(model, row_L[None])[0] for row_L in rows])
        assert torch.allclose(together_ND, alone_ND, rtol=1e-4, atol=1e-4 * float(alone_ND.abs().max()))


def test_a_window_of_attention_as_long_as_the_rows_is_packed():
    model = BY_NAME["mistral_sliding"].build("sdpa").eval()
    window = model.config.sliding_window
    assert can_be_packed(model, VOCABULARY, window)
    assert not can_be_packed(model, VOCABULARY, window + 1)


def test_eager_attention_is_not_packed():
    assert not can_be_packed(BY_NAME["llama"].build("eager").eval(), VOCABULARY, CONTEXT)


def test_the_model_keeps_its_attention(monkeypatch):
    model = BY_NAME["llama"].build("sdpa").eval()
    before = model.config._attn_implementation
    with torch.inference_mode():
        hidden_by_block(model, ids_of(BLOCKS), BLOCKS)
        assert model.config._attn_implementation == before
        monkeypatch.setattr(model.model, "norm", None)
        with pytest.raises(TypeError):
            hidden_by_block(model, ids_of(BLOCKS), BLOCKS)
    assert model.config._attn_implementation == before


def test_a_model_that_mixes_rows_is_found_out():
    model = BY_NAME["llama"].build("sdpa").eval()

    def leak(_module, _arguments, output):
        return output + 1e-3 * output.cumsum(1)

    handle = model.model.layers[0].mlp.register_forward_hook(leak)
    assert not can_be_packed(model, VOCABULARY, CONTEXT)
    handle.remove()
    assert can_be_packed(model, VOCABULARY, CONTEXT)


def test_sums_do_not_depend_on_the_neighbours():
    model = BY_NAME["qwen3"].build("sdpa").eval()
    generator = torch.Generator().manual_seed(2)
    texts = [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in (50, 3, 20, 19, 1, 33)]
    documents = [as_document(i, text) for i, text in enumerate(texts)]
    together = [row.nll_sum for row in sums_of(model, documents, context_length=CONTEXT)]
    alone = [sums_of(model, [document], context_length=CONTEXT)[0].nll_sum for document in documents]
    assert together == pytest.approx(alone, abs=1e-4)

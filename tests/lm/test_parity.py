"""Our document sums are those of the model's own logits, for every architecture in the list."""

from __future__ import annotations

import pytest
import torch
from tests.lm.architectures import ARCHITECTURES, CONTEXT, VOCABULARY, Architecture
from tests.lm.oracles import as_document, sums_of
from tests.lm.parity import compare, own_sum, texts
from tests.lm.tiny_checkpoints import make_tokenizer

from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.scoring.discover import discover_head

CASES = [(entry, attention) for entry in ARCHITECTURES for attention in entry.attentions]
# Two ways of adding up attention in fp32 differ by this much on documents of 64 tokens.
BETWEEN_BACK_ENDS = 5e-4


def test_the_list_is_long_enough():
    kinds = {entry.config for entry in ARCHITECTURES}
    assert len(kinds) >= 20


@pytest.mark.parametrize(("entry", "attention"), CASES, ids=[f"{e.name}-{a}" for e, a in CASES])
def test_sums_equal_the_models_own_logits(entry: Architecture, attention: str):
    model = entry.build(attention)
    head = discover_head(model, CONTEXT)
    assert head is not None, "fell back to the model's own logits, which proves nothing"
    assert head.transform.scale == pytest.approx(entry.scale, rel=1e-6)
    assert head.transform.cap == (entry.cap and pytest.approx(entry.cap, rel=1e-6))
    parity = compare(model)
    assert max(parity.sums) > CONTEXT
    assert parity.alone <= 1
    assert parity.mixed <= 1
    assert parity.right <= 1
    assert parity.left <= 1


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        # soft-capped attention logits have no sdpa; eager adds falcon's alibi twice in transformers 5.24
        ("gemma2_capped", "eager"),
        ("falcon_alibi", "sdpa"),
        ("llama", "sdpa"),
    ],
)
def test_auto_takes_the_attention_that_is_right(name: str, attention: str, tmp_path):
    entry = next(entry for entry in ARCHITECTURES if entry.name == name)
    made = entry.build(attention)
    made.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    loaded = load(str(tmp_path), Numerics(device="cpu"))
    assert loaded.model.config._attn_implementation == attention
    ids = texts()
    sums = sums_of(loaded.model, [as_document(i, row) for i, row in enumerate(ids)], context_length=CONTEXT)
    assert [row.nll_sum for row in sums] == pytest.approx(
        [own_sum(made, row) for row in ids], abs=1e-4, rel=1e-6
    )


@pytest.mark.parametrize(
    "entry", [entry for entry in ARCHITECTURES if len(entry.attentions) == 2], ids=lambda entry: entry.name
)
def test_eager_and_sdpa_agree(entry: Architecture):
    first, second = (compare(entry.build(attention)).sums for attention in entry.attentions)
    # An entry that is said to differ must, or what is said of it is out of date.
    assert (first == pytest.approx(second, abs=BETWEEN_BACK_ENDS)) is entry.back_ends_agree


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_the_blocked_head(dtype: torch.dtype):
    for entry in ARCHITECTURES:
        head = discover_head(entry.build(dtype=dtype), CONTEXT)
        assert head is not None, entry.name
        assert head.num_ids == VOCABULARY

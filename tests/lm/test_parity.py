"""Our document sums are those of the model's own logits, for every architecture in the list."""

from __future__ import annotations

import pytest
import torch
from tests.lm.architectures import ARCHITECTURES, CONTEXT, VOCABULARY, Architecture
from tests.lm.parity import compare

from stemmatics.lm.discover import discover_head

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

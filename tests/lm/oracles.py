"""Models whose losses are known, and documents for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import transformers

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument

BOS = 1


def as_document(index: int, ids: Sequence[int], **given) -> TokenizedDocument:
    """A document in which every token is one byte."""
    positions = np.arange(len(ids), dtype=np.int64)
    arrays = {
        "ids": np.asarray(ids, dtype=np.int64),
        "starts": positions,
        "ends": positions + 1,
        "classes": np.zeros(len(ids), dtype=np.int8),
    }
    return TokenizedDocument(index=index, doc_id=f"doc{index}", **(arrays | given))


def tiny_llama(
    *, num_ids: int = 64, layers: int = 2, context: int = 64, spread: float = 0.5, **settings
) -> torch.nn.Module:
    """O3: a random 2-layer model, initializer range 0.5, fp32."""
    config = transformers.LlamaConfig(
        vocab_size=num_ids,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        initializer_range=spread,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config).eval()


def flat_model(num_ids: int = 64) -> torch.nn.Module:
    """O1: a zeroed head, so that every token costs ln(num_ids)."""
    model = tiny_llama(num_ids=num_ids)
    torch.nn.init.zeros_(model.lm_head.weight)
    return model


def bigram_model(logits_VV: torch.Tensor) -> torch.nn.Module:
    """O2: no layers, so the logits of the next id follow from the last id alone.

    The embedding is a scaled unit matrix: normalised, its rows are sqrt(D) times unit vectors.
    """
    num_ids = len(logits_VV)
    config = transformers.LlamaConfig(
        vocab_size=num_ids,
        hidden_size=num_ids,
        intermediate_size=4,
        num_hidden_layers=0,
        num_attention_heads=1,
        rms_norm_eps=0.0,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(num_ids))
        model.lm_head.weight.copy_(logits_VV.T / num_ids**0.5)
    return model


def sums_of(
    model: torch.nn.Module,
    documents: Sequence[TokenizedDocument],
    *,
    windows: Windows | None = None,
    max_doc_tokens: int | None = None,
    prefix_id: int | None = BOS,
    context_length: int = 64,
    token_budget: int = 8192,
    **settings,
) -> list[DocumentSums]:
    scoring = Scoring(windows=windows or Windows(), max_doc_tokens=max_doc_tokens)
    return list(
        score(
            model,
            documents,
            scoring,
            Numerics(token_budget=token_budget),
            prefix_id=prefix_id,
            context_length=context_length,
            **settings,
        )
    )

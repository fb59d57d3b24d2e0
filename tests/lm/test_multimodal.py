"""Models with a wrapper for images are scored on text alone, as they compute it themselves."""

import json

import pytest
import torch
from tiny_checkpoints import make_tokenizer
from transformers import (
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from stemmatics.commands.score import score
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring

TEXTS = ["the scribe copied the text and the copy", "in 1234 and 2024, 12 34 bottles", "the faults"]
LANGUAGE = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
TOKENS = {"vision_start_token_id": 10, "vision_end_token_id": 11, "image_token_id": 12, "video_token_id": 13}


def qwen2_vl():
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 2}
    config = Qwen2VLConfig(text_config=LANGUAGE | ROPE, vision_config=vision, **TOKENS)
    return Qwen2VLForConditionalGeneration(config)


def qwen2_5_vl():
    vision = {"depth": 1, "hidden_size": 16, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 16}
    config = Qwen2_5_VLConfig(text_config=LANGUAGE | ROPE, vision_config=vision, **TOKENS)
    return Qwen2_5_VLForConditionalGeneration(config)


def llava():
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
        "projection_dim": 16,
    }
    text = LANGUAGE | {"model_type": "llama"}
    config = LlavaConfig(text_config=text, vision_config=vision | {"model_type": "clip_vision_model"})
    return LlavaForConditionalGeneration(config)


@pytest.mark.parametrize("build", [qwen2_vl, qwen2_5_vl, llava])
def test_text_is_scored_as_the_model_itself_computes_it(build, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    scored = score(
        str(tmp_path / "model"),
        tmp_path / "texts.jsonl",
        scoring=Scoring(prefix="never"),
        numerics=Numerics(device="cpu"),
    )
    assert "text_of_multimodal" in scored.flags
    for row, text in zip(scored.documents, TEXTS, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits_LV = model(torch.tensor([ids])).logits[0, :-1].double()
        own = float(-logits_LV.log_softmax(-1)[range(len(ids) - 1), ids[1:]].sum())
        assert row["nll_sum"] == pytest.approx(own, rel=1e-5)

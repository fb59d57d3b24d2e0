"""Tiny models of every kind of causal architecture that the engine must support.

Weights are drawn with a large spread (initializer range 0.5), so that logits are far from flat
and a wrong mask, position or scale shows. An entry that can't be built fails its test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

VOCABULARY = 96
CONTEXT = 64
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {"num_key_value_heads": 2}
_SLIDING = {"sliding_window": 8}


@dataclass(frozen=True)
class Architecture:
    name: str
    config: str
    settings: dict[str, Any] = field(default_factory=dict)
    common: bool = True
    eager: bool = True
    sdpa: bool = True
    # The head's transform that the model must be found to have.
    scale: float = 1.0
    cap: float | None = None
    back_ends_agree: bool = True

    @property
    def attentions(self) -> list[str]:
        return [name for name, has in (("eager", self.eager), ("sdpa", self.sdpa)) if has]

    def build(self, attention: str = "eager", dtype: torch.dtype = torch.float32) -> torch.nn.Module:
        config = getattr(transformers, self.config)(**(_COMMON if self.common else {}) | self.settings)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(
                config, attn_implementation=attention, dtype=dtype
            )
            # Biases start at zero: a head that loses its bias would go unseen.
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name.endswith("bias"):
                        parameter.normal_(0, 0.5)
        return model.eval()


_GPT2_NAMES = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": CONTEXT,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}

ARCHITECTURES = [
    Architecture("llama", "LlamaConfig", _GROUPED),
    Architecture("llama_tied", "LlamaConfig", _GROUPED | {"tie_word_embeddings": True}),
    Architecture("mistral_sliding", "MistralConfig", _GROUPED | _SLIDING),
    Architecture("qwen2", "Qwen2Config", _GROUPED),
    Architecture("qwen3", "Qwen3Config", _GROUPED | {"head_dim": 8}),
    Architecture("olmo2", "Olmo2Config", _GROUPED),
    Architecture("olmo3_sliding", "Olmo3Config", _GROUPED | _SLIDING),
    Architecture("gemma", "GemmaConfig", _GROUPED | {"head_dim": 8}),
    Architecture(
        "gemma2_capped",
        "Gemma2Config",
        _GROUPED | _SLIDING | {"head_dim": 8, "final_logit_softcapping": 5.0},
        sdpa=False,  # it does not cap attention, and transformers refuses it
        cap=5.0,
    ),
    Architecture("gemma3", "Gemma3TextConfig", _GROUPED | _SLIDING | {"head_dim": 8}),
    Architecture("smollm3", "SmolLM3Config", _GROUPED),
    Architecture("phi", "PhiConfig"),
    Architecture("phi3", "Phi3Config", _GROUPED),
    Architecture("gpt2", "GPT2Config", _GPT2_NAMES, common=False),
    Architecture("gptj_biased_head", "GPTJConfig", _GPT2_NAMES | {"rotary_dim": 4}, common=False),
    Architecture("gpt_neox", "GPTNeoXConfig"),
    Architecture("gpt_bigcode", "GPTBigCodeConfig", _GPT2_NAMES, common=False),
    Architecture("opt", "OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    Architecture("bloom", "BloomConfig", _GPT2_NAMES | {"hidden_size": 32}, common=False, sdpa=False),
    # transformers adds alibi twice under eager: once inside the mask, once beside it.
    Architecture("falcon_alibi", "FalconConfig", {"alibi": True}, back_ends_agree=False),
    Architecture("falcon", "FalconConfig"),
    Architecture("stablelm", "StableLmConfig", _GROUPED),
    Architecture("starcoder2", "Starcoder2Config", _GROUPED),
    Architecture("glm4", "Glm4Config", _GROUPED | {"head_dim": 8}),
    Architecture("granite_scaled", "GraniteConfig", _GROUPED | {"logits_scaling": 4.0}, scale=0.25),
    Architecture("cohere_scaled", "CohereConfig", _GROUPED | {"logit_scale": 0.125}, scale=0.125),
    Architecture("cohere2_sliding", "Cohere2Config", _GROUPED | _SLIDING | {"logit_scale": 0.5}, scale=0.5),
    Architecture("nemotron", "NemotronConfig", _GROUPED),
    Architecture("mixtral", "MixtralConfig", _GROUPED | _EXPERTS | {"num_local_experts": 4}),
    Architecture("olmoe", "OlmoeConfig", _GROUPED | _EXPERTS),
    Architecture("qwen2_moe", "Qwen2MoeConfig", _GROUPED | _EXPERTS | {"moe_intermediate_size": 24}),
    Architecture(
        "qwen3_moe", "Qwen3MoeConfig", _GROUPED | _EXPERTS | {"head_dim": 8, "moe_intermediate_size": 24}
    ),
    Architecture("granitemoe", "GraniteMoeConfig", _GROUPED | {"logits_scaling": 2.0}, scale=0.5),
    Architecture("mamba", "MambaConfig", {"state_size": 4}, sdpa=False),
    Architecture(
        "mamba2",
        "Mamba2Config",
        {"num_heads": 8, "head_dim": 8, "state_size": 4, "n_groups": 2, "chunk_size": 8},
        sdpa=False,
    ),
    Architecture(
        "falcon_h1",
        "FalconH1Config",
        _GROUPED
        | {
            "mamba_d_ssm": 64,
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_d_state": 8,
            "mamba_chunk_size": 8,
            "lm_head_multiplier": 2.0,
        },
        scale=2.0,
    ),
    Architecture("nanochat_capped", "NanoChatConfig", _GROUPED | {"final_logit_softcapping": 7.0}, cap=7.0),
]

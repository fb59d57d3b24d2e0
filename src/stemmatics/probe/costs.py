"""What facts take, estimated without loading a weight."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

import torch

from stemmatics.core.facts import Fact
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.lm.checkpoints.loading import device_of, dtype_of, load_config
from stemmatics.lm.checkpoints.pin import Pin, pin
from stemmatics.probe.base import Cost
from stemmatics.probe.sources import spec_of

# operations a parameter and token: a multiplication and an addition forward, twice that backward,
# once where the parameter is frozen
FORWARD, RECOVERY, TRAINING = 2, 4, 6
_BYTES_PER_TOKEN = 4
_FLOAT = 4
# weights, gradients and Adam's two moments
_TRAINING_COPIES = 4


def num_tokens(corpus: Fact) -> int:
    """Tokens of a corpus, at four bytes a token."""
    return int(corpus.params.get("num_bytes", 0)) // _BYTES_PER_TOKEN


def num_parameters(checkpoint: Fact) -> int:
    """Parameters of a checkpoint, made or given; a model to be pretrained is counted by its shape."""
    if checkpoint.probe == "weights" and checkpoint.where.get("num_parameters"):
        return int(checkpoint.where["num_parameters"])
    if checkpoint.probe == "weights":
        return declared_parameters(spec_of(checkpoint), trust=bool(checkpoint.where.get("trust_remote_code")))
    shape = checkpoint.params.get("architecture")
    if shape is None:
        return num_parameters(checkpoint.needs["init"])
    width, heads = int(shape["hidden_size"]), 1 if shape["kind"] == "llama" else 2
    # attention takes 4 width^2, the MLP of the usual width 8 width^2
    return int(shape["vocab_size"]) * width * heads + 12 * int(shape["num_layers"]) * width**2


@cache
def declared_parameters(spec: str, *, trust: bool) -> int:
    """Parameters of a checkpoint by its config alone."""
    from transformers import AutoModelForCausalLM

    config = load_config(pin(spec), trust_remote_code=trust)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    return sum(weight.numel() for weight in model.parameters())


def forward_cost(checkpoint: Fact, tokens: int, disk_bytes: int = 0) -> Cost:
    """Tokens through a checkpoint once."""
    size = num_parameters(checkpoint)
    return Cost(tokens, float(FORWARD) * size * tokens, size * _FLOAT, disk_bytes)


def training_cost(fact: Fact) -> Cost:
    """A stage: its recipe's tokens forward and backward, and its checkpoint on disk."""
    size = num_parameters(fact)
    recipe = fact.params.get("recipe")
    if fact.params["kind"] == "recovery":
        return _recovery_cost(fact, size)
    if recipe is None:
        return Cost(memory_bytes=size * _FLOAT, disk_bytes=size * _FLOAT)
    steps = recipe["stop_at"] or recipe["steps"]
    tokens = int(steps * recipe["batch_size"] * recipe["max_length"])
    memory = size * _FLOAT * _TRAINING_COPIES
    # what is rewarded has been written before
    flops = TRAINING + (FORWARD if fact.params["kind"] == "grpo" else 0)
    return Cost(tokens, float(flops) * size * tokens, memory, size * _FLOAT)


def _recovery_cost(fact: Fact, size: int) -> Cost:
    """Backward through frozen weights: no gradient of theirs. The adapter's own size is its bound on disk."""
    recipe = RecoveryRecipe.model_validate(fact.params["recipe"])
    tokens = recipe.updates * recipe.update_tokens
    parts = _recovery_parts(fact, recipe)
    memory = sum(parts.values()) if parts else size * _FLOAT
    return Cost(tokens, float(RECOVERY) * size * tokens, memory, size * _FLOAT, memory_parts=parts)


def _recovery_parts(fact: Fact, recipe: RecoveryRecipe) -> dict[str, int]:
    """Bytes by part; empty for a checkpoint whose config is not there yet, or that can't be counted."""
    from stemmatics.train.recovery_memory import recovery_memory

    start = fact.needs["init"]
    if start.probe != "weights" or start.params.get("planned"):
        return {}
    numerics = Numerics.model_validate(fact.params.get("numerics") or {})
    trust = bool(start.where.get("trust_remote_code"))
    config = load_config(pin(spec_of(start)), trust_remote_code=trust)
    dtype = dtype_of(numerics, device_of(numerics))
    if dtype == "auto":
        dtype = getattr(config.get_text_config(), "dtype", None) or torch.float32
    positions = min(numerics.token_budget, recipe.update_tokens)
    memory = recovery_memory(config, recipe, dtype=dtype, num_positions=positions, trust_remote_code=trust)
    return {} if memory is None else asdict(memory)


def weights_cost(fact: Fact) -> Cost:
    """What has to be downloaded: a Hub model that is not in the local cache, at its own precision."""
    if fact.params.get("planned"):
        # its precision is not known: no release is wider
        return Cost(download_bytes=num_parameters(fact) * _FLOAT)
    pinned = pin(spec_of(fact))
    if pinned.kind != "hub" or _is_cached(pinned):
        return Cost()
    dtype = getattr(load_config(pinned).get_text_config(), "dtype", None) or torch.float32
    return Cost(download_bytes=num_parameters(fact) * torch.empty(0, dtype=dtype).element_size())


def _is_cached(pinned: Pin) -> bool:
    from huggingface_hub import try_to_load_from_cache

    weights = [name for name in pinned.files if name.endswith((".safetensors", ".bin"))]
    name = pinned.source.partition("@")[0]
    return all(
        isinstance(try_to_load_from_cache(name, file, revision=pinned.revision), str) for file in weights
    )

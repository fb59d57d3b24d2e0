"""Models from random weights, read from a folder, and written to one atomically."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Architecture
from stemmatics.lm.checkpoints.loading import device_of, dtype_of, savable_generation_config
from stemmatics.lm.tokens.file_backend import load_tokenizer_of


def build_model(
    architecture: Architecture, tokenizer: PreTrainedTokenizerBase, numerics: Numerics
) -> PreTrainedModel:
    """A model with random weights (torch's current generator) and as many ids as the tokenizer.

    ``llama`` ties its head to the embedding; ``phi`` has a head of its own with a bias.
    """
    if architecture.hidden_size % (2 * architecture.num_heads):
        raise UserError(
            f"hidden_size {architecture.hidden_size} can't be split into {architecture.num_heads} even heads",
            "rotary positions need an even number of dimensions in each head",
            f"choose a multiple of {2 * architecture.num_heads}",
        )
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": architecture.hidden_size,
        "num_hidden_layers": architecture.num_layers,
        "num_attention_heads": architecture.num_heads,
        "max_position_embeddings": architecture.context,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        # Small init of Nguyen and Salazar 2019; the usual 0.02 suits a width of a thousand.
        "initializer_range": math.sqrt(2 / (5 * architecture.hidden_size)),
        **_attention(numerics),
    }
    if architecture.kind == "phi":
        # All dimensions of a head rotate: Phi's default of half suits heads four times as wide.
        rotary = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
        wide = 4 * architecture.hidden_size
        dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0}
        return PhiForCausalLM(PhiConfig(intermediate_size=wide, rope_parameters=rotary, **dropout, **shape))
    # Three matrices of 8/3 of the width hold as many weights as the usual two of four times the width.
    wide = 8 * ((architecture.hidden_size // 3) or 1)
    return LlamaForCausalLM(LlamaConfig(intermediate_size=wide, tie_word_embeddings=True, **shape))


def load_model(folder: Path, numerics: Numerics, *, frozen: bool = False) -> PreTrainedModel:
    """The model in ``folder``, in float32: small updates would be lost in 16 bits.

    ``frozen``: in the precision of the numerics, for weights that only adapters in float32 are added to.
    """
    model, report = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype_of(numerics, device_of(numerics)) if frozen else torch.float32,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        **_attention(numerics),
    )
    if missing := sorted(report["missing_keys"]):
        raise UserError(
            f"{folder.name} lacks {len(missing)} tensors, the first {missing[0]}",
            "transformers would fill them with random numbers",
            "complete the checkpoint",
        )
    return model


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in ``folder``; makes no network request."""

    def load_class() -> PreTrainedTokenizerBase:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)

    return load_tokenizer_of(folder, load_class)[0]


def save_checkpoint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save config, safetensors, tokenizer and chat template in the format of transformers.

    Raises:
        UserError: a weight is not finite.
    """
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise UserError(
                f"the weights of {name} are not finite",
                "the last update overflowed",
                "lower the stage's learning_rate or scale",
            )
    with savable_generation_config(model):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that is renamed to it when the block ends without an error.

    Raises:
        UserError: ``out`` already has files.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            f"{out} already exists",
            "a stage never overwrites a checkpoint",
            "remove it or choose another folder",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
    try:
        yield part
        # mkdtemp makes a folder for its owner only; a checkpoint has the usual permissions.
        part.chmod(0o755)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _attention(numerics: Numerics) -> dict[str, str]:
    return {} if numerics.attention == "auto" else {"attn_implementation": numerics.attention}

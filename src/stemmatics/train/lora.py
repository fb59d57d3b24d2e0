"""Low-rank adapters: adding, checking and merging them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from stemmatics.core.errors import UserError
from stemmatics.core.stages import Lora
from stemmatics.lm.checkpoints.adapters import merged as merge


def with_adapters(model: PreTrainedModel, lora: Lora) -> PeftModel:
    """Adapters on the target layers (scaling alpha / rank, no dropout), initialised from torch's generator.

    Raises:
        UserError: a target names no layer of the model.
    """
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.rank,
        target_modules=lora.targets,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    names = [name for name, _ in model.named_modules()]
    targets = [] if isinstance(lora.targets, str) else lora.targets
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise _no_match(target, model)
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise _no_match(str(lora.targets), model) from error


def merged(adapted: PeftModel) -> PreTrainedModel:
    """The model with its adapters added to its weights.

    Raises:
        UserError: an adapter did not move, so that the training did nothing there.
    """
    check_moved(adapted)
    return merge(adapted.eval(), "of this stage")


def check_moved(adapted: PeftModel) -> None:
    """Check that every adapter has received a gradient.

    Raises:
        UserError: an adapter did not move, so that the training did nothing there.
    """
    still = [
        name
        for name, weight in adapted.named_parameters()
        if "lora_B" in name and not torch.linalg.vector_norm(weight) > 0
    ]
    if still:
        raise UserError(
            f"{len(still)} adapters did not move, the first {still[0]}",
            "no gradient reached them",
            "leave those layers out of the targets",
        )


def save_adapter(adapted: PeftModel, folder: Path) -> None:
    """Save the adapter's config and safetensors, without the model and its path."""
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "base_model_name_or_path": None}, indent=2), encoding="utf-8")


def _no_match(target: str, model: PreTrainedModel) -> UserError:
    linear = {
        name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)
    }
    return UserError(
        f"the adapter target {target!r} matches no layer",
        "nothing would be trained",
        f"use all-linear or some of {', '.join(sorted(linear))}",
    )

"""Changes of a model's head that can be saved in a plain checkpoint.

Axes: V vocabulary, D width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring import corrected_logits
from stemmatics.lm.scoring.discover import discover_head
from stemmatics.lm.scoring.head import Transform
from stemmatics.store.files import write_bytes


def untie(model: Any) -> Tensor:
    """The head's weights, (V, D), as a separate parameter, so that changes do not affect the embedding."""
    head = model.get_output_embeddings()
    if head.weight is model.get_input_embeddings().weight:
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    model.config.get_text_config().tie_word_embeddings = False
    model.config.tie_word_embeddings = False
    weight: Tensor = head.weight
    return weight


def add_noise(model: Any, noise_VD: Tensor, sigma: float) -> None:
    """W + sigma N on the output product only, in place; a tied embedding is not changed."""
    with torch.no_grad():
        weight_VD = untie(model)
        weight_VD.copy_(weight_VD.float() + sigma * noise_VD.to(weight_VD.device))


def write_processor(
    folder: Path, ids: NDArray[np.int64], bias: NDArray[np.float64], inverse_temperature: float
) -> list[Path]:
    """Write a standalone LogitsProcessor: ``correction.py`` and ``correction.safetensors``."""
    arrays = {
        "ids": ids,
        "bias": bias.astype(np.float32),
        "inverse_temperature": np.array(inverse_temperature, dtype=np.float32),
    }
    program, weights = folder / "correction.py", folder / "correction.safetensors"
    write_bytes(weights, safetensors.numpy.save(arrays))
    write_bytes(program, Path(corrected_logits.__file__).read_bytes())
    return [program, weights]


def fold_correction(
    model: Any, ids: NDArray[np.int64], bias: NDArray[np.float64], inverse_temperature: float, context: int
) -> None:
    """Make the model's own logits beta * z + b, in place.

    Raises UserError if the head can't represent it: a bias needs a head with a bias, and a soft cap or a
    scale changes the effect of weights and bias.
    """
    discovered = discover_head(model, context)
    if discovered is None or discovered.transform != Transform():
        raise UserError(
            f"the head of {type(model).__name__} can't represent a correction",
            "the model transforms the logits after the head",
            "Use --as transformers, which corrects the logits themselves",
        )
    head = model.get_output_embeddings()
    if len(ids) and head.bias is None:
        raise UserError(
            f"the head of {type(model).__name__} has no bias",
            "its architecture has no bias per token",
            "Use --as transformers or --as vllm, or --arm temperature",
        )
    with torch.no_grad():
        untie(model).mul_(inverse_temperature)
        if head.bias is not None:
            head.bias.mul_(inverse_temperature)
            added = torch.from_numpy(bias).to(head.bias.device, head.bias.dtype)
            head.bias.index_add_(0, torch.from_numpy(ids).to(head.bias.device), added)

"""A correction of the logits for ``generate``: beta * z + b. Needs only torch and transformers.

This file is written beside ``correction.safetensors`` by ``stemma export --correction`` and used from there:

    from correction import Correction
    model.generate(**inputs, logits_processor=[Correction()])
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LogitsProcessor


class Correction(LogitsProcessor):
    """Adds a bias to some token ids and divides by a temperature, the same at every position."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Read the weights; ``path`` is ``correction.safetensors`` beside this file by default."""
        tensors = load_file(Path(__file__).with_name("correction.safetensors") if path is None else path)
        self.ids = tensors["ids"]
        self.bias = tensors["bias"]
        self.inverse_temperature = float(tensors["inverse_temperature"])

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Corrected logits, of the shape of ``scores`` (..., vocabulary)."""
        del input_ids
        corrected = scores * self.inverse_temperature
        bias = self.bias.to(scores.device, scores.dtype)
        return corrected.index_add(-1, self.ids.to(scores.device), bias.expand(*scores.shape[:-1], -1))

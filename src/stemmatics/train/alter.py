"""Changes of weights with a known effect."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from
from stemmatics.core.stages import Alter


def alter(model: PreTrainedModel, stage: Alter, seed: int) -> None:
    """Change ``model`` (float32) in place.

    ``bias``: b + scale n, with n standard normal, one draw per id. ``temperature``: every logit times
    ``scale``, by scaling the head's weight and bias; a tied head is untied first, since the embedding
    must not change. ``noise``: W + scale std(W) N for every matrix W, the embedding included, a tied one
    once. Each tensor has its own generator, seeded from the seed and the tensor's name.

    Raises:
        UserError: ``bias`` on a head without one.
    """
    with torch.no_grad():
        if stage.change == "bias":
            _shift_bias(model, stage.scale, seed)
        elif stage.change == "temperature":
            _scale_logits(model, stage.scale)
        else:
            _add_noise(model, stage.scale, seed)


class MatrixNoise:
    """The noise of ``alter`` on every matrix of a model, drawn once for any number of scales.

    It takes as much memory as the matrices in float32.
    """

    def __init__(self, model: PreTrainedModel, seed: int) -> None:
        self._parts = [
            (weight.detach(), weight.detach().std(), _normal(weight, seed, name))
            for name, weight in model.named_parameters()
            if weight.ndim >= 2
        ]

    def put_on(self, model: PreTrainedModel, scale: float) -> None:
        """Make the matrices of ``model``, which has the shape of the first, those of the first with noise."""
        matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
        with torch.no_grad():
            for weight, (clean, deviation, normal) in zip(matrices, self._parts, strict=True):
                weight.copy_(clean)
                if scale:
                    weight.add_(scale * deviation * normal)


def _shift_bias(model: PreTrainedModel, scale: float, seed: int) -> None:
    bias = getattr(model.get_output_embeddings(), "bias", None)
    if bias is None:
        raise UserError(
            f"the head of {type(model).__name__} has no bias",
            "the stage adds to that bias",
            "use a model whose head has one, such as architecture kind: phi",
        )
    bias += scale * _normal(bias, seed, "head.bias")


def _scale_logits(model: PreTrainedModel, scale: float) -> None:
    head = model.get_output_embeddings()
    if model.config.tie_word_embeddings:
        head.weight = torch.nn.Parameter(head.weight.clone())
        model.config.tie_word_embeddings = False
    head.weight *= scale
    if head.bias is not None:
        head.bias *= scale


def _add_noise(model: PreTrainedModel, scale: float, seed: int) -> None:
    for name, weight in model.named_parameters():
        if weight.ndim >= 2:
            weight.add_(scale * weight.std() * _normal(weight, seed, name))


def _normal(like: torch.Tensor, seed: int, name: str) -> torch.Tensor:
    draw = np.random.default_rng(seed_from(seed, name)).standard_normal(tuple(like.shape), dtype=np.float32)
    return torch.from_numpy(draw).to(like.device)

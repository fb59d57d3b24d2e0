"""Adapters of PEFT on a base: loaded completely, scored at the positions of the text, merged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stemmatics.core.errors import UserError
from stemmatics.lm.checkpoints.damage import first_line
from stemmatics.lm.checkpoints.hub import some

# Of the largest logit: what rounding of merged weights may move a logit.
MERGE_TOLERANCE = 1e-5
NUM_PROBE_TOKENS = 12
# Of the largest logit: what rounding may move it when other rows are computed with it, in eps of the dtype.
MIXING_ROUNDING = 1000


def put_on(model: Any, folder: Path, source: str, *, merge: bool) -> tuple[Any, dict[str, str]]:
    """The model with the adapter in ``folder``; ``source`` is its name.

    Returns the adapted model, or with ``merge`` the plain one with the adapter in its weights, and flags.

    Raises:
        UserError: the adapter does not fit, or a merge is wanted and is not possible or not exact.
    """
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(model, folder, is_trainable=False)
    # from_pretrained only warns about unmatched tensors; loading again returns their names.
    result = adapted.load_adapter(folder, adapter_name="default", is_trainable=False)
    prompt = adapted.active_peft_config.is_prompt_learning
    missing = _not_loaded(adapted, result.missing_keys)
    if missing and not prompt:
        raise UserError(
            f"Adapter {source} does not fit: {some(missing)} missing",
            "its tensors and the modules that its config targets are not the same",
            "Check that it was trained on this base",
        )
    flags = {}
    # a virtual prompt has one tensor, which PEFT puts into its encoder under another name
    if result.unexpected_keys and not prompt:
        flags["unexpected_adapter_tensors"] = f"not in the model: {some(sorted(result.unexpected_keys))}"
    if prompt:
        _cut_virtual_positions(adapted)
    adapted.eval()
    _refuse_unless_by_row(adapted, source)
    return (merged(adapted, source) if merge else adapted), flags


def num_virtual_tokens(model: nn.Module) -> int:
    """Positions that a virtual prompt takes from the model's context; 0 without one."""
    config = getattr(model, "active_peft_config", None)
    return int(config.num_virtual_tokens or 0) if config is not None and config.is_prompt_learning else 0


def _kind(adapted: Any) -> str:
    kind = adapted.active_peft_config.peft_type
    return str(getattr(kind, "value", kind))


def _not_loaded(adapted: Any, names: Sequence[str]) -> list[str]:
    """Missing tensors, without those that are another name of a tensor that was loaded."""
    tensors = dict(adapted.named_parameters(remove_duplicate=False))
    loaded = {tensor.data_ptr() for name, tensor in tensors.items() if name not in names}
    return sorted(name for name in names if name not in tensors or tensors[name].data_ptr() not in loaded)


@torch.inference_mode()
def _refuse_unless_by_row(adapted: Any, source: str) -> None:
    """Raise UserError where an adapter can't be run on ids alone, or mixes rows or later positions in.

    Medians over positions, since in a mixture of experts rounding may move a token to another expert.
    """
    ids_2L = torch.stack([_probe_ids(adapted), _probe_ids(adapted).flip(0)])
    later_1L = torch.cat([ids_2L[:1, : NUM_PROBE_TOKENS // 2], ids_2L[1:, : NUM_PROBE_TOKENS // 2]], 1)
    try:
        alone, both, other = (adapted(ids).logits[0].float() for ids in (ids_2L[:1], ids_2L, later_1L))
    except Exception as error:  # each kind of adapter fails in its own way
        raise UserError(
            f"adapter {source} can't be run",
            f"{_kind(adapted)} needs more than token ids: {first_line(error)}",
            "Score its base, or an adapter of another kind",
        ) from error
    limit = min(MIXING_ROUNDING * torch.finfo(adapted.dtype).eps, 0.05) * max(1.0, float(alone.abs().max()))
    half = slice(NUM_PROBE_TOKENS // 2)
    for changed, with_what in (
        (both - alone, "other rows of a batch"),
        ((other - alone)[half], "later tokens"),
    ):
        if not float(changed.abs().amax(1).median()) <= limit:
            raise UserError(
                f"adapter {source} gives a text no loss of its own",
                f"with {_kind(adapted)}, predictions change with the {with_what}",
                "Score its base, or an adapter of another kind",
            )


def _cut_virtual_positions(adapted: Any) -> None:
    """Let the adapted model give logits at the positions of its input only.

    PEFT puts the prompt's vectors before the embedded text (prompt tuning), or into the cache (prefix
    tuning), where the output has no position for them.
    """

    def cut(_model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is not None and output.logits.shape[1] > ids.shape[1]:
            output.logits = output.logits[:, -ids.shape[1] :]
        return output

    adapted.register_forward_hook(cut, with_kwargs=True)


def merged(adapted: Any, source: str) -> Any:
    """The base with the adapter in its weights. Raises UserError where its outputs would be others."""
    kind = _kind(adapted)
    before = _probe(adapted)
    _untie(adapted)
    try:
        plain = adapted.merge_and_unload()
    except Exception as error:  # each kind of adapter refuses in its own way
        raise UserError(
            f"adapter {source} can't be merged",
            f"{kind} adapters are no change of weights: {first_line(error)}",
            "Leave out what needs a plain model (stages, depth, recovery); loss, divergence and prior work",
        ) from error
    if not hasattr(plain, "get_output_embeddings"):
        raise UserError(
            f"adapter {source} can't be merged",
            f"merging a {kind} adapter leaves a {type(plain).__name__}, which is no language model",
            "Leave out what needs a plain model (stages, depth, recovery)",
        )
    plain.eval()
    head = plain.get_output_embeddings()
    if head is not None and head.weight is not plain.get_input_embeddings().weight:
        # else saving would drop the head
        plain.config.get_text_config().tie_word_embeddings = plain.config.tie_word_embeddings = False
    after = _probe(plain)
    worst, largest = float((after - before).abs().max()), float(before.abs().max())
    eps = torch.finfo(plain.dtype).eps
    if not worst <= max(MERGE_TOLERANCE, 16 * eps) * max(1.0, largest):
        raise UserError(
            f"adapter {source} changes when it is merged",
            f"a logit moves by {worst:.2g} of {largest:.2g}: a {kind} adapter on these modules is no exact "
            "change of weights",
            "Leave out what needs a plain model (stages, depth, recovery), or merge it yourself",
        )
    return plain


def _untie(adapted: Any) -> None:
    """Give a head that an adapter changes, or an embedding, weights of its own: merging would move both."""
    head, embedding = adapted.get_output_embeddings(), adapted.get_input_embeddings()
    head, embedding = (getattr(module, "base_layer", module) for module in (head, embedding))
    changed = any(
        hasattr(module, "base_layer")
        for module in (adapted.get_output_embeddings(), adapted.get_input_embeddings())
    )
    if head is None or not changed or head.weight is not embedding.weight:
        return
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)


def _probe_ids(model: Any) -> Tensor:
    num_ids = int(model.get_input_embeddings().weight.shape[0])
    return (torch.arange(NUM_PROBE_TOKENS, device=model.device) * 7919 + 1) % num_ids


@torch.inference_mode()
def _probe(model: Any) -> Tensor:
    """Logits of some ids in float32, spread over the vocabulary."""
    logits: Tensor = model(_probe_ids(model)[None]).logits[0].float().cpu()
    return logits

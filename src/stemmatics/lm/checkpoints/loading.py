"""Loads complete checkpoints only, and saves checkpoints that load the same.

A missing tensor, an adapter that does not match and a refused file are errors; other oddities are
named flags of the loaded model.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.adapters import num_virtual_tokens, put_on
from stemmatics.lm.checkpoints.assemble import assembled, explained, gguf_argument, origin
from stemmatics.lm.checkpoints.damage import refuse_left_over, why_missing
from stemmatics.lm.checkpoints.gguf import forget_quantization, repair
from stemmatics.lm.checkpoints.hub import some
from stemmatics.lm.checkpoints.pin import CONFIG_FILES, TOKENIZER, Pin, pin
from stemmatics.lm.tokens.file_backend import load_tokenizer_of
from stemmatics.lm.tokens.tokenizer import TextTokenizer

CAUSAL = "AutoModelForCausalLM"
# settings of generation that only sampling uses
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "top_h")
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")


@dataclass(frozen=True)
class Loaded:
    """A checkpoint in memory.

    ``model`` is in evaluation mode without gradients. ``flags`` are named oddities with
    explanations; ``context_length`` is in positions, None where the architecture states no limit;
    ``num_ids`` is the number of rows of the embedding table; ``stop_ids`` end a text.
    """

    model: Any
    tokenizer: Any
    pin: Pin
    context_length: int | None
    num_ids: int
    stop_ids: tuple[int, ...]
    flags: dict[str, str] = field(default_factory=dict)

    @cached_property
    def text_tokenizer(self) -> TextTokenizer:
        """The tokenizer as it is used on text; it is checked once, when it is made."""
        return TextTokenizer(self.tokenizer)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights and buffers, shared ones once."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        sizes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(sizes.values())


def load(
    checkpoint: str | Pin,
    numerics: Numerics,
    *,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    merge_adapter: bool = False,
    offline: bool | None = None,
) -> Loaded:
    """Load model and tokenizer.

    Args:
        checkpoint: a spec as ``pin.parse`` takes it, or a pin; changed files are an error.
        numerics: device, precision and attention. ``dtype: auto`` is float32 on CPU and the
            checkpoint's own elsewhere.
        trust_remote_code: run Python code that comes with the checkpoint.
        allow_pickle: read ``.bin`` weights.
        merge_adapter: add an adapter's weights into the base and drop the adapter's modules.
        offline: as in ``pin.pin``.

    Raises:
        UserError: missing, mismatched or refused files; a missing tensor; an adapter that matches
            nothing; no tokenizer.
    """
    pinned = checkpoint if isinstance(checkpoint, Pin) else pin(checkpoint, offline=offline)
    base = pinned.parts[0] if pinned.parts else pinned
    refuse_pickle(pinned, allow_pickle=allow_pickle)
    model, flags = _load_model(base, numerics, trust_remote_code=trust_remote_code, offline=offline)
    if pinned.parts:
        model, adapter_flags = _with_adapter(model, pinned.parts[1], merge=merge_adapter, offline=offline)
        flags |= adapter_flags
    model.eval().requires_grad_(requires_grad=False)
    tokenizer, tokenizer_flags = load_tokenizer(pinned, trust_remote_code=trust_remote_code, offline=offline)
    stop_ids, stop_flags = end_of_text(tokenizer, model)
    num_ids = int(model.get_input_embeddings().weight.shape[0])
    beyond = [token for token, number in tokenizer.get_vocab().items() if number >= num_ids]
    if beyond:
        flags["ids_beyond_table"] = (
            f"{len(beyond)} tokens have ids beyond the embedding table's {num_ids} rows, as {min(beyond)!r}"
        )
    notices = {"notice": "; ".join(pinned.notices)} if pinned.notices else {}
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        pin=pinned,
        context_length=_context_of(model),
        num_ids=num_ids,
        stop_ids=stop_ids,
        flags=flags | tokenizer_flags | stop_flags | notices,
    )


def in_memory(model: Any, tokenizer: Any) -> Loaded:
    """A model that is in memory already, such as one in training, with its tokenizer; nothing is changed."""
    stop_ids, flags = end_of_text(tokenizer, model)
    nowhere = Pin(
        kind="folder",
        source="a model in memory",
        revision=None,
        files={},
        weights_sha256="",
        tokenizer_sha256=None,
        config_sha256="",
    )
    num_ids = int(model.get_input_embeddings().weight.shape[0])
    return Loaded(model, tokenizer, nowhere, _context_of(model), num_ids, stop_ids, flags)


def load_tokenizer(
    checkpoint: str | Pin, *, trust_remote_code: bool = False, offline: bool | None = None
) -> tuple[Any, dict[str, str]]:
    """The tokenizer alone and its flags: the adapter's if it carries one, else the base's."""
    from transformers import AutoTokenizer

    pinned = checkpoint if isinstance(checkpoint, Pin) else pin(checkpoint, offline=offline)
    if pinned.tokenizer_sha256 is None:
        raise UserError(
            f"{pinned.source} has no tokenizer",
            "there is no tokenizer.json and no other vocabulary file",
            "Save the tokenizer into the same folder",
        )
    owner = pinned
    if pinned.parts:
        owner = pinned.parts[1] if pinned.parts[1].tokenizer_sha256 is not None else pinned.parts[0]
    names = [
        name
        for name in owner.files
        if TOKENIZER.fullmatch(name) or name == "config.json" or name.lower().endswith((".py", ".gguf"))
    ]
    with assembled(owner, names, offline=offline) as folder, explained(owner.source):

        def load_class() -> Any:
            return AutoTokenizer.from_pretrained(
                folder, trust_remote_code=trust_remote_code, local_files_only=True, **gguf_argument(owner)
            )

        if owner.kind == "gguf":
            tokenizer = load_class()
            flags = repair(tokenizer, folder / next(iter(owner.files)))
        else:
            tokenizer, flags = load_tokenizer_of(folder, load_class)
    tokenizer.name_or_path = origin(owner)
    return tokenizer, flags


def load_config(checkpoint: Pin, *, trust_remote_code: bool = False, offline: bool | None = None) -> Any:
    """The config alone (the base's, for an adapted checkpoint); no weights are read."""
    from transformers import AutoConfig

    base = checkpoint.parts[0] if checkpoint.parts else checkpoint
    names = [name for name in base.files if name in CONFIG_FILES or name.lower().endswith((".py", ".gguf"))]
    with assembled(base, names, offline=offline) as folder, explained(base.source):
        return AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True, **gguf_argument(base)
        )


def _auto_class(folder: Path, base: Pin, *, trust_remote_code: bool) -> Any:
    """The class to load with: of a model with a wrapper for images the wrapper, which takes text too."""
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    if base.kind == "gguf":
        # reading its metadata takes seconds, and it holds no wrapper
        return transformers.AutoModelForCausalLM
    kind = transformers.AutoConfig.from_pretrained(
        folder, trust_remote_code=trust_remote_code, local_files_only=True
    ).model_type
    is_wrapper = (
        kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    )
    return getattr(transformers, "AutoModelForImageTextToText" if is_wrapper else CAUSAL)


def generation_flags(checkpoint: Pin, *, offline: bool | None = None) -> dict[str, str]:
    """A flag where generation_config.json has settings that transformers loads and refuses to save."""
    from transformers import GenerationConfig

    base, name = checkpoint.parts[0] if checkpoint.parts else checkpoint, "generation_config.json"
    if name not in base.files:
        return {}
    with assembled(base, [name], offline=offline) as folder, explained(base.source):
        config = GenerationConfig.from_pretrained(folder)
    try:
        config.validate(strict=True)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        return {
            "generation_config_not_savable": f"{name} can't be saved as it is ({reason}); checkpoints made "
            "from this one leave the settings of sampling out"
        }
    return {}


def _load_model(
    base: Pin, numerics: Numerics, *, trust_remote_code: bool, offline: bool | None
) -> tuple[Any, dict[str, str]]:
    device = device_of(numerics)
    with assembled(base, list(base.files), offline=offline) as folder, explained(base.source):
        auto_class = _auto_class(folder, base, trust_remote_code=trust_remote_code)
        model, info = auto_class.from_pretrained(
            folder,
            dtype=dtype_of(numerics, device),
            attn_implementation=None if numerics.attention == "auto" else numerics.attention,
            device_map=None if device.type == "cpu" else {"": device},
            trust_remote_code=trust_remote_code,
            local_files_only=True,
            output_loading_info=True,
            # named below, since the library only points at its log
            ignore_mismatched_sizes=True,
            **gguf_argument(base),
        )
    missing = sorted(info["missing_keys"])
    if missing:
        why, fix = why_missing(missing, sorted(info["unexpected_keys"]))
        raise UserError(
            f"{base.source} lacks {len(missing)} tensors: {some(missing)}",
            why or f"{type(model).__name__} needs them; they would be random",
            fix or "Download or copy the complete checkpoint again",
        )
    if mismatched := sorted(str(entry[0]) for entry in info.get("mismatched_keys", ())):
        raise UserError(
            f"tensors of {base.source} have other shapes than config.json says: {some(mismatched, 3)}",
            "the config belongs to another checkpoint, or vocabulary or layers were changed",
            "Restore the config.json that belongs to these weights",
        )
    flags = {}
    if unexpected := refuse_left_over(sorted(info["unexpected_keys"]), model, base.source):
        flags["unexpected_tensors"] = f"in the files but not in {type(model).__name__}: {some(unexpected)}"
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    text = model.config.get_text_config()
    if getattr(text, "tie_word_embeddings", model.config.tie_word_embeddings) and not tied:
        flags["head_not_tied"] = (
            "the config ties head and embedding, but the files have two different ones; both are used"
        )
    if getattr(model.config, "auto_map", None) and not trust_remote_code:
        flags["custom_code_ignored"] = (
            "the checkpoint brings its own code, which was not run; transformers' class is used"
        )
    if auto_class.__name__ != CAUSAL:
        flags["text_of_multimodal"] = (
            f"{type(model).__name__} also takes images or sound; its text alone is scored"
        )
    if base.kind == "gguf":
        forget_quantization(model)
    model.config.name_or_path = model.name_or_path = origin(base)
    return model, flags


def _with_adapter(
    model: Any, adapter: Pin, *, merge: bool, offline: bool | None
) -> tuple[Any, dict[str, str]]:
    names = [name for name in adapter.files if name.startswith("adapter_")]
    with assembled(adapter, names, offline=offline) as folder, explained(adapter.source):
        return put_on(model, folder, adapter.source, merge=merge)


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a plain transformers folder (safetensors) atomically.

    The files are written beside the target, which is then renamed. Raises UserError if the target
    exists and is not empty, or if the model still has an adapter.
    """
    if hasattr(model, "peft_config"):
        raise UserError(
            "A model with an adapter can't be saved as a full model",
            "only the adapter would be written",
            "Load it with merge_adapter=True first",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{folder} already exists", "nothing is overwritten", "Give another folder, or remove it"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.part-", dir=folder.parent))
    try:
        with savable_generation_config(model):
            model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        part.chmod(0o777 & ~_umask())
        part.replace(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def savable_generation_config(model: Any) -> Iterator[None]:
    """Inside the block, a generation config that transformers saves.

    It refuses settings of sampling beside greedy decoding (a temperature without do_sample), which it loads
    and ignores. What is saved leaves them out: the model generates as before.
    """
    current = getattr(model, "generation_config", None)
    if current is None:
        yield
        return
    saved = copy.deepcopy(current)
    try:
        saved.validate(strict=True)
    except ValueError:
        defaults = type(current)()
        for name in SAMPLING:
            if hasattr(saved, name):
                setattr(saved, name, getattr(defaults, name, None))
    model.generation_config = saved
    try:
        yield
    finally:
        model.generation_config = current


def end_of_text(tokenizer: Any, model: Any) -> tuple[tuple[int, ...], dict[str, str]]:
    """Ids that end a text: the union over tokenizer, config and generation config; a flag if they differ."""
    declared = {
        "tokenizer": tokenizer.eos_token_id,
        "config": model.config.get_text_config().eos_token_id,
        "generation_config": getattr(model.generation_config, "eos_token_id", None),
    }
    sets = {
        source: frozenset([ids] if isinstance(ids, int) else ids)
        for source, ids in declared.items()
        if ids is not None
    }
    flags = {}
    if len(set(sets.values())) > 1:
        each = ", ".join(f"{source} {sorted(ids)}" for source, ids in sets.items())
        flags["end_of_text_differs"] = f"the files disagree ({each}); any of these ends a text"
    return tuple(sorted(frozenset().union(*sets.values()))), flags


def context_length(config: Any) -> int | None:
    """The model's context in positions; None if its config states no limit."""
    text = config.get_text_config()
    lengths = (getattr(text, name, None) for name in CONTEXT_NAMES)
    return next((int(value) for value in lengths if value), None)


def _context_of(model: Any) -> int | None:
    """Positions that are left for text: a virtual prompt takes some."""
    length = context_length(model.config)
    return None if length is None else length - num_virtual_tokens(model)


def refuse_pickle(pinned: Pin, *, allow_pickle: bool) -> None:
    """Raise UserError for weights in pickles, which can run any code, unless they are allowed."""
    pickles = [name for name in pinned.files if name.endswith(".bin")]
    if pickles and not allow_pickle:
        raise UserError(
            f"the weights of {pinned.source} are in a pickle: {some(pickles)}",
            "reading a pickle can run code",
            "Use a version with safetensors, or pass --allow-pickle (allow_pickle=True) if you trust it",
        )


def device_of(numerics: Numerics) -> torch.device:
    """The device; ``auto`` is the accelerator if there is one. UserError if it is not available."""
    if numerics.device == "auto":
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(numerics.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"Device {numerics.device!r} can't be used",
            str(error).splitlines()[0],
            "Use auto or cpu",
            code=2,
        ) from error
    return device


def dtype_of(numerics: Numerics, device: torch.device) -> Any:
    """The precision of weights: ``auto`` is float32 on a CPU and the checkpoint's own elsewhere."""
    if numerics.dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    return getattr(torch, numerics.dtype)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

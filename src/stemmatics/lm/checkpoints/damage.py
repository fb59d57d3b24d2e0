"""Files of a checkpoint that are damaged or contradict the model: one line that names file and field.

Checked before a library reads them, since libraries fail late, in other words, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.lm.checkpoints.hub import refuse_pointer, some

_LENGTH = 8
# sizes, which a library uses as whole numbers
_WHOLE = frozenset(
    [
        *("hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings", "head_dim"),
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "sliding_window"),
        *(
            "n_embd",
            "n_layer",
            "n_head",
            "n_positions",
            "n_inner",
            "num_local_experts",
            "num_experts_per_tok",
        ),
        *("original_max_position_embeddings", "bos_token_id", "pad_token_id"),
    ]
)
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "hidden_act_fn")
# a tensor of a loaded module that nothing in the model holds changes what the module computes; these do not
_HARMLESS = ("inv_freq", "masked_bias", "attn.bias", "attention.bias", "position_ids", "num_batches_tracked")


def check_files(folder: Path, source: str) -> None:
    """Raise UserError for files of a folder that are pointers, cut or no JSON."""
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        refuse_pointer(path, f"{path.name} of {source}")
        if path.suffix == ".safetensors":
            _check_safetensors(path, source)
        elif path.suffix == ".json":
            _check_json(path, source)


def _check_safetensors(path: Path, source: str) -> None:
    """A header that can be read, and exactly as many bytes as it announces."""
    size = path.stat().st_size
    fix = "Download or copy the file again"
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH), "little") if size >= _LENGTH else -1
        if not 0 < length <= size - _LENGTH:
            raise UserError(
                f"{path.name} of {source} is damaged",
                f"it has {size} bytes, which is less than its own header"
                if length > 0
                else "it has no safetensors header",
                fix,
            )
        try:
            header = json.loads(stream.read(length))
            ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path.name} of {source} is damaged",
                f"its header can't be read ({first_line(error)})",
                fix,
            ) from error
    expected = _LENGTH + length + max(ends, default=0)
    if size != expected:
        raise UserError(
            f"{path.name} of {source} is {'cut' if size < expected else 'damaged'}",
            f"it has {size} bytes; its header announces {expected}",
            fix,
        )


def _check_json(path: Path, source: str) -> None:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path.name} of {source} can't be read",
            f"it is not JSON ({first_line(error)})",
            "Download or copy it again",
        ) from error
    if not isinstance(value, dict) and path.name not in {"vocab.json", "added_tokens.json"}:
        raise UserError(
            f"{path.name} of {source} can't be read",
            f"it holds a {type(value).__name__}, not an object",
            "Download or copy it again",
        )


def check_config(folder: Path, source: str) -> None:
    """Raise UserError for a field of config.json that the model can't be built or run with."""
    path = folder / "config.json"
    if not path.is_file():
        return
    fields = json.loads(path.read_text(encoding="utf-8-sig"))
    problem = next(iter(_problems(fields)), None)
    if problem is not None:
        name, value, why = problem
        raise UserError(
            f"config.json of {source} has {name}: {json.dumps(value)[:60]}",
            why,
            "Correct the field in config.json",
        )


def _problems(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Field, value and what is wrong with it; nested configs included."""
    defaults = _defaults(fields)
    for name, value in fields.items():
        if isinstance(value, dict) and "model_type" in value:
            yield from ((f"{name}.{inner}", bad, why) for inner, bad, why in _problems(value))
        elif name in _ACTIVATIONS:
            yield from _unknown_activation(name, value)
        elif name in {"rope_scaling", "rope_parameters"}:
            yield from _unknown_rope(name, value)
        elif why := _wrong_type(name, value, defaults.get(name)):
            yield name, value, why
    yield from _indivisible(fields)


def _wrong_type(name: str, value: Any, default: Any) -> str:
    if name in _WHOLE and isinstance(value, float):
        return "it must be a whole number, without a decimal point"
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    if (is_number or name in _WHOLE) and isinstance(value, str | bool | dict):
        return f"it is a {'text' if isinstance(value, str) else type(value).__name__}, and must be a number"
    if isinstance(default, bool) and value is not None and not isinstance(value, bool | int):
        return "it must be true or false"
    if (
        name in _WHOLE
        and isinstance(value, int)
        and value < 0
        and name not in {"pad_token_id", "bos_token_id"}
    ):
        return "it must not be negative"
    return ""


def _unknown_activation(name: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    from transformers.activations import ACT2FN

    if value is not None and (not isinstance(value, str) or value not in ACT2FN):
        yield (
            name,
            value,
            f"there is no such activation; {', '.join(sorted(ACT2FN)[:6])} and others are known",
        )


def _unknown_rope(name: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    known = {"default", "mrope", "axial", *ROPE_INIT_FUNCTIONS}
    if value is not None and not isinstance(value, dict):
        yield name, value, "it must be an object with a rope_type"
        return
    for settings in (value, *(part for part in (value or {}).values() if isinstance(part, dict))):
        kind = (settings or {}).get("rope_type", (settings or {}).get("type", "default"))
        if not isinstance(kind, str) or kind not in {*known, "su", "dynamic"}:
            yield name, kind, f"there is no such type of RoPE; {', '.join(sorted(known))} are known"


def _indivisible(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    def whole(*names: str) -> int | None:
        value = next((fields[name] for name in names if name in fields), None)
        return value if type(value) is int and value > 0 else None

    width, heads = whole("hidden_size", "n_embd"), whole("num_attention_heads", "n_head")
    groups = whole("num_key_value_heads")
    if width and heads and not fields.get("head_dim") and width % heads:
        yield "num_attention_heads", heads, f"it does not divide the width of {width}"
    if heads and groups and heads % groups:
        yield "num_key_value_heads", groups, f"it does not divide the {heads} attention heads"


def _defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the model's own config; empty where transformers has none."""
    from transformers import CONFIG_MAPPING

    try:
        return dict(CONFIG_MAPPING[fields["model_type"]]().to_dict())
    except Exception:  # noqa: BLE001 - another check names what is wrong with the model type
        return {}


def refuse_left_over(unexpected: Sequence[str], model: Any, source: str) -> list[str]:
    """Names of tensors without a place that change nothing. Raises UserError for those that would.

    A tensor whose module exists in the model (a scale of quantised weights, a bias that the config denies)
    is part of how the checkpoint computes.
    """
    modules = {name for name, _ in model.named_modules()}
    lost = [
        name
        for name in unexpected
        if name.rpartition(".")[0] in modules and name.rpartition(".")[0] and not name.endswith(_HARMLESS)
    ]
    if lost:
        scales = any("scale" in name or "zero" in name or "absmax" in name for name in lost)
        raise UserError(
            f"{source} has tensors that its config does not account for: {some(sorted(lost), 3)}",
            "weights that were stored quantised would be used without their scales"
            if scales
            else f"{type(model).__name__} by config.json has none of them, and they change its output",
            "Restore quantization_config in config.json, or use the checkpoint in its original precision"
            if scales
            else "Restore the config.json that belongs to these weights",
        )
    return list(unexpected)


def why_missing(missing: Sequence[str], unexpected: Sequence[str]) -> tuple[str, str]:
    """Why tensors are missing, and what to do: another prefix of all names, or an incomplete file."""
    prefixes = {
        extra.removesuffix(name) for name in missing for extra in unexpected if extra.endswith(f".{name}")
    }
    others = {
        name.removesuffix(extra) for name in missing for extra in unexpected if name.endswith(f".{extra}")
    }
    if len(prefixes) == 1:
        prefix = prefixes.pop()
        return (
            f"the files call them {prefix}{missing[0]} and so on",
            f"Save the checkpoint again without the prefix {prefix!r} (torch.compile and wrappers add one)",
        )
    if len(others) == 1:
        prefix = others.pop()
        return (f"the files have them without {prefix!r}", "Save the whole model, not its inner module")
    return "", ""


def first_line(error: Exception) -> str:
    """The first line of an error's text, or the name of its type."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__

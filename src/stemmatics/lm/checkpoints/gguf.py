"""Tokenizers of GGUF files: restores the pre-tokenizer rule, and flags tokenizers where it can't.

A GGUF names the rule by which text is split before merges are applied (``tokenizer.ggml.pre``), but
does not contain it. transformers knows some names and uses GPT-2's rule for all others, so that ids
can differ from the model's own. Here the rules of the names below are applied whatever the library's
version does; any other name is flagged ``tokenizer_approximate``.

The rules are those of the models' own ``tokenizer.json`` files, which are also llama.cpp's
(``llama-vocab.cpp``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

# Strings on which pre-tokenizer rules, normalisers and added tokens are known to differ.
PROBES = (
    "Hello world",
    "  two spaces, then three   and a tab\tend",
    "1 12 123 1234 12345.678 and x2y3",
    "   2024 and    99 bottles",
    "don't DON'T we'll they've I'M",
    "line one\nline two\r\n\r\n  indented\n\n\nend ",
    "naïve café ☕ Straße, Ελληνικά, кириллица",
    "你好,世界 こんにちは 안녕하세요",
    "def f(x):\n    return x**2  # power\n",
    "a--b...c!!?! (d) [e] {f} <g>",
    "😀👩‍👩‍👧 𝒳 ² ½ Ⅷ ٣",
    "CamelCase snake_case kebab-case URL https://example.org/a?b=1&c=2",
)

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Rule:
    """How text is split before byte-level merges: each pattern splits the pieces of the one before it.

    ``whole_words``: a piece that is in the vocabulary is one token, without merges.
    ``adds_bos``: BOS is added unless the file says otherwise.
    """

    splits: tuple[str, ...]
    nfc: bool = False
    whole_words: bool = False
    adds_bos: bool = False


_LLAMA3_RULE = Rule((_LLAMA3,), whole_words=True, adds_bos=True)
_DIGITS_RULE = Rule((_DIGIT, _GPT2))
RULES = {
    "gpt-2": Rule((_GPT2,)),
    "smollm": _DIGITS_RULE,
    "starcoder": _DIGITS_RULE,
    "refact": _DIGITS_RULE,
    "llama3": _LLAMA3_RULE,
    "llama-v3": _LLAMA3_RULE,
    "llama-bpe": _LLAMA3_RULE,
    "qwen2": Rule((_QWEN2,), nfc=True),
}


def repair(tokenizer: Any, path: Path) -> dict[str, str]:
    """Put the file's own pre-tokenizer rule into ``tokenizer`` (in place); return the flags.

    Args:
        tokenizer: what transformers rebuilt from the file.
        path: the GGUF file.

    Returns:
        ``tokenizer_repaired`` where a known rule changed ids on the probe strings,
        ``tokenizer_approximate`` where the rule is unknown or the repaired tokenizer does not round-trip
        the probe strings; nothing where the rebuilt tokenizer already had the rule.
    """
    model, name, declares_bos = _header(path)
    rule = RULES.get(name or "")
    if model != "gpt2" or rule is None:
        what = f"pre-tokenizer rule {name!r}" if model == "gpt2" else f"tokenizer kind {model!r}"
        return {
            "tokenizer_approximate": f"rebuilt from a GGUF whose {what} is not among those checked: ids may "
            "differ from the model's own"
        }
    before = [tokenizer.encode(probe, add_special_tokens=False) for probe in PROBES]
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.normalizer = normalizers.NFC() if rule.nfc else None
    backend.model.ignore_merges = rule.whole_words
    if rule.adds_bos and not declares_bos:
        tokenizer.add_bos_token = True
    after = [tokenizer.encode(probe, add_special_tokens=False) for probe in PROBES]
    lost = [
        probe
        for probe, ids in zip(PROBES, after, strict=True)
        if tokenizer.decode(ids, clean_up_tokenization_spaces=False) != probe
    ]
    if lost:
        return {
            "tokenizer_approximate": f"{len(lost)} of {len(PROBES)} probe strings are not recovered from "
            f"their ids, the first {lost[0]!r}"
        }
    changed = sum(old != new for old, new in zip(before, after, strict=True))
    if not changed:
        return {}
    return {
        "tokenizer_repaired": f"pre-tokenizer rule {name!r} restored: ids changed on {changed} of "
        f"{len(PROBES)} probe strings"
    }


def forget_quantization(model: Any) -> None:
    """Turn a model that was read from a GGUF into an ordinary one, so that it can be saved and trained.

    Its weights are plain floating-point tensors already; an entry in the config and a quantizer object
    remain, with which transformers refuses to save.
    """
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            setattr(model, name, None)
    model.is_quantized = False


def _header(path: Path) -> tuple[str | None, str | None, bool]:
    """The tokenizer's kind, the name of its pre-tokenizer rule, and whether the file declares BOS."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    kind, rule = (
        fields[name].contents() if name in fields else None
        for name in ("tokenizer.ggml.model", "tokenizer.ggml.pre")
    )
    return kind, rule, "tokenizer.ggml.add_bos_token" in fields

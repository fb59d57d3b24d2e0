"""Differences between two checkpoints, and their consequences for comparing them.

Reads configs and tokenizers only; no weights are loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stemmatics.core.keys import canonical_json
from stemmatics.lm.checkpoints.gguf import PROBES
from stemmatics.lm.checkpoints.loading import context_length, generation_flags, load_config, load_tokenizer
from stemmatics.lm.checkpoints.pin import Pin, pin

Severity = Literal["note", "warning", "by_byte"]

BY_BYTE = "can't be compared by token; by byte it can"
SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
)
# By default scoring windows are at most this long, so a longer limit changes nothing.
DEFAULT_WINDOW = 2048


@dataclass(frozen=True)
class Finding:
    """One difference.

    ``severity``: ``by_byte`` rules out a comparison by token, ``warning`` changes the meaning of a
    comparison or the settings that it needs, ``note`` is for information.
    """

    field: str
    a: str
    b: str
    severity: Severity
    consequence: str


@dataclass(frozen=True)
class Description:
    """A checkpoint without its weights."""

    pin: Pin
    config: Any
    tokenizer: Any
    flags: dict[str, str]

    @property
    def text_config(self) -> Any:
        """The part of the config that describes the language model."""
        return self.config.get_text_config()


def describe(
    checkpoint: str | Pin, *, trust_remote_code: bool = False, offline: bool | None = None
) -> Description:
    """Pin a checkpoint and read its config and tokenizer."""
    pinned = checkpoint if isinstance(checkpoint, Pin) else pin(checkpoint, offline=offline)
    config = load_config(pinned, trust_remote_code=trust_remote_code, offline=offline)
    tokenizer, flags = load_tokenizer(pinned, trust_remote_code=trust_remote_code, offline=offline)
    flags |= generation_flags(pinned, offline=offline)
    return Description(pinned, config, tokenizer, flags)


def compare(
    a: str | Pin, b: str | Pin, *, trust_remote_code: bool = False, offline: bool | None = None
) -> list[Finding]:
    """Every difference between two checkpoints that matters for comparing them, most severe first."""
    first, second = (describe(each, trust_remote_code=trust_remote_code, offline=offline) for each in (a, b))
    return compare_descriptions(first, second)


def compare_descriptions(a: Description, b: Description) -> list[Finding]:
    """As ``compare``, for checkpoints that have been described."""
    findings = [*_tokenizer_findings(a, b), *_vocabulary_findings(a, b)]
    for field, severity, value, consequence in _FIELDS:
        values = value(a), value(b)
        if values[0] != values[1]:
            findings.append(Finding(field, str(values[0]), str(values[1]), severity, consequence))
    findings += _context_findings(a, b)
    order = ("by_byte", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _tokenizer_findings(a: Description, b: Description) -> list[Finding]:
    findings = []
    for probe in PROBES:
        ids = [each.tokenizer.encode(probe, add_special_tokens=False) for each in (a, b)]
        if ids[0] != ids[1]:
            findings.append(Finding(f"token ids of {probe!r}", str(ids[0]), str(ids[1]), "by_byte", BY_BYTE))
    for side, each in (("a", a), ("b", b)):
        if "tokenizer_approximate" in each.flags:
            values = [each.flags["tokenizer_approximate"] if side == name else "" for name in ("a", "b")]
            findings.append(
                Finding(
                    "tokenizer_approximate",
                    values[0],
                    values[1],
                    "warning",
                    "its loss may be that of a text tokenised differently than in its training",
                )
            )
    return findings


def _vocabulary_findings(a: Description, b: Description) -> list[Finding]:
    vocab_a, vocab_b = a.tokenizer.get_vocab(), b.tokenizer.get_vocab()
    findings = []
    moved = sorted(token for token in vocab_a.keys() & vocab_b.keys() if vocab_a[token] != vocab_b[token])
    if moved:
        token = moved[0]
        findings.append(
            Finding(
                "vocabulary",
                f"{token!r} is {vocab_a[token]}",
                f"{token!r} is {vocab_b[token]}",
                "by_byte",
                f"{len(moved)} strings have two ids: {BY_BYTE}",
            )
        )
    only_a, only_b = (
        sorted(left.keys() - right.keys()) for left, right in ((vocab_a, vocab_b), (vocab_b, vocab_a))
    )
    if only_a or only_b:
        findings.append(
            Finding(
                "tokens of one alone",
                _sample(only_a),
                _sample(only_b),
                "warning",
                "by token, set support: shared, so that both spread their probability over the same ids",
            )
        )
    return findings


def _context_findings(a: Description, b: Description) -> list[Finding]:
    limits = [context_length(each.config) for each in (a, b)]
    if limits[0] == limits[1]:
        return []
    shortest = min(limit for limit in limits if limit is not None)
    if shortest >= DEFAULT_WINDOW:
        severity, consequence = "note", f"windows of up to {shortest} positions suit both"
    else:
        severity, consequence = "warning", f"set windows.size to at most {shortest}, the same for both"
    return [Finding("context length", str(limits[0]), str(limits[1]), severity, consequence)]


def prefix_ids(tokenizer: Any) -> list[int]:
    """The ids that the tokenizer's own template puts before a text."""
    plain = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a", add_special_tokens=True)
    starts = (i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    return whole[: next(starts, 0)]


def _padding_rows(each: Description) -> int:
    return int(each.text_config.vocab_size) - len(each.tokenizer)


def _rope(each: Description) -> dict[str, Any]:
    # rope_parameters holds theta and scaling together since transformers 5.
    return dict(getattr(each.text_config, "rope_parameters", None) or {})


def _architecture(each: Description) -> str:
    config = each.text_config
    return ", ".join(
        [
            str(config.model_type),
            *(f"{name} {value}" for name in SHAPE if (value := getattr(config, name, None))),
        ]
    )


def _special(each: Description) -> dict[str, int | None]:
    return {name: getattr(each.tokenizer, name, None) for name in SPECIAL_TOKENS}


def _dtype(each: Description) -> str:
    return str(getattr(each.text_config, "dtype", None) or "not stated").removeprefix("torch.")


def _template(each: Description) -> str:
    template = each.tokenizer.chat_template
    if not template:
        return "none"
    text = template if isinstance(template, str) else canonical_json(template)
    return f"{len(text)} characters, SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _sample(tokens: list[str], limit: int = 5) -> str:
    if not tokens:
        return "none"
    return f"{len(tokens)}: {', '.join(map(repr, tokens[:limit]))}" + (", …" if len(tokens) > limit else "")


_FIELDS: tuple[tuple[str, Severity, Callable[[Description], Any], str], ...] = (
    (
        "prefix ids",
        "by_byte",
        lambda each: prefix_ids(each.tokenizer),
        f"with prefix: auto the first token is predicted from another start: {BY_BYTE}, or set prefix: never",
    ),
    (
        "vocabulary size",
        "warning",
        lambda each: int(each.text_config.vocab_size),
        "the models spread probability over different numbers of ids; by token, set support: shared",
    ),
    (
        "padding rows",
        "note",
        _padding_rows,
        "rows without a token get a little probability; shared leaves them out",
    ),
    (
        "RoPE",
        "warning",
        _rope,
        "positions are read differently: expect a difference that grows with the context",
    ),
    (
        "architecture",
        "warning",
        _architecture,
        "losses can be compared; layers can't be crossed and weights can't be subtracted",
    ),
    (
        "tied head",
        "warning",
        lambda each: bool(
            getattr(
                each.text_config, "tie_word_embeddings", getattr(each.config, "tie_word_embeddings", False)
            )
        ),
        "a change of the embedding is a change of the head in one and not in the other",
    ),
    ("special tokens", "note", _special, "plain text is scored without them; replies may end elsewhere"),
    (
        "chat template",
        "note",
        _template,
        "plain text is not affected; rendered messages need one template for both",
    ),
    ("dtype", "note", _dtype, "weights were rounded differently; differences are taken in float32"),
)

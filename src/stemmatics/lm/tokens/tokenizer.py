"""Texts to token ids with byte spans; prefixes; the ids that two tokenizers share.

Axes: T tokens of one text, V ids.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.lm.tokens.plain import Pieces, wrap
from stemmatics.lm.tokens.spans import UNREADABLE, ends_by_offsets, ends_by_reading, ends_by_words

# Texts without control tokens, on which the copy must agree with the given tokenizer.
_PROBES = (
    "Hello, world. It's 1234 and 5!",
    "two  spaces\n\n\tand a tab ",
    "naïve café ☕ 你好 e\u0301",
    " def f(x):\r\n    return x",
)


@dataclass(frozen=True, eq=False)
class Encoding:
    """A text's tokens.

    ``ids``, ``starts``, ``ends``: int64 [T]. Token i stands for the bytes ``starts[i]`` to
    ``ends[i]`` of the text's UTF-8; spans cover the text once and in order, and may be empty.
    ``flags``: ``lossy`` if the ids do not spell the text (a normaliser, an unknown token, dropped
    spaces), ``dropped`` if a text that is not empty has no token, ``has_bos`` if a rendered
    conversation has its own BOS, so that no other may be added.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    flags: tuple[str, ...] = ()


class TextTokenizer:
    """A transformers tokenizer, fast or slow, used on plain text only.

    No special token is added, and the text of one inside a document is plain text; both are
    tested at construction. Added tokens that are not special (such as runs of spaces) are matched as
    the tokenizer itself does. The given tokenizer is not changed.

    Raises:
        UserError: its control tokens can't be excluded, or its own class gives other ids.
    """

    def __init__(self, hf_tokenizer: Any) -> None:
        self.hf = hf_tokenizer
        self._tokens = wrap(hf_tokenizer)
        self.special_ids = frozenset(hf_tokenizer.all_special_ids) | self._tokens.added_special
        self._keep_control_tokens_out()
        self._agree_with_own_class()

    def encode(self, text: str, *, rendered: bool = False) -> Encoding:
        """Ids and byte spans of one text; see ``encode_batch``."""
        return self.encode_batch([text], rendered=rendered)[0]

    def encode_batch(self, texts: Sequence[str], *, rendered: bool = False) -> list[Encoding]:
        """Ids and byte spans of each text.

        Args:
            texts: any text without lone surrogates.
            rendered: the texts come from a chat template, so control tokens are parsed.

        Raises:
            UserError: the tokenizer alters a text and gives no information on where.
        """
        encoded = self._tokens.encode_batch(texts, parse_control=rendered)
        return [
            self._spanned(text, pieces, rendered=rendered)
            for text, pieces in zip(texts, encoded, strict=True)
        ]

    def _spanned(self, text: str, pieces: Pieces, *, rendered: bool) -> Encoding:
        raw = text.encode()
        flags = []
        ends_T = ends_by_reading(pieces.readings, raw)
        if ends_T is None and not pieces.ids:
            ends_T, flags = np.zeros(0, np.int64), ["lossy", "dropped"]
        elif ends_T is None:
            pieces = self._tokens.with_offsets(text, parse_control=rendered)
            if pieces.offsets is None:
                ends_T, lossy = ends_by_words(pieces.readings, raw), True
            else:
                ends_T, lossy = ends_by_offsets(pieces.readings, pieces.offsets, text)
            flags = ["lossy"] if lossy else []
        ids_T = np.asarray(pieces.ids, dtype=np.int64)
        unknown = self.hf.unk_token_id
        if not flags and unknown is not None and UNREADABLE not in pieces.readings and unknown in ids_T:
            flags = ["lossy"]  # a Python tokenizer reports the text that became an unknown token
        if rendered and len(ids_T) and ids_T[0] == self.hf.bos_token_id:
            flags = [*flags, "has_bos"]
        starts_T = np.concatenate([np.zeros(min(1, len(ends_T)), np.int64), ends_T[:-1]])
        return Encoding(ids_T, starts_T, ends_T, tuple(flags))

    def prefix(self, policy: Literal["auto", "always", "never"]) -> tuple[int | None, str]:
        """``(id, its string)`` of the token in front of every window, or ``(None, "none")``.

        ``auto``: the token that the tokenizer's own template puts in front of a text, if any.
        ``always``: BOS, else EOS. ``never``: none.

        Raises:
            UserError: ``always`` without BOS and EOS, or a template that puts several tokens in front.
        """
        if policy == "never":
            return None, "none"
        if policy == "auto":
            with_template = self.hf("a", add_special_tokens=True)["input_ids"]
            front = list(itertools.takewhile(self.special_ids.__contains__, with_template))
            if len(front) > 1:
                raise UserError(
                    f"the tokenizer puts {len(front)} tokens in front of a text",
                    "a window has room for one prefix token",
                    "score with prefix: always or prefix: never",
                )
            return (front[0], self._name(front[0])) if front else (None, "none")
        for index in (self.hf.bos_token_id, self.hf.eos_token_id):
            if index is not None:
                return int(index), self._name(index)
        raise UserError(
            "the tokenizer has no token to put in front",
            "it names neither BOS nor EOS",
            "score with prefix: auto or never",
        )

    def _name(self, index: int) -> str:
        return self._tokens.strings.get(index, "")

    def vocabulary(self) -> dict[int, str]:
        """String of every id, including added tokens; bytes are written as in byte-level BPE."""
        return dict(self._tokens.strings)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what determines ids: vocabulary, merges, normaliser, pre-tokenizer, added tokens."""
        return hashlib.sha256(self._tokens.fingerprint_source()).hexdigest()

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Equal for two tokenizers that give every text the same tokens and flags."""
        special = tuple(sorted(self.special_ids))
        return (self.fingerprint, self.hf.bos_token_id, self.hf.unk_token_id, special)

    def _leaks(self) -> set[str]:
        """Special tokens that a document could write as text."""
        leaking = set()
        for index in self.special_ids - {self.hf.unk_token_id}:
            name = self._name(index)
            texts = [name, f"a{name}b", f"a {name} b", f"{name}\n{name}"]
            encoded = self._tokens.encode_batch(texts, parse_control=False)
            if any(index in pieces.ids for pieces in encoded):
                leaking.add(name)
        # A single character ("!" used as padding) is ordinary text, whatever else its id is used for.
        return {name for name in leaking - self._tokens.built if len(name) > 1}

    def _keep_control_tokens_out(self) -> None:
        leaking = self._leaks()
        if not leaking:
            return
        try:
            # Unigram, WordPiece and word-level models find "<s>" in their own vocabulary.
            self._tokens.hide(leaking)
        except ValueError as error:
            why = str(error)
        else:
            leaking = self._leaks()
            why = "the tokenizer reads it as the control token itself"
        if leaking:
            raise UserError(
                f"the text {min(leaking)!r} in a document can't be distinguished from the control token",
                why,
                "use the model's tokenizer.json with its special tokens marked as special",
            )

    def _agree_with_own_class(self) -> None:
        names = [self._name(index) for index in self.special_ids]
        for text in _PROBES:
            if any(name in text for name in names):
                continue
            ours = self._tokens.encode_batch([text], parse_control=False)[0].ids
            theirs = self.hf(text, add_special_tokens=False, verbose=False)["input_ids"]
            if ours != theirs:
                raise UserError(
                    f"{type(self.hf).__name__} encodes {text!r} differently from its own backend",
                    f"{theirs} against {ours}",
                    "use the model's tokenizer.json with the plain PreTrainedTokenizerFast class",
                )


@dataclass(frozen=True, eq=False)
class SharedSupport:
    """``mask`` [V] over the ids of the larger of two models, and the excluded ids by reason.

    ``padding``: no string in either tokenizer; ``special``: special in either; ``missing``: absent
    from one of the two models or tokenizers; ``differs``: different strings. Use ``mask[:num_ids]``.
    """

    mask: np.ndarray
    excluded: dict[str, tuple[int, ...]]


def shared_support(a: TextTokenizer, b: TextTokenizer, num_ids_a: int, num_ids_b: int) -> SharedSupport:
    """The ids that stand for the same text in both models.

    Args:
        a: tokenizer of the base.
        b: tokenizer of the descendant.
        num_ids_a: rows of the base's head.
        num_ids_b: rows of the descendant's head.

    Raises:
        UserError: no id is shared.
    """
    names_a, names_b = a.vocabulary(), b.vocabulary()
    special = a.special_ids | b.special_ids
    excluded: dict[str, list[int]] = {"padding": [], "special": [], "missing": [], "differs": []}
    for index in range(max(num_ids_a, num_ids_b)):
        name_a, name_b = names_a.get(index), names_b.get(index)
        if name_a is None and name_b is None:
            excluded["padding"].append(index)
        elif index in special:
            excluded["special"].append(index)
        elif name_a is None or name_b is None or index >= min(num_ids_a, num_ids_b):
            excluded["missing"].append(index)
        elif name_a != name_b:
            excluded["differs"].append(index)
    mask_V = np.ones(max(num_ids_a, num_ids_b), dtype=bool)
    for ids in excluded.values():
        mask_V[ids] = False
    if not mask_V.any():
        raise UserError(
            "the two tokenizers share no token",
            "no id has the same string in both",
            "compare by byte, with support: full",
        )
    return SharedSupport(mask_V, {reason: tuple(ids) for reason, ids in excluded.items()})

"""Plain text to ids, where the text of a control token inside a document is ordinary text.

Each class wraps one kind of transformers tokenizer without changing it. The caller tests the
result, so that no setting of the library has to be trusted.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from stemmatics.core.errors import UserError
from stemmatics.lm.tokens.spans import (
    SPACE_MARK,
    UNREADABLE,
    byte_alphabet,
    byte_level_reading,
    plain_reading,
)


class Pieces(NamedTuple):
    """Ids of one text, the bytes that each spells, and character offsets if the tokenizer gives them."""

    ids: list[int]
    readings: list[bytes]
    offsets: list[tuple[int, int]] | None


class FastTokens:
    """A copy of a Rust tokenizer that matches no special token in a text."""

    def __init__(self, hf_tokenizer: Any) -> None:
        self._spec = json.loads(hf_tokenizer.backend_tokenizer.to_str())
        # A post-processor would trim offsets; the others would truncate or pad texts.
        self._spec |= {"truncation": None, "padding": None, "post_processor": None}
        added = {token["id"]: token for token in self._spec["added_tokens"]}
        self.added_special = frozenset(index for index, token in added.items() if token["special"])
        self.added_ordinary = frozenset(added) - self.added_special
        # "###" used as padding is still a word built by merges, so text may have its id.
        merges = self._spec["model"].get("merges") or ()
        self.built = frozenset("".join(pair) for pair in merges)
        self._parsing: Tokenizer | None = None
        self._plain = self._build(self._spec)
        self.strings = self._strings()
        self._readings = self._read_all()

    @staticmethod
    def _build(spec: dict[str, Any]) -> Tokenizer:
        return Tokenizer.from_str(json.dumps(spec))

    def _strings(self) -> dict[int, str]:
        # Not get_vocab(), which has only one of two ids with the same string.
        count = max(self._plain.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        named = ((index, self._plain.id_to_token(index)) for index in range(count))
        return {index: name for index, name in named if name is not None}

    def _read_all(self) -> list[bytes]:
        model = self._spec["model"]
        parts = json.dumps([self._spec[name] for name in ("normalizer", "pre_tokenizer", "decoder")])
        byte_level = '"ByteLevel"' in parts
        added = self.added_special | self.added_ordinary
        notation = _Notation(
            (name for index, name in self.strings.items() if index not in added),
            byte_level=byte_level,
            continuing=model.get("continuing_subword_prefix") or "",
            ending=model.get("end_of_word_suffix") or "",
        )
        unknown = model.get("unk_token")
        readings = [UNREADABLE] * (max(self.strings, default=-1) + 1)
        for index, name in self.strings.items():
            # SentencePiece families list runs of "▁" among added tokens, where they mean spaces.
            literal = index in added and not (notation.space_mark and set(name) == {SPACE_MARK})
            readings[index] = name.encode() if literal else notation.read(name)
            if name == unknown or (model.get("type") == "Unigram" and index == model.get("unk_id")):
                readings[index] = UNREADABLE
        return readings

    def hide(self, names: set[str]) -> None:
        """Remove these strings from the model's own vocabulary; their ids remain.

        Raises:
            ValueError: the model needs one of them.
        """
        spec = json.loads(json.dumps(self._spec))
        hidden = {name: f"\U0010ffff{name}\U0010ffff" for name in names}
        for token in spec["added_tokens"]:
            token["content"] = hidden.get(token["content"], token["content"])
        vocabulary = spec["model"]["vocab"]
        if isinstance(vocabulary, dict):
            spec["model"]["vocab"] = {hidden.get(name, name): index for name, index in vocabulary.items()}
        else:
            spec["model"]["vocab"] = [[hidden.get(name, name), score] for name, score in vocabulary]
        try:
            self._plain = self._build(spec)
        except Exception as error:  # the Rust library raises Exception itself
            raise ValueError(str(error)) from error

    def encode_batch(self, texts: Sequence[str], *, parse_control: bool) -> list[Pieces]:
        """Ids and readings of each text, without offsets, which are slow (``with_offsets``)."""
        encoder = self._encoder(parse_control)
        encodings = encoder.encode_batch_fast(list(texts), add_special_tokens=False)
        return [
            Pieces(encoding.ids, [self._readings[index] for index in encoding.ids], None)
            for encoding in encodings
        ]

    def with_offsets(self, text: str, *, parse_control: bool) -> Pieces:
        """The same for one text, with character offsets."""
        encoding = self._encoder(parse_control).encode(text, add_special_tokens=False)
        return Pieces(encoding.ids, [self._readings[index] for index in encoding.ids], encoding.offsets)

    def _encoder(self, parse_control: bool) -> Tokenizer:
        if not parse_control:
            # Set before each use: the flag is lost when a tokenizer is copied to another process.
            self._plain.encode_special_tokens = True
            return self._plain
        if self._parsing is None:
            self._parsing = self._build(self._spec)
        return self._parsing

    def fingerprint_source(self) -> bytes:
        """Everything that determines ids, in canonical form."""
        relevant = {name: part for name, part in self._spec.items() if name not in ("decoder", "version")}
        return json.dumps(relevant, sort_keys=True).encode()


class SlowTokens:
    """A Python tokenizer (SentencePiece, tiktoken, …), called piece by piece."""

    def __init__(self, hf_tokenizer: Any) -> None:
        from transformers.tokenization_python import Trie

        self._hf = hf_tokenizer
        self.built: frozenset[str] = frozenset()  # unknown for a Python tokenizer
        special = {str(token) for token in hf_tokenizer.all_special_tokens}
        added = hf_tokenizer.added_tokens_decoder
        is_special = {index: token.special or str(token) in special for index, token in added.items()}
        self.added_special = frozenset(index for index, yes in is_special.items() if yes)
        self.added_ordinary = frozenset(added) - self.added_special
        self._ordinary = {str(added[index]): index for index in self.added_ordinary}
        self._trie = Trie(list(self._ordinary))
        names = hf_tokenizer.get_vocab()
        base = [name for name in names if isinstance(name, str) and names[name] not in added]
        byte_level = not any(SPACE_MARK in name for name in base) and any("Ġ" in name for name in base)
        self._notation = _Notation(base, byte_level=byte_level, continuing="", ending="")
        # Byte strings are written as byte-level BPE writes them, so the same vocabulary compares equal.
        to_character = {byte: character for character, byte in byte_alphabet().items()}
        self.strings = {
            index: name if isinstance(name, str) else "".join(to_character[byte] for byte in name)
            for name, index in names.items()
        }

    def hide(self, names: set[str]) -> None:
        """Not possible: the vocabulary is inside the tokenizer's own class."""
        raise ValueError(f"{sorted(names)} can't be taken out of a Python tokenizer")

    def encode_batch(self, texts: Sequence[str], *, parse_control: bool) -> list[Pieces]:
        """Ids and readings of each text."""
        return [self.with_offsets(text, parse_control=parse_control) for text in texts]

    def with_offsets(self, text: str, *, parse_control: bool) -> Pieces:
        """The same for one text; a Python tokenizer gives no offsets."""
        hf = self._hf
        if parse_control:
            names: list[Any] = hf.tokenize(text)
            literal = {str(token) for token in hf.added_tokens_decoder.values()}
        else:
            text, _ = hf.prepare_for_tokenization(text)
            names = []
            for part in filter(None, self._trie.split(text)):
                # The hook that each Python tokenizer implements; tokenize() would match special tokens.
                names += [part] if part in self._ordinary else hf._tokenize(part)  # noqa: SLF001 - see above
            literal = set(self._ordinary)
        ids = hf.convert_tokens_to_ids(names)
        readings = [self._read(name, literal) for name in names]
        return Pieces(ids, readings, None)

    def _read(self, name: str | bytes, literal: set[str]) -> bytes:
        if isinstance(name, bytes):
            return name
        return name.encode() if name in literal else self._notation.read(name)

    def fingerprint_source(self) -> bytes:
        """Vocabulary, added tokens and the vocabulary files, which contain merges and normaliser."""
        hf = self._hf
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(name) for name in sorted(hf.save_vocabulary(folder))]
            digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        added = {index: token.__getstate__() for index, token in hf.added_tokens_decoder.items()}
        parts = [type(hf).__qualname__, sorted(self.strings.items()), sorted(added.items()), digests]
        return json.dumps(parts, sort_keys=True).encode()


class _Notation:
    """How a vocabulary represents bytes, spaces and word parts."""

    def __init__(self, names: Any, *, byte_level: bool, continuing: str, ending: str) -> None:
        known = set(names)
        self._byte_level = byte_level
        self.space_mark = not byte_level and any(SPACE_MARK in name for name in known)
        self._marks = {
            "byte_fallback": all(f"<0x{byte:02X}>" in known for byte in range(256)),
            "space_mark": self.space_mark,
            "continuing": continuing,
            "ending": ending,
        }

    def read(self, piece: str) -> bytes:
        return byte_level_reading(piece) if self._byte_level else plain_reading(piece, **self._marks)


def wrap(hf_tokenizer: Any) -> FastTokens | SlowTokens:
    """The wrapper for this kind of tokenizer.

    Raises:
        UserError: this kind has no way to exclude control tokens.
    """
    if getattr(hf_tokenizer, "backend_tokenizer", None) is not None:
        return FastTokens(hf_tokenizer)
    if all(hasattr(hf_tokenizer, name) for name in ("tokens_trie", "_tokenize", "prepare_for_tokenization")):
        return SlowTokens(hf_tokenizer)
    raise UserError(
        f"can't encode plain text with a {type(hf_tokenizer).__name__}",
        "it has no way to treat control-token text in a document as text",
        "use the model's tokenizer.json (a fast tokenizer)",
    )

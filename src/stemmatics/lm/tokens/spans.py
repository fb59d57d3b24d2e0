"""The bytes of the source text that each token stands for.

A token's *reading* is the bytes that its string spells in the tokenizer's own notation. If the joined
readings spell the text, spans are exact, also inside a character. Otherwise (a normaliser, an unknown
token, dropped spaces) they follow from the tokenizer's character offsets, and the text is flagged
``lossy``. Spans always cover the text once, in order.

Axes: T tokens of one text, C characters.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence

import numpy as np

from stemmatics.core.errors import UserError

# Can't occur in UTF-8, so a text with an unknown token never counts as spelled.
UNREADABLE = b"\xff"
SPACE_MARK = "▁"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Character → byte of byte-level BPE (GPT-2's ``bytes_to_unicode``, inverted)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(256 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTE_OF = byte_alphabet()


def byte_level_reading(piece: str) -> bytes:
    """The bytes of a byte-level token; the UTF-8 bytes of a string outside the alphabet."""
    try:
        return bytes(_BYTE_OF[character] for character in piece)
    except KeyError:
        return piece.encode()


def plain_reading(
    piece: str, *, byte_fallback: bool, space_mark: bool, continuing: str, ending: str
) -> bytes:
    """The bytes of a SentencePiece, WordPiece or plain token.

    ``continuing`` is the mark of a piece inside a word (``##``), ``ending`` that of a word's last
    piece (``</w>``); empty where the tokenizer has none.
    """
    if byte_fallback and (match := BYTE_TOKEN.fullmatch(piece)):
        return bytes([int(match[1], 16)])
    bare = piece.removeprefix(continuing).removesuffix(ending)
    return (bare.replace(SPACE_MARK, " ") if space_mark else bare).encode()


def ends_by_reading(readings: Sequence[bytes], raw: bytes) -> np.ndarray | None:
    """Byte ends [T] if the readings spell the text, apart from a dummy space in front; else None."""
    spelled = b"".join(readings)
    dummy = len(spelled) - len(raw)
    if spelled != raw and not (dummy == 1 and spelled[:1] == b" " and spelled[1:] == raw):
        return None
    ends_T = np.cumsum(np.fromiter(map(len, readings), np.int64, len(readings)))
    return np.maximum(ends_T - dummy, 0)


def byte_positions(text: str) -> np.ndarray:
    """Byte offsets [C + 1] of every character and of the end."""
    codes_C = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    sizes_C = 1 + (codes_C >= 0x80).astype(np.int64) + (codes_C >= 0x800) + (codes_C >= 0x10000)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes_C)])


def ends_by_offsets(
    readings: Sequence[bytes], offsets: Sequence[tuple[int, int]], text: str
) -> tuple[np.ndarray, bool]:
    """Byte ends [T] from character offsets, and whether the tokens fail to spell the text.

    Tokens whose offsets overlap form a group. A group that spells its bytes is split exactly. In
    other groups each token ends at its offset, so that a shared character belongs to the first of its
    tokens. Of the bytes that no token covers, those up to a white space (a composed accent) go to the
    token before, the others to the next one, at the end to the last.
    """
    raw = text.encode()
    bounds = byte_positions(text)[np.asarray(offsets, dtype=np.int64).reshape(-1, 2)]
    ends_T = np.maximum.accumulate(bounds[:, 1])
    if ends_T[-1] == 0 and raw:
        raise UserError(
            "the tokenizer gives no character offsets",
            "its tokens do not spell the text either, so its bytes can't be assigned",
            "use the model's tokenizer.json (a fast tokenizer)",
        )
    ends_T[-1] = len(raw)
    for before in np.flatnonzero(bounds[1:, 0] > ends_T[:-1]):
        gap = raw[ends_T[before] : bounds[before + 1, 0]]
        ends_T[before] += len(gap.split(maxsplit=1)[0]) if gap[:1].strip() else 0
    firsts = [0, *(np.flatnonzero(bounds[1:, 0] >= ends_T[:-1]) + 1).tolist(), len(ends_T)]
    lossy = False
    low = 0
    for first, last in itertools.pairwise(firsts):
        high = int(ends_T[last - 1])
        exact_T = ends_by_reading(readings[first:last], raw[low:high])
        if exact_T is None:
            lossy = True
        else:
            ends_T[first:last] = low + exact_T
        low = high
    return ends_T, lossy


def ends_by_words(readings: Sequence[bytes], raw: bytes) -> np.ndarray:
    """Byte ends [T] for a tokenizer that alters the text and gives no offsets.

    The spelled words are matched with those of the text (difflib); in words that differ, bytes are
    assigned proportionally. Exact in all words that were not altered.
    """
    spelled = b"".join(readings)
    ours, theirs = (re.findall(rb"\s+|\S+", whole) for whole in (spelled, raw))
    at_ours, at_theirs = (np.cumsum([0, *map(len, words)]) for words in (ours, theirs))
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    corners = sorted({(i, j) for _, i1, i2, j1, j2 in blocks for i, j in ((i1, j1), (i2, j2))}, reverse=True)
    # Bytes of words that are missing from the tokens go to the next token.
    anchors = sorted({int(at_ours[i]): int(at_theirs[j]) for i, j in corners}.items())
    ends_T = np.cumsum(np.fromiter(map(len, readings), np.int64, len(readings)))
    x, y = zip(*anchors, strict=True)
    mapped_T = np.floor(np.interp(ends_T, x, y)).astype(np.int64)
    mapped_T[-1] = len(raw)
    return mapped_T

"""The kind of text that a token stands for, from the source bytes.

Axes: T tokens of one text, B bytes.
"""

from __future__ import annotations

import unicodedata

import numpy as np

from stemmatics.lm.scoring.sums import TOKEN_CLASSES
from stemmatics.lm.tokens.spans import byte_positions
from stemmatics.lm.tokens.tokenizer import Encoding

WORD_START, INSIDE_WORD, NUMBER, PUNCTUATION, WHITE_SPACE, NON_ASCII = range(len(TOKEN_CLASSES))
_WHITE = np.isin(np.arange(256), list(b" \t\n\r\v\f"))
_DIGIT = np.isin(np.arange(256), list(b"0123456789"))
_LETTER = np.isin(np.arange(256), list(range(0x41, 0x5B)) + list(range(0x61, 0x7B)))


def token_classes(raw: bytes, encoding: Encoding) -> np.ndarray:
    """Index [T], int8, into ``TOKEN_CLASSES`` for each token of the UTF-8 text ``raw``.

    A token with any byte above 127 is ``non_ascii``, one of white space alone ``white_space``.
    Others are classified by their first character after white space: a digit makes a ``number``, a
    letter a ``word_start``, or ``inside_word`` directly after a letter, digit or combining mark of any
    script; anything else is ``punctuation``. A token without bytes (part of a character, a dummy space)
    gets the class of the token before it, at the beginning that of the one after.
    """
    bytes_B = np.frombuffer(raw, dtype=np.uint8)
    starts_T, ends_T = encoding.starts, encoding.ends
    num_bytes = len(bytes_B)
    if num_bytes == 0 or len(starts_T) == 0:
        return np.full(len(starts_T), WHITE_SPACE, dtype=np.int8)
    visible_B = np.where(_WHITE[bytes_B], num_bytes, np.arange(num_bytes))
    next_visible_B = np.append(np.minimum.accumulate(visible_B[::-1])[::-1], num_bytes)
    first_T = next_visible_B[starts_T]
    visible_T = np.minimum(first_T, num_bytes - 1)
    inside_B = np.concatenate([[False], _word_bytes(raw, bytes_B)])  # whether the byte before b is in a word
    letter_T = _LETTER[bytes_B[visible_T]]
    classes_T = np.full(len(starts_T), PUNCTUATION, dtype=np.int8)
    classes_T[_DIGIT[bytes_B[visible_T]]] = NUMBER
    classes_T[letter_T & inside_B[visible_T]] = INSIDE_WORD
    classes_T[letter_T & ~inside_B[visible_T]] = WORD_START
    classes_T[first_T >= ends_T] = WHITE_SPACE
    above_B = np.concatenate([[0], np.cumsum(bytes_B >= 0x80)])
    classes_T[above_B[ends_T] > above_B[starts_T]] = NON_ASCII
    return _filled(classes_T, ends_T > starts_T)


def _word_bytes(raw: bytes, bytes_B: np.ndarray) -> np.ndarray:
    """Whether each byte belongs to a letter, digit or combining mark."""
    if not (bytes_B >= 0x80).any():
        return _LETTER[bytes_B] | _DIGIT[bytes_B]
    text = raw.decode()
    codes, which_C = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    is_word = np.array([unicodedata.category(chr(code))[0] in "LMN" for code in codes])
    return np.repeat(is_word[which_C], np.diff(byte_positions(text)))


def _filled(classes_T: np.ndarray, has_bytes_T: np.ndarray) -> np.ndarray:
    """Classes of tokens without bytes, from the nearest token before them that has some."""
    sources_T = np.maximum.accumulate(np.where(has_bytes_T, np.arange(len(classes_T)), -1))
    sources_T[sources_T < 0] = np.argmax(has_bytes_T)
    return classes_T[sources_T]

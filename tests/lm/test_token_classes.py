from __future__ import annotations

import numpy as np
from made_tokenizers import (
    built,
    spans,
)

from stemmatics.lm.scoring.sums import TOKEN_CLASSES
from stemmatics.lm.tokens.classes import token_classes


def class_names(name, text):
    encoding = built(name).encode(text)
    return [
        (span.decode(errors="replace"), TOKEN_CLASSES[index])
        for span, index in zip(spans(encoding, text), token_classes(text.encode(), encoding), strict=True)
    ]


def test_token_classes():
    classes = class_names("byte_level", "zz 7,\n z☕é\u4f60z")
    expected = {
        ("7", "number"),
        (",", "punctuation"),
        ("\n", "white_space"),
    }
    assert expected <= set(classes)
    assert classes[0] == ("z", "word_start")
    assert classes[1] == ("z", "inside_word")
    assert classes[-1] == ("z", "inside_word")  # after a Chinese character
    assert all(kind == "non_ascii" for span, kind in classes if "\ufffd" in span or not span.isascii())


def test_a_word_after_a_curly_quote_starts():
    classes = class_names("byte_level", "“zz")
    assert classes[-2:] == [("z", "word_start"), ("z", "inside_word")]


def test_tokens_without_bytes_take_their_neighbours_class():
    encoding = built("unigram").encode("½x")
    empty = np.flatnonzero(encoding.starts == encoding.ends)
    classes = token_classes("½x".encode(), encoding)
    assert len(empty)
    assert all(TOKEN_CLASSES[classes[index]] == "non_ascii" for index in empty)

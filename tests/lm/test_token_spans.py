from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tokenizers import (
    BUILDERS,
    BYTES,
    LOSSLESS,
    SlowTiktoken,
    built,
    check_cover,
    slow_sentencepiece,
    spans,
)

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.sums import TOKEN_CLASSES
from stemmatics.lm.tokens.classes import token_classes
from stemmatics.lm.tokens.spans import ends_by_offsets, ends_by_words
from stemmatics.lm.tokens.tokenizer import TextTokenizer

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


REAL_TEXT = st.lists(
    st.sampled_from(
        [
            *(
                "hello",
                " ",
                "  ",
                "   ",
                "\r\n",
                "\t",
                "☕",
                "naïve",
                "ﬁ",
                "e\u0301",
                "你好",
                "👩‍👩‍👧",
                "\x00",
                "\x07",
            ),
            *("<s>", "<|endoftext|>", "<think>", "▁", "Ġ", "1/2", "½", "\u2028", "\x85", "ﷺ", " !", "<0x41>"),
        ]
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT | REAL_TEXT)
def test_spans_cover_any_text_once_in_order(name, text):
    tokenizer = built(name)
    encoding = tokenizer.encode(text)
    check_cover(encoding, text)
    classes = token_classes(text.encode(), encoding)
    assert classes.shape == encoding.ids.shape
    assert ((classes >= 0) & (classes < len(TOKEN_CLASSES))).all()


@pytest.mark.parametrize("name", LOSSLESS)
@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="▁"), max_size=30))
def test_lossless_tokenizers_are_never_flagged_and_spell_their_spans(name, text):
    tokenizer = built(name)
    encoding = tokenizer.encode(text)
    assert encoding.flags == ()
    vocabulary = tokenizer.vocabulary()
    for index, span in zip(encoding.ids.tolist(), spans(encoding, text), strict=True):
        if vocabulary[index] in BYTES:
            assert span == bytes([BYTES.index(vocabulary[index])])


@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT | REAL_TEXT)
def test_spans_cover_any_text_under_slow_tokenizers(tmp_path_factory, text):
    for tokenizer in slow_pair(tmp_path_factory):
        check_cover(tokenizer.encode(text), text)


_SLOW = []


def slow_pair(tmp_path_factory):
    if not _SLOW:
        _SLOW.append(TextTokenizer(slow_sentencepiece(tmp_path_factory.mktemp("sp"))))
        _SLOW.append(TextTokenizer(SlowTiktoken(eos_token="<|endoftext|>")))
    return _SLOW


def test_slow_tokenizer_that_alters_the_text_is_exact_in_the_words_it_left_alone(tmp_path):
    tokenizer = TextTokenizer(slow_sentencepiece(tmp_path))
    text = "hello ﬁx world"
    encoding = tokenizer.encode(text)
    check_cover(encoding, text)
    assert encoding.flags == ("lossy",)
    plain_text = "hello world"
    plain = tokenizer.encode(plain_text)
    assert plain.flags == ()
    in_front, behind = (
        spans(plain, plain_text)[: list(plain.ends).index(5) + 1],
        spans(plain, plain_text)[-2:],
    )
    assert spans(encoding, text)[: len(in_front)] == in_front
    assert spans(encoding, text)[-2:] == behind
    assert len(behind[-1]) < len(b"world")


def test_words_missing_from_the_tokens_go_to_the_next_one():
    assert ends_by_words([b"one", b" ", b"three"], b"one two three").tolist() == [3, 4, 13]
    assert ends_by_words([b"one"], b"one two").tolist() == [7]


def test_offsets_that_run_backwards_still_cover():
    ends, lossy = ends_by_offsets([b"?", b"?", b"?"], [(0, 2), (0, 1), (1, 3)], "abc")
    assert ends.tolist() == [2, 2, 3]
    assert lossy


def test_offsets_that_tell_nothing_are_refused():
    with pytest.raises(UserError, match="no character offsets"):
        ends_by_offsets([b"?"], [(0, 0)], "abc")


def test_unknown_tokens_of_a_slow_tokenizer_are_flagged(tmp_path):
    tokenizer = TextTokenizer(slow_sentencepiece(tmp_path, byte_fallback=False))
    encoding = tokenizer.encode("hello Ж")
    assert tokenizer.hf.unk_token_id in encoding.ids
    assert encoding.flags == ("lossy",)
    assert spans(encoding, "hello Ж")[-1] == "Ж".encode()


@pytest.mark.parametrize("name", BUILDERS)
def test_field_cases_of_bytes(name):
    tokenizer = built(name)
    for text, size in [("naïve café ☕", 16), ("ﬁ", 3), ("a\r\nb\r\n", 6), ("", 0), ("x", 1)]:
        encoding = tokenizer.encode(text)
        assert len(text.encode()) == size
        assert int((encoding.ends - encoding.starts).sum()) == size
    assert spans(built("byte_level").encode("a !"), "a !") == [b"a", b" ", b"!"]
    assert int(built("metaspace_never").encode(" !").ends[-1]) == 2


def test_characters_that_span_tokens_are_cut_at_their_bytes():
    for name in ("byte_level", "metaspace_always"):
        encoding = built(name).encode("𝄞")
        assert [span for span in spans(encoding, "𝄞") if span] == [bytes([byte]) for byte in "𝄞".encode()]


def test_a_dummy_space_has_no_bytes():
    encoding = built("metaspace_always").encode("☕")
    assert spans(encoding, "☕") in ([b"", "☕".encode()], ["☕".encode()])
    assert encoding.flags == ()


def test_lossy_is_flagged_and_only_then():
    assert built("unigram").encode("ﬁ").flags == ("lossy",)
    assert built("unigram").encode("hello world").flags == ()
    assert built("byte_level_nfc").encode("e\u0301 ok").flags == ("lossy",)
    assert built("byte_level_nfc").encode("é ok").flags == ()
    assert built("wordpiece").encode("Hello").flags == ("lossy",)
    assert built("wordpiece").encode("  ").flags == ("lossy", "dropped")


def test_lossy_text_is_exact_around_the_altered_character():
    text = "hello ﬁ ☕ world"
    encoding = built("byte_level_nfc").encode(text.replace("ﬁ", "e\u0301"))
    encoding = spans(encoding, text.replace("ﬁ", "e\u0301"))
    alone = spans(built("byte_level_nfc").encode(" ☕ world"), " ☕ world")
    assert len(alone[1]) < len("☕".encode())  # cut inside the character
    assert encoding[-len(alone) :] == alone
    altered = built("unigram").encode(text)
    assert len(b"hello ") - 1 in altered.ends


def test_words_drop_their_spaces_to_the_next_token():
    encoding = built("wordpiece").encode("hello  words ")
    assert b"".join(spans(encoding, "hello  words ")) == b"hello  words "
    start_of_words = next(
        s
        for s, span in zip(encoding.starts, spans(encoding, "hello  words "), strict=True)
        if span[:1] == b" "
    )
    assert int(start_of_words) == 5

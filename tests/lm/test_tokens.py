from __future__ import annotations

import io
import itertools
import json
from functools import cache

import numpy as np
import pytest
import sentencepiece
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from stemmatics.core.errors import UserError
from stemmatics.lm.sums import TOKEN_CLASSES
from stemmatics.lm.token_classes import token_classes
from stemmatics.lm.token_spans import ends_by_offsets, ends_by_words
from stemmatics.lm.tokens import TextTokenizer, shared_support

SENTENCES = [
    "hello world, this is some text 123 with naïve café ☕ and 你好 and more",
    "the quick brown fox isn't here; def f(x):\n    return x + 1",
    "endoftext unk start fi words words words",
] * 4
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def wrapped(backend, **special):
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def byte_level(*, nfc=False):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if nfc:
        backend.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.add_tokens([AddedToken("   ", normalized=False), AddedToken("<think>", normalized=False)])
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return wrapped(backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def metaspace(scheme):
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    specials = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=specials + BYTES, show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    # Training marks the byte tokens as special; in real vocabularies they are ordinary.
    rebuilt = Tokenizer(
        models.BPE(
            vocab=backend.get_vocab(),
            merges=merges_of(backend),
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    rebuilt.pre_tokenizer = backend.pre_tokenizer
    rebuilt.add_special_tokens(specials)
    rebuilt.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", rebuilt.token_to_id("<s>"))]
    )
    return wrapped(rebuilt, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def merges_of(backend):
    return [tuple(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]


def prepended():
    tokenizer = metaspace("never")
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = None
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return wrapped(backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def unigram():
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    return wrapped(backend, bos_token="<s>", unk_token="<unk>")


def wordpiece():
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    return wrapped(backend, cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]")


@cache
def sentencepiece_model(*, byte_fallback):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=330 if byte_fallback else 80,
        model_type="bpe",
        byte_fallback=byte_fallback,
        normalization_rule_name="nfkc",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def slow_sentencepiece(folder, *, byte_fallback=True):
    file = folder / "tokenizer.model"
    file.write_bytes(sentencepiece_model(byte_fallback=byte_fallback))
    return SentencePieceBackend(
        vocab_file=str(file), bos_token="<s>", eos_token="</s>", unk_token="<unk>", legacy=True
    )


class SlowTiktoken(PreTrainedTokenizer):
    """As the tokenizers that come with their own code do: pieces are byte strings."""

    def __init__(self, **kwargs):
        ranks = {bytes([byte]): byte for byte in range(256)} | {
            b"he": 256,
            b"ll": 257,
            b" w": 258,
            b"hell": 259,
        }
        self.ranks = ranks
        self.encoding = tiktoken.Encoding(
            "tiny", pat_str=r" ?\w+|\s+|[^\w\s]+", mergeable_ranks=ranks, special_tokens={}
        )
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return len(self.ranks)

    def get_vocab(self):
        return self.ranks | self.added_tokens_encoder

    def _tokenize(self, text):
        return [
            self.encoding.decode_single_token_bytes(index) for index in self.encoding.encode_ordinary(text)
        ]

    def _convert_token_to_id(self, token):
        return self.ranks.get(token)

    def _convert_id_to_token(self, index):
        return self.encoding.decode_single_token_bytes(index)

    def save_vocabulary(self, save_directory, filename_prefix=None):
        return ()


BUILDERS = {
    "byte_level": byte_level,
    "byte_level_nfc": lambda: byte_level(nfc=True),
    "metaspace_always": lambda: metaspace("always"),
    "metaspace_first": lambda: metaspace("first"),
    "metaspace_never": lambda: metaspace("never"),
    "prepended": prepended,
    "unigram": unigram,
    "wordpiece": wordpiece,
}
LOSSLESS = ("byte_level", "metaspace_always", "metaspace_first", "metaspace_never", "prepended")


@cache
def built(name):
    return TextTokenizer(BUILDERS[name]())


@pytest.fixture(params=["sentencepiece", "tiktoken"])
def slow(request, tmp_path):
    if request.param == "sentencepiece":
        return TextTokenizer(slow_sentencepiece(tmp_path))
    return TextTokenizer(SlowTiktoken(eos_token="<|endoftext|>", extra_special_tokens=["<|im_start|>"]))


def check_cover(encoding, text):
    starts, ends, size = encoding.starts, encoding.ends, len(text.encode())
    assert len(starts) == len(ends) == len(encoding.ids)
    if not len(starts):
        assert size == 0 or "dropped" in encoding.flags
        return
    assert starts[0] == 0
    assert ends[-1] == size
    assert (ends >= starts).all()
    assert (starts[1:] == ends[:-1]).all()


def spans(encoding, text):
    raw = text.encode()
    return [raw[start:end] for start, end in zip(encoding.starts, encoding.ends, strict=True)]


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


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=40, deadline=None)
@given(text=ANY_TEXT)
def test_ids_are_the_tokenizers_own(name, text):
    tokenizer = built(name)
    if any(token in text for token in tokenizer.hf.all_special_tokens):
        return
    own = tokenizer.hf(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode(text).ids.tolist() == own


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


@pytest.mark.parametrize("name", BUILDERS)
def test_control_tokens_in_a_document_are_text(name):
    tokenizer = built(name)
    unknown = {tokenizer.hf.unk_token_id}
    for token in tokenizer.hf.all_special_tokens:
        text = f"a{token} {token}\n{token}"
        encoding = tokenizer.encode(text)
        assert not (set(encoding.ids.tolist()) & tokenizer.special_ids) - unknown
        check_cover(encoding, text)


def test_control_tokens_are_text_under_slow_tokenizers(slow):
    for token in slow.hf.all_special_tokens:
        for text in (token, f"a{token} b", f"{token}{token}"):
            encoding = slow.encode(text)
            assert not set(encoding.ids.tolist()) & slow.special_ids
            check_cover(encoding, text)
            assert encoding.flags == ()


def test_slow_ids_are_the_tokenizers_own(slow):
    for text in ("hello world", "naïve café ☕", " two  spaces\n\n", "", "你好 👩‍👩‍👧"):
        assert slow.encode(text).ids.tolist() == slow.hf(text, add_special_tokens=False)["input_ids"]


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
    ends, lossy = ends_by_offsets([b"?", b"?", b"?"], [(0, 2), (1, 1), (2, 3)], "abc")
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


def test_added_tokens_mean_their_own_text(tmp_path):
    fast = byte_level()
    fast.add_tokens(["é"])
    slow = slow_sentencepiece(tmp_path)
    slow.add_tokens(["a▁b"])
    for tokenizer, text in ((TextTokenizer(fast), "é"), (TextTokenizer(slow), "x a▁b")):
        encoding = tokenizer.encode(text)
        assert encoding.ids[-1] in tokenizer.added_ids
        assert encoding.flags == ()


def test_special_tokens_inside_a_unigram_vocabulary_are_kept_out():
    plain = Tokenizer(
        models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("▁", -3.0), *((c, -4.0) for c in "a<s>b")], 0)
    )
    plain.pre_tokenizer = pre_tokenizers.Metaspace()
    plain.add_special_tokens(["<s>"])
    plain.encode_special_tokens = True
    assert 1 in plain.encode("a<s>b").ids  # the library's own switch is not enough
    tokenizer = TextTokenizer(wrapped(plain, bos_token="<s>", unk_token="<unk>"))
    assert 1 not in tokenizer.encode("a<s>b").ids
    assert [s.decode() for s in spans(tokenizer.encode("a<s>b"), "a<s>b") if s] == list("a<s>b")
    assert tokenizer.vocabulary()[1] == "<s>"
    assert 1 in tokenizer.encode("<s>a", rendered=True).ids


def test_a_slow_tokenizer_that_reads_control_tokens_is_refused():
    class Reading(SlowTiktoken):
        def _tokenize(self, text):
            return ["<s>"] if text == "<s>" else super()._tokenize(text)

    with pytest.raises(UserError, match="'<s>' in a document can't be kept apart"):
        TextTokenizer(Reading(bos_token="<s>"))


def test_a_single_character_may_be_a_special_token_and_text():
    backend = byte_level().backend_tokenizer
    tokenizer = TextTokenizer(wrapped(backend, eos_token="<|endoftext|>", pad_token="!"))
    index = backend.token_to_id("!")
    assert tokenizer.encode("hi!").ids.tolist()[-1] == index
    assert index in tokenizer.special_ids


def test_a_word_that_merges_build_may_be_a_special_token_and_text():
    backend = Tokenizer(models.BPE(vocab={"!": 0, "#": 1, "!!": 2, "##": 3}, merges=[("!", "!"), ("#", "#")]))
    tokenizer = TextTokenizer(wrapped(backend, eos_token="##", pad_token="!"))
    assert tokenizer.encode("##!!").ids.tolist() == [3, 2]
    assert tokenizer.special_ids == {0, 3}


def test_a_template_that_puts_several_tokens_in_front_is_refused():
    tokenizer = wordpiece()
    ids = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] [SEP] $A", special_tokens=ids
    )
    with pytest.raises(UserError, match="puts 2 tokens in front"):
        TextTokenizer(tokenizer).prefix("auto")


def test_ordinary_added_tokens_are_matched():
    tokenizer = built("byte_level")
    text = "x   y<think>"
    encoding = tokenizer.encode(text)
    assert spans(encoding, text) == [b"x", b"   ", b"y", b"<think>"]
    assert {int(encoding.ids[1]), int(encoding.ids[3])} == tokenizer.added_ids
    assert encoding.flags == ()


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
    found = spans(encoding, text.replace("ﬁ", "e\u0301"))
    alone = spans(built("byte_level_nfc").encode(" ☕ world"), " ☕ world")
    assert len(alone[1]) < len("☕".encode())  # cut inside the character
    assert found[-len(alone) :] == alone
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


def test_prefix_policies():
    metaspaced, byte = built("metaspace_always"), built("byte_level")
    bos = metaspaced.hf.bos_token_id
    assert metaspaced.prefix("auto") == (bos, "<s>")
    assert byte.prefix("auto") == (None, "none")
    assert byte.prefix("always") == (byte.hf.eos_token_id, "<|endoftext|>")
    assert metaspaced.prefix("never") == (None, "none")
    cls = built("wordpiece")
    assert cls.prefix("auto") == (cls.hf.cls_token_id, "[CLS]")
    with pytest.raises(UserError, match="neither BOS nor EOS"):
        cls.prefix("always")


def test_tokens_that_the_configuration_names_are_special_whatever_their_own_mark():
    backend = byte_level().backend_tokenizer
    backend.add_tokens([AddedToken("<eot>", special=False)])
    tokenizer = TextTokenizer(wrapped(backend, eos_token="<eot>"))
    index = backend.token_to_id("<eot>")
    assert index in tokenizer.special_ids - tokenizer.added_ids
    assert index not in tokenizer.encode("a<eot>").ids


def test_always_takes_eos_where_there_is_no_bos():
    backend = byte_level().backend_tokenizer
    tokenizer = TextTokenizer(wrapped(backend, eos_token="<|endoftext|>"))
    assert tokenizer.prefix("always") == (backend.token_to_id("<|endoftext|>"), "<|endoftext|>")


def test_rendered_text_keeps_its_control_tokens():
    tokenizer = built("metaspace_always")
    text = "<s>hello</s>"
    encoding = tokenizer.encode(text, rendered=True)
    assert encoding.ids[0] == tokenizer.hf.bos_token_id
    assert encoding.ids[-1] == tokenizer.hf.eos_token_id
    assert encoding.flags == ("has_bos",)
    check_cover(encoding, text)
    assert spans(encoding, text)[0] == b"<s>"
    assert "has_bos" not in tokenizer.encode(text).flags


def test_the_given_tokenizer_is_left_as_it_was():
    given_tokenizer = metaspace("always")
    before = given_tokenizer.backend_tokenizer.to_str()
    TextTokenizer(given_tokenizer).encode("a<s>b")
    assert given_tokenizer.backend_tokenizer.to_str() == before
    assert given_tokenizer.bos_token_id in given_tokenizer("a<s>b", add_special_tokens=False)["input_ids"]


def test_fingerprint_follows_what_decides_ids():
    first = built("byte_level").fingerprint
    assert TextTokenizer(byte_level()).fingerprint == first
    assert built("byte_level_nfc").fingerprint != first
    more = byte_level()
    more.add_tokens(["xyz"])
    assert TextTokenizer(more).fingerprint != first
    other_template = byte_level()
    other_template.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    assert TextTokenizer(other_template).fingerprint == first


def test_slow_fingerprint(slow, tmp_path):
    assert len(slow.fingerprint) == 64
    assert slow.fingerprint != TextTokenizer(SlowTiktoken(eos_token="</s>")).fingerprint


def test_a_byte_string_vocabulary_equals_its_byte_level_spelling():
    slow = TextTokenizer(SlowTiktoken(eos_token="<|endoftext|>"))
    assert slow.vocabulary()[0x20] == "Ġ"
    assert slow.vocabulary()[258] == "Ġw"


def test_shared_support():
    base = built("byte_level")
    changed = byte_level()
    changed.add_special_tokens({"extra_special_tokens": ["<|im_start|>"]})
    descendant = TextTokenizer(changed)
    size = max(base.vocabulary()) + 1
    support = shared_support(base, descendant, size + 4, size + 2)
    assert support.mask.shape == (size + 4,)
    end = base.hf.eos_token_id
    assert support.excluded["special"] == (end, size)
    assert support.excluded["padding"] == (size + 1, size + 2, size + 3)
    assert support.excluded["differs"] == ()
    assert support.excluded["missing"] == ()
    assert support.mask.sum() == size - 1
    assert all(support.mask[index] for index in base.added_ids)


def test_shared_support_excludes_other_strings_and_missing_ids():
    base = built("byte_level")
    replaced = byte_level()
    replaced.add_tokens(["tail"])
    longer = TextTokenizer(replaced)
    size = max(base.vocabulary()) + 1
    assert shared_support(base, longer, size, size + 1).excluded["missing"] == (size,)
    cut = shared_support(base, base, size, size - 1)
    assert cut.excluded["missing"] == (size - 1,)
    renamed = byte_level()
    spec = json.loads(renamed.backend_tokenizer.to_str())
    (think,) = [token for token in spec["added_tokens"] if token["content"] == "<think>"]
    think["content"] = "<reason>"
    backend = Tokenizer.from_str(json.dumps(spec))
    other = TextTokenizer(wrapped(backend, eos_token="<|endoftext|>"))
    assert shared_support(base, other, size, size).excluded["differs"] == (think["id"],)
    with pytest.raises(UserError, match="share no token"):
        shared_support(base, built("metaspace_never"), size, size)


def class_names(name, text):
    encoding = built(name).encode(text)
    return [
        (span.decode(errors="replace"), TOKEN_CLASSES[index])
        for span, index in zip(spans(encoding, text), token_classes(text.encode(), encoding), strict=True)
    ]


def test_token_classes():
    found = class_names("byte_level", "zz 7,\n z☕é\u4f60z")
    expected = {
        ("7", "number"),
        (",", "punctuation"),
        ("\n", "white_space"),
    }
    assert expected <= set(found)
    assert found[0] == ("z", "word_start")
    assert found[1] == ("z", "inside_word")
    assert found[-1] == ("z", "inside_word")  # after a Chinese character
    assert all(kind == "non_ascii" for span, kind in found if "\ufffd" in span or not span.isascii())


def test_a_word_after_a_curly_quote_starts():
    found = class_names("byte_level", "“zz")
    assert found[-2:] == [("z", "word_start"), ("z", "inside_word")]


def test_tokens_without_bytes_take_their_neighbours_class():
    encoding = built("unigram").encode("½x")
    empty = np.flatnonzero(encoding.starts == encoding.ends)
    classes = token_classes("½x".encode(), encoding)
    assert len(empty)
    assert all(TOKEN_CLASSES[classes[index]] == "non_ascii" for index in empty)


def test_batches_equal_single_texts():
    texts = ["hello", "", "ﬁ ☕", "a<s>b"]
    for name, text in itertools.product(BUILDERS, texts):
        alone = built(name).encode(text)
        together = built(name).encode_batch(texts)[texts.index(text)]
        assert alone.ids.tolist() == together.ids.tolist()
        assert alone.ends.tolist() == together.ends.tolist()
        assert alone.flags == together.flags


def test_a_tokenizer_of_another_kind_is_refused():
    with pytest.raises(UserError, match="can't encode plain text"):
        TextTokenizer(object())


def test_a_class_that_encodes_unlike_its_backend_is_refused():
    class Upper(PreTrainedTokenizerFast):
        def _encode_plus(self, text, **kwargs):
            return super()._encode_plus(text.upper(), **kwargs)

    backend = byte_level().backend_tokenizer
    with pytest.raises(UserError, match="unlike its own backend"):
        TextTokenizer(Upper(tokenizer_object=backend, eos_token="<|endoftext|>"))

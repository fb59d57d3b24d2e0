from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tokenizers import (
    BUILDERS,
    SlowTiktoken,
    built,
    byte_level,
    check_cover,
    metaspace,
    slow_sentencepiece,
    spans,
    wordpiece,
    wrapped,
)
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast

from stemmatics.core.errors import UserError
from stemmatics.lm.tokens.tokenizer import TextTokenizer, shared_support

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@pytest.fixture(params=["sentencepiece", "tiktoken"])
def slow(request, tmp_path):
    if request.param == "sentencepiece":
        return TextTokenizer(slow_sentencepiece(tmp_path))
    return TextTokenizer(SlowTiktoken(eos_token="<|endoftext|>", extra_special_tokens=["<|im_start|>"]))


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=40, deadline=None)
@given(text=ANY_TEXT)
def test_ids_are_the_tokenizers_own(name, text):
    tokenizer = built(name)
    if any(token in text for token in tokenizer.hf.all_special_tokens):
        return
    own = tokenizer.hf(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode(text).ids.tolist() == own


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


def test_added_tokens_mean_their_own_text(tmp_path):
    fast = byte_level()
    fast.add_tokens(["é"])
    slow = slow_sentencepiece(tmp_path)
    slow.add_tokens(["a▁b"])
    for tokenizer, text, added in ((TextTokenizer(fast), "é", "é"), (TextTokenizer(slow), "x a▁b", "a▁b")):
        encoding = tokenizer.encode(text)
        assert encoding.ids[-1] == tokenizer.hf.convert_tokens_to_ids(added)
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

    with pytest.raises(UserError, match="'<s>' in a document can't be distinguished"):
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
    added = tokenizer.hf.convert_tokens_to_ids(["   ", "<think>"])
    assert [encoding.ids[1], encoding.ids[3]] == added
    assert encoding.flags == ()


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
    assert index in tokenizer.special_ids
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
    assert support.mask[base.hf.convert_tokens_to_ids(["   ", "<think>"])].all()


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
    with pytest.raises(UserError, match="differently from its own backend"):
        TextTokenizer(Upper(tokenizer_object=backend, eos_token="<|endoftext|>"))

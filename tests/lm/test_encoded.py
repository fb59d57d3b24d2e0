"""A corpus as tokens: what comes back from memory and from a scratch file is what the tokenizer gave."""

import hashlib
import json

import numpy as np
import pytest
from tests.lm.letters import TEMPLATE, letters
from tests.lm.tiny_checkpoints import make_tokenizer

from stemmatics.core.corpora import Corpus
from stemmatics.lm.scoring import encoded as encoded_module
from stemmatics.lm.scoring.encoded import EncodedCorpus, tokenized
from stemmatics.lm.text.corpus import read
from stemmatics.lm.tokens.tokenizer import TextTokenizer

TEXTS = ["the scribe", "", "naïve ☕ 你好", "the copy kept 1234 faults", " two  spaces\n", "x"]
CHAT = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd e"}]


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 3))
    return lambda: read(Corpus(path=[str(path)]))


@pytest.fixture
def rendered(tmp_path):
    template = TEMPLATE.replace("bos_token", "'<s>'").replace("eos_token", "'</s>'")
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": CHAT}) + "\n" + json.dumps({"text": "abc"}) + "\n")
    render = {"template": template, "role": "assistant"}
    return lambda: read(Corpus(path=[str(path)], render=render))


def assert_same(documents, expected):
    documents, expected = list(documents), list(expected)
    assert len(documents) == len(expected)
    for document, other in zip(documents, expected, strict=True):
        for name in ("index", "doc_id", "register", "flags"):
            assert getattr(document, name) == getattr(other, name)
        for name in ("ids", "starts", "ends", "classes"):
            ours, theirs = getattr(document, name), getattr(other, name)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        assert (document.scored_mask is None) == (other.scored_mask is None)
        if other.scored_mask is not None:
            np.testing.assert_array_equal(document.scored_mask, other.scored_mask)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1])
@pytest.mark.parametrize("batch", [2, 256])
def test_documents_come_back_as_they_were(plain, tmp_path, monkeypatch, memory_bytes, batch):
    monkeypatch.setattr(encoded_module, "TOKENIZER_BATCH", batch)
    tokenizer = TextTokenizer(make_tokenizer())
    corpus = EncodedCorpus(tokenizer, plain(), folder=tmp_path, memory_bytes=memory_bytes)
    assert (corpus.memory_bytes == 0) == (memory_bytes == 1)
    for _ in range(2):
        assert_same(corpus.documents(), tokenized(tokenizer, plain()))


def test_two_readers_do_not_disturb_each_other(plain, monkeypatch):
    monkeypatch.setattr(encoded_module, "TOKENIZER_BATCH", 2)
    corpus = EncodedCorpus(TextTokenizer(make_tokenizer()), plain())
    pairs = list(zip(corpus.documents(), corpus.documents(), strict=True))
    assert [first.index for first, _ in pairs] == list(range(18))
    assert all(first.doc_id == second.doc_id for first, second in pairs)


def test_a_rendered_conversation_keeps_its_spans_and_loses_its_own_prefix(rendered):
    tokenizer = TextTokenizer(letters())
    corpus = EncodedCorpus(tokenizer, rendered())
    for prefix_id in (None, 1):
        assert_same(corpus.documents(prefix_id), tokenized(tokenizer, rendered(), prefix_id))
    whole, cut = (next(corpus.documents(prefix_id)) for prefix_id in (None, 1))
    assert "has_bos" in whole.flags
    assert len(cut.ids) == len(whole.ids) - 1
    # the reply and the token that ends it
    assert int(cut.scored_mask.sum()) == len("cd e") + 1


def test_counts_are_those_of_the_tokenizer(plain):
    tokenizer = TextTokenizer(make_tokenizer())
    encodings = [tokenizer.encode(document.text).ids for document in plain()]
    digest = hashlib.sha256()
    for ids in encodings:
        digest.update(len(ids).to_bytes(8, "big") + ids.astype("<i8").tobytes())
    ids_N = np.concatenate(encodings)
    corpus = EncodedCorpus(tokenizer, plain())
    for num_ids in (320, 1000, 100):
        counted = corpus.counted(num_ids)
        assert counted.token_ids_sha256 == digest.hexdigest()
        assert (counted.num_tokens, counted.num_documents) == (len(ids_N), len(encodings))
        expected_V = np.bincount(ids_N, minlength=1000)[:num_ids]
        np.testing.assert_array_equal(counted.frequencies_V, expected_V)


def test_memory_may_be_given_back_later(plain, tmp_path):
    tokenizer = TextTokenizer(make_tokenizer())
    corpus = EncodedCorpus(tokenizer, plain(), folder=tmp_path)
    assert corpus.memory_bytes == corpus.num_bytes > 0
    corpus.spill()
    assert corpus.memory_bytes == 0
    assert_same(corpus.documents(), tokenized(tokenizer, plain()))
    assert not list(tmp_path.glob("tmp*")), "the scratch file has no name"


def test_an_empty_corpus_has_no_documents():
    corpus = EncodedCorpus(TextTokenizer(make_tokenizer()), [])
    assert list(corpus.documents()) == []
    assert corpus.counted(10).num_tokens == 0

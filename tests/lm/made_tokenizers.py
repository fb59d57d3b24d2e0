"""Small tokenizers of every kind, made in memory, and checks of their byte spans."""

from __future__ import annotations

import io
import json
from functools import cache

import sentencepiece
import tiktoken
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

from stemmatics.lm.tokens.tokenizer import TextTokenizer

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

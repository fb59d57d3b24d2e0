"""A checkpoint whose tokens are letters: 64 ids, one per character, so losses are known by hand."""

from __future__ import annotations

import string

import torch
from oracles import bigram_model, flat_model
from tokenizers import Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

BOS, EOS = "<s>", "</s>"
# 61 characters after <unk>, <s> (id 1, as in the oracles) and </s>.
CHARACTERS = string.ascii_letters + string.digits[:7] + " ."
NAMES = ["<unk>", BOS, EOS, *CHARACTERS]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}Q{% else %}A{% endif %}"
    "{{ m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A{% endif %}"
)


def letters(*, adds_bos: bool = True, merges: tuple[tuple[str, str], ...] = ()) -> PreTrainedTokenizerFast:
    """One token per character, except for ``merges``; with a chat template that writes BOS and EOS itself."""
    vocabulary = {name: index for index, name in enumerate(NAMES)}
    for pair in merges:
        vocabulary["".join(pair)] = len(vocabulary)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges), unk_token="<unk>"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<unk>", BOS, EOS])
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BOS, eos_token=EOS, unk_token="<unk>", chat_template=TEMPLATE
    )


def ids_of(text: str) -> list[int]:
    return [NAMES.index(character) for character in text]


def chain(losses: dict[tuple[str, str], float]) -> torch.nn.Module:
    """O2: after the first of each pair the second costs the given nats."""
    p_VV = torch.full((64, 64), 1 / 64, dtype=torch.float64)
    for (first, second), loss in losses.items():
        row = 1 if first == BOS else NAMES.index(first)
        p = torch.exp(torch.tensor(-loss, dtype=torch.float64))
        p_VV[row] = (1 - p) / 63
        p_VV[row, NAMES.index(second)] = p
    return bigram_model(p_VV.log().float())


def checkpoint(folder, model=None, tokenizer=None):
    """A folder to score: O1 unless another model is given."""
    (model or flat_model()).save_pretrained(folder)
    (tokenizer or letters()).save_pretrained(folder)
    return folder

"""Tiny checkpoints, made on the spot: a trained tokenizer and a Llama with known random weights."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LINES = ["the scribe copied the text and the copy kept the faults", "in 1234 and 2024, 12 34 99   7 bottles"]


def make_tokenizer(vocab_size=320, *, lines=LINES, digits=True):
    """A byte-level BPE tokenizer; ``digits``: split digits one by one first."""
    backend = Tokenizer(models.BPE())
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(lines * 4, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def make_model(seed=0, **changes):
    """Two layers of width 16."""
    settings = {
        "vocab_size": 320,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.5,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()


def make_checkpoint(folder, *, tokenizer=None, shards=None, **changes):
    """A folder with both; ``changes`` go to the config, ``shards`` is the size of one."""
    size = {} if shards is None else {"max_shard_size": shards}
    make_model(**changes).save_pretrained(folder, **size)
    (tokenizer or make_tokenizer()).save_pretrained(folder)
    return folder


def nll_sum(model, ids=(0, 5, 9, 40, 100, 260, 7, 31)):
    """Nats of all ids but the first, in float64."""
    ids_BL = torch.tensor([ids])
    with torch.no_grad():
        log_probs_LV = model(ids_BL).logits[0, :-1].double().log_softmax(-1)
    return -log_probs_LV.gather(1, ids_BL[0, 1:, None]).sum().item()

"""The share of a training run's time that StemmaCallback takes by default, on a model of the nursery's size.

Peer: the same updates without the callback, timed in the same process before and after. Goal: at most 2% of
the time, by the callback's own accounting and by the two timings. The last line is JSON; exit status 1 where
the goal is missed.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

import stemmatics as st

GOAL = 0.02
STEPS, BATCH, LENGTH = 250, 16, 128
NUM_IDS = 2048


def tokenizer_of(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=NUM_IDS, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    special = dict.fromkeys(("eos_token", "pad_token"), "<eos>")
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def model_of() -> LlamaForCausalLM:
    """About a million parameters."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=NUM_IDS,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def seconds_of(
    rows: Dataset, tokenizer: PreTrainedTokenizerFast, folder: Path, callbacks: list[st.StemmaCallback]
) -> float:
    """One training run."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model_of(), arguments, train_dataset=rows, processing_class=tokenizer, callbacks=callbacks
    )
    started = time.monotonic()
    trainer.train()
    return time.monotonic() - started


def main() -> None:
    """Three runs: without, with, without."""
    from pydoc_data.topics import topics

    texts = [text for text in topics.values() if len(text) > 200]
    tokenizer = tokenizer_of(texts)
    ids = tokenizer("\n".join(texts))["input_ids"]
    blocks = [ids[start : start + LENGTH] for start in range(0, len(ids) - LENGTH, LENGTH)]
    rows = Dataset.from_list([{"input_ids": block, "labels": block} for block in blocks])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = folder / "text.jsonl"
        text.write_text("".join(json.dumps({"text": document}) + "\n" for document in texts))
        alone = [seconds_of(rows, tokenizer, folder / "before", [])]
        callback = st.StemmaCallback(None, text)
        watched = seconds_of(rows, tokenizer, folder / "watched", [callback])
        alone.append(seconds_of(rows, tokenizer, folder / "after", []))
    share = callback.seconds / watched
    overhead = watched / min(alone) - 1
    print(f"without: {alone[0]:.1f} and {alone[1]:.1f} s; with: {watched:.1f} s")
    print(
        f"{len(callback.history)} evaluations and the base: {callback.seconds:.2f} s, {share:.1%} of the run"
    )
    row = {"alone": alone, "watched": watched, "share": share, "overhead": overhead, "goal": GOAL}
    print(json.dumps(row))
    sys.exit(share > GOAL)


if __name__ == "__main__":
    main()

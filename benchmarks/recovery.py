"""Training throughput of the recovery fine-tune against TRL, on documents of 20 to 500 tokens, on CPU.

Both sides train the same adapters from the same start on the same documents in the same updates, with
the mean loss over an update's tokens, and their losses are compared update by update. TRL's SFTTrainer
runs unpacked (for the goal) and, for information, with its packing modes, which make other updates of
the documents. Sides take turns in an order that is reversed in every round, and the ratio is that of the
medians. The last line is JSON; the exit status is 1 if the goal is missed.

Run: python benchmarks/recovery.py
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig, SFTTrainer

from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Lora, RecoveryRecipe
from stemmatics.train.finetune import Conditions, quiet, seeded
from stemmatics.train.recovery import recover
from stemmatics.train.recovery_rows import Update

GOAL = 1.3
LOSS_APART = 1e-4
SEED = 0
FEW_IDS = 16
NUM_IDS, WIDTH, LAYERS, CONTEXT = 1024, 128, 4, 512
SHORTEST, LONGEST = 20, 500
DOCUMENTS_AN_UPDATE, UPDATES, ROUNDS = 16, 10, 3
BATCH = 8
LORA = Lora(rank=16, alpha=32)
RATE = 3e-3


def documents() -> list[list[int]]:
    """Ids of documents of log-uniform length, the prefix first; few ids, so that loss falls."""
    generator = np.random.default_rng(SEED)
    bounds = np.log(SHORTEST), np.log(LONGEST)
    lengths = np.exp(generator.uniform(*bounds, UPDATES * DOCUMENTS_AN_UPDATE)).astype(int)
    return [[0, *generator.integers(1, 1 + FEW_IDS, length).tolist()] for length in lengths]


def model() -> Any:
    """A Llama of a million parameters, the same at each call."""
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(
        vocab_size=NUM_IDS,
        hidden_size=WIDTH,
        intermediate_size=336,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


Side = Callable[[], tuple[list[float], int]]


def timed(train: Side) -> tuple[float, list[float], int]:
    """Seconds, losses by update, tokens read."""
    start = time.perf_counter()
    losses, num_tokens = train()
    return time.perf_counter() - start, losses, num_tokens


def ours(rows: list[list[int]], scratch: Path) -> Side:
    """The recovery fine-tune on whole updates."""
    updates = [
        Update(part, sum(len(row) - 1 for row in part), 0, len(part))
        for start in range(0, len(rows), DOCUMENTS_AN_UPDATE)
        for part in [rows[start : start + DOCUMENTS_AN_UPDATE]]
    ]
    recipe = RecoveryRecipe(
        updates=UPDATES,
        update_tokens=8,
        max_length=CONTEXT,
        learning_rate=RATE,
        schedule="constant",
        warmup=0.0,
        lora=LORA,
    )
    numerics = Numerics(device="cpu")
    start = model()

    def train() -> tuple[list[float], int]:
        with seeded(SEED, numerics), quiet():
            conditions = Conditions(SEED, numerics)
            _, log = recover(start, updates, recipe, conditions, pad_id=0, state=scratch / "state")
        return [row.loss for row in log.rows], log.rows[-1].num_tokens

    return train


def theirs(rows: list[list[int]], scratch: Path, **packing: Any) -> Side:
    """TRL's SFTTrainer: the same rows in the same order, in batches of eight that are added up."""
    start = model()

    def train() -> tuple[list[float], int]:
        with seeded(SEED, Numerics(device="cpu")), quiet():
            trainer = SFTTrainer(
                model=start,
                args=SFTConfig(
                    output_dir=str(scratch / "trl"),
                    max_steps=UPDATES,
                    per_device_train_batch_size=BATCH,
                    gradient_accumulation_steps=DOCUMENTS_AN_UPDATE // BATCH,
                    learning_rate=RATE,
                    lr_scheduler_type="constant_with_warmup",
                    train_sampling_strategy="sequential",
                    max_length=CONTEXT,
                    gradient_checkpointing=False,
                    bf16=False,
                    use_cpu=True,
                    include_num_input_tokens_seen="non_padding",
                    logging_steps=1,
                    save_strategy="no",
                    report_to="none",
                    disable_tqdm=True,
                    dataloader_pin_memory=False,
                    seed=SEED,
                    dataset_kwargs={"skip_prepare_dataset": not packing},
                    **packing,
                ),
                train_dataset=Dataset.from_list([{"input_ids": row} for row in rows]),
                processing_class=tokenizer(),
                peft_config=LoraConfig(
                    r=LORA.rank, lora_alpha=LORA.alpha, target_modules="all-linear", lora_dropout=0.0
                ),
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, int(trainer.state.num_input_tokens_seen)

    return train


def tokenizer() -> Any:
    """A tokenizer, which TRL requires; no text is encoded."""
    from stemmatics.train.tokenizer import train_tokenizer

    return train_tokenizer(["a text"], 300, CONTEXT)


def measure(rows: list[list[int]]) -> dict[str, Any]:
    """Tokens per second of each side, medians over the rounds, and the difference of the losses."""
    num_tokens = sum(len(row) - 1 for row in rows)
    sides: dict[str, Callable[[Path], Side]] = {
        "stemmatics": lambda scratch: ours(rows, scratch),
        "TRL unpacked": lambda scratch: theirs(rows, scratch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, list[float]] = {}
    for turn in range(ROUNDS + 1):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            with tempfile.TemporaryDirectory() as scratch:
                spent, losses[name], _ = timed(sides[name](Path(scratch)))
            # the first round loads and warms up
            seconds[name] += [spent] if turn else []
    speed = {name: num_tokens / statistics.median(spent) for name, spent in seconds.items()}
    apart = max(abs(a - b) for a, b in zip(losses["stemmatics"], losses["TRL unpacked"], strict=True))
    return {"speed": speed, "apart": apart, "losses": losses["stemmatics"], "num_tokens": num_tokens}


def packing_modes(rows: list[list[int]]) -> dict[str, float | str]:
    """Tokens per second of TRL's packing modes, or why a mode fails."""
    rates: dict[str, float | str] = {}
    for mode in ("wrapped", "bfd"):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                spent, _, num_tokens = timed(theirs(rows, Path(scratch), packing=True, packing_strategy=mode))
            except (ValueError, RuntimeError, TypeError) as error:
                rates[mode] = f"{type(error).__name__}: {str(error)[:80]}"
                continue
        # packed rows have more text: documents repeat until all updates are done
        rates[mode] = num_tokens / spent
    return rates


def main() -> int:
    """Print the ratio and the losses; returns 1 if a goal is missed."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = documents()
    result = measure(rows)
    speed = result["speed"]
    ratio = speed["stemmatics"] / speed["TRL unpacked"]
    print(
        f"{len(rows)} documents of {SHORTEST} to {LONGEST} tokens, {result['num_tokens']} in all, "
        f"{UPDATES} updates"
    )
    for name, value in speed.items():
        print(f"{name:<14} {value:8.0f} tokens/s")
    modes = packing_modes(rows)
    for mode, value in modes.items():
        print(f"TRL {mode:<10} {value if isinstance(value, str) else f'{value:8.0f} tokens/s'}")
    print(
        f"loss {result['losses'][0]:.3f} to {result['losses'][-1]:.3f}; at most {result['apart']:.1e} apart"
    )
    print(f"ratio to TRL unpacked {ratio:.2f}, goal {GOAL}")
    passed = ratio >= GOAL and result["apart"] <= LOSS_APART
    print(
        json.dumps(
            {
                "ratio": ratio,
                "goal": GOAL,
                "speed": speed,
                "packing": modes,
                "losses_apart": result["apart"],
                "passed": passed,
            }
        )
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

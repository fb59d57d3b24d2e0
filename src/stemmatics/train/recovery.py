"""The recovery fine-tune: low-rank adapters, whole updates, resumable.

Axes: B rows of one pass, T positions.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from stemmatics.core.stages import Recipe, RecoveryRecipe
from stemmatics.train.finetune import Conditions, Listener, TrainingLog, TrainingStep, arguments, run
from stemmatics.train.lora import with_adapters
from stemmatics.train.recovery_rows import Update, micro_batches
from stemmatics.train.rows import IGNORED

# Seconds between two saved states of a run: the most that a crash can lose.
SAVED_EVERY = 60.0


class UpdateTrainer(Trainer):
    """Trainer whose batch is a whole update, split into passes of rows of similar length.

    The gradient is that of the mean over the update's tokens, however it is split.
    """

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Forward and backward over an update; returns the mean loss of its tokens, in nats."""
        del num_items_in_batch
        model.train()
        total = torch.zeros((), device=self.args.device)
        for batch in inputs["batches"]:
            on_device = self._prepare_inputs(batch)
            with self.compute_loss_context_manager():
                loss = summed_loss(model, on_device) / inputs["num_tokens"]
            self.accelerator.backward(loss)
            total += loss.detach()
        return total


def summed_loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Summed cross-entropy of the labelled tokens in nats, in float32 whatever the type of the logits."""
    logits_BTV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    targets_BT = batch["labels"][:, 1:]
    is_target_BT = targets_BT != IGNORED
    return functional.cross_entropy(
        logits_BTV[:, :-1][is_target_BT].float(), targets_BT[is_target_BT], reduction="sum"
    )


class _Collator:
    """One update as batches padded on the right; padding is neither attended to nor predicted."""

    def __init__(self, pad_id: int, most_positions: int) -> None:
        self._pad_id = pad_id
        self._most_positions = most_positions

    def __call__(self, updates: Sequence[Update]) -> dict[str, Any]:
        (update,) = updates
        indices = micro_batches([len(row) for row in update.rows], self._most_positions)
        batches = [self._padded([update.rows[index] for index in batch]) for batch in indices]
        return {"batches": batches, "num_tokens": update.num_tokens}

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        longest = max(map(len, rows))
        ids_BT = torch.full((len(rows), longest), self._pad_id)
        labels_BT = torch.full((len(rows), longest), IGNORED)
        attended_BT = torch.zeros((len(rows), longest), dtype=torch.int64)
        for index, row in enumerate(rows):
            ids_BT[index, : len(row)] = labels_BT[index, : len(row)] = torch.tensor(row)
            attended_BT[index, : len(row)] = 1
        return {"input_ids": ids_BT, "labels": labels_BT, "attention_mask": attended_BT}


class _Saves(TrainerCallback):
    """Saves a state at most every so many seconds, so that short runs save none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def on_step_end(self, _args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        if time.monotonic() - self._last >= self._seconds and state.global_step < state.max_steps:
            control.should_save = True
            self._last = time.monotonic()


def recover(
    model: PreTrainedModel,
    updates: Sequence[Update],
    recipe: RecoveryRecipe,
    conditions: Conditions,
    *,
    pad_id: int,
    state: Path,
    saved_every: float = SAVED_EVERY,
) -> tuple[Any, TrainingLog]:
    """Adapters for ``model``, trained on ``updates`` in their order, and the log.

    ``state`` is a folder for the run's last state, from which the same call continues after a crash;
    it is removed when the run ends. Its name must depend on everything that determines the result.

    Raises:
        UserError: the training diverged.
    """
    steps = Recipe(
        steps=recipe.updates,
        batch_size=1,
        max_length=recipe.max_length,
        **recipe.model_dump(include={"learning_rate", "schedule", "warmup", "weight_decay"}),
    )
    adapted = with_adapters(model, recipe.lora)
    listener = Listener(steps, conditions.on_event)
    settings = {**arguments(steps, state, conditions), "include_num_input_tokens_seen": "no"}
    trainer = UpdateTrainer(
        model=adapted,
        args=TrainingArguments(**{**settings, "save_strategy": "steps", "save_steps": 10**9}),
        data_collator=_Collator(pad_id, conditions.numerics.token_budget),
        train_dataset=list(updates),
        callbacks=[listener, _Saves(saved_every)],
    )
    run(trainer, _last_complete_state(state))
    shutil.rmtree(state, ignore_errors=True)
    return adapted, _with_counts(trainer.state.log_history, updates)


def _last_complete_state(state: Path) -> Path | None:
    """The newest complete state; an incomplete one lacks the file that Trainer writes last."""
    if not state.is_dir():
        return None
    for folder in state.glob("checkpoint-*"):
        if not (folder / "trainer_state.json").is_file():
            shutil.rmtree(folder)
    checkpoint = get_last_checkpoint(str(state))
    return None if checkpoint is None else Path(checkpoint)


def _with_counts(history: Sequence[Mapping[str, Any]], updates: Sequence[Update]) -> TrainingLog:
    """One row per update, also of those before an interruption, with the tokens read so far."""
    losses = {int(entry["step"]): float(entry["loss"]) for entry in history if "loss" in entry}
    rows, read = [], 0
    for step, update in enumerate(updates, 1):
        read += update.num_tokens
        rows.append(TrainingStep(step, losses[step], read))
    return TrainingLog(
        rows,
        num_bytes=sum(update.num_bytes for update in updates),
        num_documents=sum(update.num_begun for update in updates),
    )

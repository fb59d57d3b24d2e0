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

from stemmatics.core.errors import UserError
from stemmatics.core.stages import Recipe, RecoveryRecipe
from stemmatics.lm.checkpoints.memory import available_bytes, is_out_of_memory
from stemmatics.lm.scoring.discover import capture_hidden
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.train.adapter_product import fuse_adapters
from stemmatics.train.blocked_loss import WHOLE_ELEMENTS, blocked_loss, frozen_head
from stemmatics.train.finetune import Conditions, Listener, TrainingLog, TrainingStep, arguments, run
from stemmatics.train.lora import with_adapters
from stemmatics.train.recovery_memory import checkpoint_activations, is_checkpointing, recovery_memory
from stemmatics.train.recovery_rows import Update, micro_batches
from stemmatics.train.rows import IGNORED

# Seconds between two saved states of a run: the most that a crash can lose.
SAVED_EVERY = 60.0


class UpdateTrainer(Trainer):
    """Trainer whose batch is a whole update, split into passes of rows of similar length.

    The gradient is that of the mean over the update's tokens, however it is split. Where memory runs out the
    update is done again in passes of half the size; where every pass is one row, with its activations
    computed again in the backward pass (checkpointing).
    """

    def __init__(self, *, pad_id: int, most_positions: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._pad_id = pad_id
        self.most_positions = most_positions
        self._loss = PassLoss()

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Forward and backward over an update; returns the mean loss of its tokens, in nats."""
        del num_items_in_batch
        model.train()
        update: Update = inputs["update"]
        while True:
            try:
                return self._passes_over(model, update)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error)
            # outside the handler, where the failed pass's tensors are no longer held
            model.zero_grad(set_to_none=True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._take_less(model, update, reason)

    def _passes_over(self, model: torch.nn.Module, update: Update) -> torch.Tensor:
        total = torch.zeros((), device=self.args.device)
        for indices in micro_batches([len(row) for row in update.rows], self.most_positions):
            batch = self._prepare_inputs(_padded([update.rows[index] for index in indices], self._pad_id))
            with self.compute_loss_context_manager():
                loss = self._loss(model, batch) / update.num_tokens
            self.accelerator.backward(loss)
            total += loss.detach()
        return total

    def _take_less(self, model: Any, update: Update, reason: str) -> None:
        longest = max(len(row) for row in update.rows)
        if self.most_positions > longest:
            largest = min(self.most_positions, sum(len(row) for row in update.rows))
            self.most_positions = max(longest, largest // 2)
        elif not is_checkpointing(model):
            checkpoint_activations(model)
        else:
            raise UserError(
                f"A row of {longest} tokens does not fit into memory",
                f"it was tried alone and with checkpointing: {reason}",
                "Take a recipe with a smaller max_length or rank, or a device with more memory",
            )


class PassLoss:
    """The summed loss of a pass: from whole logits while they are small, else by blocks of positions."""

    def __init__(self, whole_elements: int = WHOLE_ELEMENTS) -> None:
        self._whole_elements = whole_elements
        self._head: LinearHead | None = None
        self._is_examined = False

    def __call__(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Nats, float32."""
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        num_ids = int(inner.get_output_embeddings().weight.shape[0])
        if batch["input_ids"].numel() * num_ids <= self._whole_elements:
            return summed_loss(model, batch)
        if not self._is_examined:
            self._head = frozen_head(inner, int(batch["input_ids"].shape[1]))
            self._is_examined = True
        if self._head is None:
            return summed_loss(model, batch)
        states_BTD = capture_hidden(inner, batch["input_ids"], attention_mask=batch["attention_mask"])
        targets_BT = batch["labels"][:, 1:]
        is_target_BT = targets_BT != IGNORED
        return blocked_loss(states_BTD[:, :-1][is_target_BT], targets_BT[is_target_BT], self._head)


def summed_loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Summed cross-entropy of the labelled tokens in nats, in float32 whatever the type of the logits."""
    logits_BTV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    targets_BT = batch["labels"][:, 1:]
    is_target_BT = targets_BT != IGNORED
    return functional.cross_entropy(
        logits_BTV[:, :-1][is_target_BT].float(), targets_BT[is_target_BT], reduction="sum"
    )


def _only(updates: Sequence[Update]) -> dict[str, Any]:
    """The collator: a batch is one update, which the trainer cuts into passes."""
    (update,) = updates
    return {"update": update}


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> dict[str, torch.Tensor]:
    """Rows padded on the right; padding is neither attended to nor predicted."""
    longest = max(map(len, rows))
    ids_BT = torch.full((len(rows), longest), pad_id)
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
    fuse_adapters(adapted)
    listener = Listener(steps, conditions.on_event)
    settings = {**arguments(steps, state, conditions), "include_num_input_tokens_seen": "no"}
    trainer = UpdateTrainer(
        model=adapted,
        args=TrainingArguments(**{**settings, "save_strategy": "steps", "save_steps": 10**9}),
        data_collator=_only,
        pad_id=pad_id,
        most_positions=conditions.numerics.token_budget,
        train_dataset=list(updates),
        callbacks=[listener, _Saves(saved_every)],
    )
    _checkpoint_if_needed(adapted, recipe, trainer)
    run(trainer, _last_complete_state(state))
    shutil.rmtree(state, ignore_errors=True)
    return adapted, _with_counts(trainer.state.log_history, updates)


def _checkpoint_if_needed(adapted: Any, recipe: RecoveryRecipe, trainer: UpdateTrainer) -> None:
    """Checkpointing where a pass would not fit: a CPU has no error for that, the system ends the process."""
    inner = adapted.get_base_model()
    num_positions = min(trainer.most_positions, recipe.update_tokens)
    needed = recovery_memory(inner.config, recipe, dtype=inner.dtype, num_positions=num_positions)
    # weights and adapters are in memory already
    if needed is not None and needed.beside_model > available_bytes(inner.device):
        checkpoint_activations(adapted)


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
